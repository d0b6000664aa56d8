"""How the ledger's buckets leave it: jumps, deliveries, places, growth, stretches, crowds."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pytest

from telemetry.ledger import fold, interference, matrix, sums
from telemetry.ledger.interference import SHARED
from telemetry.ledger.views import Ended, StepView, Targets
from telemetry.records import (
    InterferenceMinute,
    RequestRecord,
)
from tests.telemetry.ledger_worlds import (
    by_index,
    charged,
    end,
    hold_slots,
    minutes,
    new_ledger,
    tenant_minute,
)


def test_a_jump_is_its_steps_one_by_one():
    rows = {}
    for way in ("as one", "step by step"):
        ledger = new_ledger()
        hold_slots(ledger, a=2, b=1)
        ledger.in_step("a", 2)
        ledger.in_step("b", 1)
        ledger.joined("r", "victim", 0.0, 0.0)
        cost = by_index(ledger, {"a": 0.02, "b": 0.01})
        one = by_index(ledger, {"a": 2.0, "b": 1.0})

        def step(n, start, until, ledger=ledger, cost=cost, one=one):
            view = StepView(
                n, until - start, "slot", cost, decode_rows=3, context_tokens=30 + n,
                adapters=1, cost_version=2,
            )  # fmt: skip
            ledger.begin(view, start)
            ledger.settle({}, one, until)

        step(1, 0.0, 0.04)
        ends = [0.04 + 0.04 * (i + 1) + 0.001 * i for i in range(100)]
        starts = [0.04, *ends[:-1]]
        if way == "as one":
            lengths = [e - s for s, e in zip(starts, ends, strict=True)]
            ledger.jump(
                2, 0.04, ends, lengths, cost * 100, one * 100, 3,
                [30 + 2 + i for i in range(100)], 1, 2,
            )  # fmt: skip
        else:
            for i, (s, e) in enumerate(zip(starts, ends, strict=True)):
                step(2 + i, s, e)
        step(102, ends[-1], ends[-1] + 0.05)
        ledger.tick(12.0)
        batches = ledger.collect(12.0)
        rows[way] = [(b.sealed, *b.minutes, *b.logs) for b in batches]
    assert len(rows["as one"]) == len(rows["step by step"]) == 2
    for jumped, stepped in zip(rows["as one"], rows["step by step"], strict=True):
        assert len(jumped) == len(stepped)
        for x, y in zip(jumped, stepped, strict=True):
            assert type(x) is type(y)
            for name in getattr(x, "__slots__", ()):
                value, other = getattr(x, name), getattr(y, name)
                if isinstance(value, float):
                    assert value == pytest.approx(other, rel=1e-9, abs=1e-9), name
                else:
                    assert value == other, name


def test_a_jump_beyond_the_bucket_is_refused():
    ledger = new_ledger()
    zeros = np.zeros(ledger.width)
    with pytest.raises(ValueError, match=r"11\.0 s reach the end of the bucket at 10\.0 s"):
        ledger.jump(1, 0.0, [11.0], [11.0], zeros, zeros, 0, [0], 0, 0)


def test_provisional_deliveries_leave_the_sealed_bucket_as_it_would_have_been():
    sealed = []
    for looks in (False, True):
        ledger = new_ledger()
        hold_slots(ledger, holder=2)
        for i in range(9):
            ledger.joined(f"r{i}", f"v{i % 3}", i, float(i))
            ledger.begin(StepView(i, 0.7, "slot"), float(i))
            if looks:
                taken = ledger.take(i + 0.5)
                if i % 2:
                    taken.batches()  # others are dropped
        sealed.append(ledger.collect(10.0)[0])
    plain, looked = sealed
    assert plain.minutes[1:] == looked.minutes[1:] or all(
        x == pytest.approx(y, rel=1e-9)
        for p, q in zip(plain.minutes, looked.minutes, strict=True)
        for x, y in zip(_floats(p), _floats(q), strict=True)
    )
    assert looked.seq > plain.seq


def _floats(row):
    return [v for n in row.__slots__ if isinstance(v := getattr(row, n), float)]


def test_a_delivery_worked_out_late_still_says_how_things_were():
    ledger = new_ledger()
    hold_slots(ledger, holder=1)
    ledger.joined("r", "victim", 0.0, 0.0)
    ledger.begin(StepView(1, 9.0, "slot"), 0.0)
    early, late = ledger.take(2.0), ledger.take(5.0)
    assert tenant_minute(late.batches()[-1], "victim").wait_slot_s == 5.0
    assert tenant_minute(early.batches()[-1], "victim").wait_slot_s == 2.0
    assert charged(early.batches()[-1], "victim", "slot") == {("tenant", "holder"): 2.0}
    assert early.batches() == early.batches()


def test_a_dropped_delivery_makes_no_row_and_loses_only_itself():
    ledger = new_ledger()

    def refuse(verdict):
        raise AssertionError("nobody asked for rows")

    ledger.joined("r", "a", 0.0, 0.0)
    ledger.wait_ended("r", "a", SHARED)
    ledger.ended(Ended("r", "a", "finished", None, None, 1), refuse)
    ledger.take(1.0)
    batch = ledger.collect(2.0)[-1]
    assert batch.logs == ()
    assert tenant_minute(batch, "a").finished == 1


def test_request_rows_carry_their_verdict_and_leave_once():
    ledger = new_ledger(targets={"a": Targets(ttft_s=1.0)})
    ledger.joined("r", "a", 0.0, 0.0)
    ledger.tick(2.0)
    ledger.wait_ended("r", "a", SHARED)
    ledger.first_token("r", "a", 2.0)
    end(ledger, "r", "a", output_tokens=3)
    first = ledger.collect(2.0)
    (row,) = [r for r in first[0].logs if isinstance(r, RequestRecord)]
    assert (row.slo_met, row.missed_ttft, row.missed_gap) == (False, True, None)
    assert ledger.collect(3.0)[0].logs == ()


def test_idle_tenants_drop_out_and_their_places_are_used_again():
    ledger = new_ledger()
    ledger.joined("r", "a", 0.0, 0.0)
    at = ledger.index("a")
    ledger.joined("s", "b", 0.0, 0.0)
    ledger.wait_ended("r", "a", SHARED)
    ledger.kv_bytes("a", 10 / 3)
    ledger.kv_bytes("a", -10 / 3 + 1e-15)  # parts leave dust
    end(ledger, "r", "a")
    assert ledger.index("a") == at  # its bucket is not sealed
    ledger.tick(10.0)
    ledger.joined("t", "c", 10.0, 10.0)
    assert ledger.index("c") == at
    ledger.begin(StepView(1, 9.0, "slot"), 10.0)
    ledger.runs("c", 1)
    first, second = ledger.collect(15.0)
    assert [r.tenant for r in minutes(first)] == ["a", "b"]
    assert sorted(r.tenant for r in minutes(second)) == ["b", "c"]
    assert tenant_minute(first, "a").finished == 1
    assert tenant_minute(second, "c").finished == 0
    assert charged(second, "b", "slot") == {("tenant", "c"): 5.0}


def test_a_place_stays_while_the_costs_of_the_step_under_way_are_to_be_booked():
    ledger = new_ledger()
    ledger.joined("r", "a", 0.0, 0.0)
    ledger.wait_ended("r", "a", SHARED)
    ledger.begin(StepView(1, 20.0, "slot", by_index(ledger, {"a": 5.0})), 0.0)
    decoded = by_index(ledger, {"a": 1.0})
    end(ledger, "r", "a", "aborted")  # in the middle of a step that freezes over a seal
    ledger.joined("s", "b", 12.0, 12.0)
    ledger.settle({}, decoded, 13.0)
    row = tenant_minute(ledger.collect(13.0)[-1], "a")
    assert (row.engine_seconds, row.output_tokens) == (5.0, 1)


def test_two_thousand_tenants_close_and_the_vectors_grow_on_the_way():
    ledger = new_ledger(weights={"t7": 3.0})
    ledger.counter_of = lambda tenant: float(tenant[1:])
    hold_slots(ledger, holder=3, other=1)
    ledger.begin(StepView(1, 50.0, "slot"), 0.0)
    for i in range(2000):
        ledger.joined(f"r{i}", f"t{i}", i / 1000, i / 1000)
    assert ledger.width >= 2002
    ledger.counter_of = lambda tenant: 7.0
    batch = ledger.collect(4.0)[-1]
    rows = {r.tenant: r for r in minutes(batch)}
    assert len(rows) == 2002
    for i in (0, 7, 63, 64, 1023, 1024, 1999):
        waited = 4.0 - i / 1000
        assert rows[f"t{i}"].wait_slot_s == pytest.approx(waited, rel=1e-9)
        held = charged(batch, f"t{i}", "slot")
        assert held == {
            ("tenant", "holder"): pytest.approx(0.75 * waited, rel=1e-9),
            ("tenant", "other"): pytest.approx(0.25 * waited, rel=1e-9),
        }
    assert rows["t7"].weight == 3.0
    assert rows["t7"].vtc_counter == 7.0


@pytest.mark.parametrize("pending", [0, 1 << 30])
def test_many_stretches_are_one_matrix(monkeypatch, pending):
    """Stretches closed early and folded at once, or late, or never cut: the same rows."""
    results = []
    for rows in (1, 3, 1000):
        monkeypatch.setattr(interference, "_MOST_ROWS", rows)
        monkeypatch.setattr(fold, "_PENDING_BYTES", pending)
        ledger = new_ledger()
        hold_slots(ledger, a=1, b=2)
        for i in range(90):
            at = 0.1 * i
            ledger.begin(StepView(i, 0.08, ("slot", "kv", "budget")[i % 3], free_bytes=5.0), at)
            ledger.joined(f"r{i}", f"v{i % 7}", at, at)
            if i % 3 == 2:
                ledger.wait_ended(f"r{i - 2}", f"v{(i - 2) % 7}", SHARED)
                ledger.runs(f"v{(i - 2) % 7}", 1)
        charges = minutes(ledger.collect(10.0)[0], InterferenceMinute)
        results.append(
            {(r.victim, r.reason, r.holder_kind, r.holder): r.charged_s for r in charges}
        )
    assert results[0] == pytest.approx(results[2], rel=1e-9)
    assert results[1] == pytest.approx(results[2], rel=1e-9)


def test_in_a_crowd_of_holders_the_heaviest_keep_their_lines_and_sums_still_close(monkeypatch):
    for room in (sums, matrix):
        monkeypatch.setattr(room, "EXACT_HOLDERS", 12)
        monkeypatch.setattr(room, "CROWDED_HOLDERS", 9)
    monkeypatch.setattr(interference, "_MOST_ROWS", 4)
    ledger = new_ledger()
    hold_slots(ledger, heavy=40)
    ledger.begin(StepView(1, 9.0, "slot"), 0.0)
    for i in range(60):
        ledger.tick(0.1 * i)
        hold_slots(ledger, **{f"h{i}": 1})
        ledger.joined(f"r{i}", f"v{i % 5}", 0.1 * i, 0.1 * i)
    batch = ledger.collect(9.0)[-1]
    for i in range(5):
        rows = charged(batch, f"v{i}", "slot")
        row = tenant_minute(batch, f"v{i}")
        assert sum(rows.values()) == pytest.approx(row.wait_slot_s, rel=1e-9)
        assert next(iter(rows)) == ("tenant", "heavy")
        assert ("others", "") in rows


def test_rows_are_made_in_another_thread_while_the_ledger_goes_on(monkeypatch):
    monkeypatch.setattr(interference, "_MOST_ROWS", 2)
    monkeypatch.setattr(fold, "_PENDING_BYTES", 0)
    ledger = new_ledger()
    hold_slots(ledger, holder=1)
    ledger.joined("r", "victim", 0.0, 0.0)
    ledger.begin(StepView(1, 1000.0, "slot"), 0.0)
    handed: queue.Queue = queue.Queue()
    made = []

    def make():
        while (taken := handed.get()) is not None:
            made.append(taken.batches()[-1])

    maker = threading.Thread(target=make)
    maker.start()
    for i in range(1, 300):
        ledger.joined(f"o{i}", f"v{i % 9}", i / 100, i / 100)
        ledger.tick(i / 100)
        handed.put(ledger.take(i / 100))
    handed.put(None)
    maker.join()
    assert len(made) == 299
    for i, batch in enumerate(made, 1):
        assert tenant_minute(batch, "victim").wait_slot_s == pytest.approx(i / 100)
        assert charged(batch, "victim", "slot") == {("tenant", "holder"): pytest.approx(i / 100)}
