"""What a frame says: sums that close, windows cut from buckets, who is first, who is left out."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.errors import QueryError
from telemetry.records import Batch
from telemetry.watch.columns import AT, LEVELS_ADD_UP
from telemetry.watch.frame import COLUMNS, Asked, Frame, frame
from telemetry.watch.name_filter import NameFilter
from telemetry.watch.state import KEEP_S, STALE_S, WatchState
from tests.telemetry.delivered import T0, batch, engine_minute, minute

ADDS = [c.name for c in COLUMNS if c.kind in ("sum", "avg", "share") or c.name in LEVELS_ADD_UP]


def counts(**at: int) -> tuple[int, ...]:
    """A histogram: `b3=5` is five samples in bucket 3."""
    found = [0] * (len(LATENCY_BOUNDS_S) + 1)
    for name, n in at.items():
        found[int(name[1:])] = n
    return tuple(found)


def heard(*batches: Batch, now: float = T0 + 60) -> WatchState:
    state = WatchState()
    for one in batches:
        state.hear([one], now)
    return state


def look(state: WatchState, now: float = T0 + 60, **asked: Any) -> Frame:
    wanted = Asked(**asked)
    totals = state.look(now, wanted.window_s)
    kept = NameFilter(wanted.filter, lambda: 0.0).keeps(totals.names) if wanted.filter else None
    return frame(totals, wanted, kept, now)


def sealed_and_open() -> WatchState:
    """A sealed minute of 60 tokens, and 20 seconds of the next one with 10."""
    return heard(
        batch(
            engine_minute(observed_seconds=60.0, running_avg=1.0),
            minute("a", service=60.0, kv_bytes_avg=600.0, oldest_wait_s=9.0, in_flight=3.0,
                   observed_seconds=60.0, ttft=counts(b0=60)),
        ),
        batch(
            engine_minute(T0 + 60, observed_seconds=20.0, running_avg=5.0),
            minute("a", T0 + 60, service=10.0, kv_bytes_avg=1200.0, oldest_wait_s=2.0,
                   in_flight=1.0, observed_seconds=20.0, ttft=counts(b3=20)),
            sealed=False,
            seq=2,
        ),
        now=T0 + 80,
    )  # fmt: skip


def test_sixty_seconds_are_the_open_bucket_and_the_missing_part_of_the_sealed_one() -> None:
    now = look(sealed_and_open(), T0 + 80)
    [row] = now.rows
    assert row["service"] == pytest.approx(60.0 * 40 / 60 + 10.0)
    assert row["kv_bytes_avg"] == pytest.approx((600.0 * 40 + 1200.0 * 20) / 60)
    assert row["oldest_wait_s"] == 9.0
    assert row["in_flight"] == 1.0
    assert row["ttft_n"] == pytest.approx(60)
    assert (now.start, now.end) == (T0 + 20, T0 + 80)
    assert now.provisional
    [pool] = now.pools
    assert (pool.observed_s, pool.tenants, pool.values[0]) == (60.0, 1, 5.0)


def test_a_shorter_window_is_the_open_bucket_alone() -> None:
    [row] = look(sealed_and_open(), T0 + 80, window_s=20.0).rows
    assert (row["service"], row["kv_bytes_avg"], row["oldest_wait_s"]) == (10.0, 1200.0, 2.0)


def test_a_window_beyond_what_was_seen_says_how_much_was() -> None:
    [pool] = look(sealed_and_open(), T0 + 80, window_s=300.0).pools
    assert pool.observed_s == 80.0


def test_absent_is_not_zero() -> None:
    state = heard(batch(engine_minute(observed_seconds=60.0), minute("a", service=1.0)))
    [row] = look(state).rows
    assert row["wait_kv_s"] is None
    assert row["offered_requests"] is None
    assert row["ttft_p99_s"] is None


def test_front_and_worker_meet_in_one_row() -> None:
    state = heard(
        batch(engine_minute(observed_seconds=60.0), minute("a", service=6.0)),
        batch(
            minute("a", offered_requests=9, admitted_requests=7, rejected_rpm_requests=1,
                   rejected_queue_requests=1),
            minute("b", offered_requests=2, rejected_tpm_requests=2),
            emitter=Emitter.FRONT,
        ),
    )  # fmt: skip
    a, b = look(state, sort="tenant", descending=False).rows
    assert (a["service"], a["offered_requests"], a["rejected_requests"]) == (6.0, 9.0, 2.0)
    assert (b["service"], b["offered_requests"], b["rejected_requests"]) == (None, 2.0, 2.0)


def test_fair_share_is_of_those_backlogged_and_share_of_all() -> None:
    state = heard(
        batch(
            engine_minute(observed_seconds=60.0),
            minute("a", service=30.0, weight=1.0, backlogged_s=5.0),
            minute("b", service=60.0, weight=3.0, backlogged_s=1.0),
            minute("c", service=10.0, weight=4.0, backlogged_s=0.0),
        )
    )
    rows = {r.tenant: r for r in look(state).rows}
    assert [rows[t]["share"] for t in "abc"] == [0.3, 0.6, 0.1]
    assert [rows[t]["fair_share"] for t in "abc"] == [0.25, 0.75, None]


def test_percentiles_come_from_histograms_and_few_samples_show_the_largest() -> None:
    state = heard(
        batch(
            engine_minute(observed_seconds=60.0),
            minute("many", ttft=counts(b7=98, b10=2)),
            minute("few", ttft=counts(b7=10, b10=1)),
            minute("late", ttft=counts(b20=30)),
            minute("none", ttft=counts()),
        )
    )
    rows = {r.tenant: r for r in look(state).rows}
    assert 0.08 < rows["many"]["ttft_p50_s"] <= 0.16  # type: ignore[operator]
    assert 0.64 < rows["many"]["ttft_p99_s"] <= 1.25  # type: ignore[operator]
    assert rows["few"]["ttft_p99_s"] == 1.25
    assert rows["late"]["ttft_p50_s"] == 640.0
    assert rows["none"]["ttft_p50_s"] is None
    assert rows["none"]["ttft_n"] == 0.0


def test_rows_are_ranked_with_absent_last_and_equal_ones_by_name() -> None:
    state = heard(
        batch(
            engine_minute(observed_seconds=60.0),
            minute("x", wait_kv_s=1.0),
            minute("b", wait_kv_s=3.0),
            minute("a", wait_kv_s=3.0),
            minute("idle", service=100.0),
        )
    )
    order = [r.tenant for r in look(state, sort="wait_kv_s").rows]
    assert order == ["a", "b", "x", "idle"]
    order = [r.tenant for r in look(state, sort="wait_kv_s", descending=False).rows]
    assert order == ["x", "a", "b", "idle"]
    assert [r.tenant for r in look(state, sort="tenant").rows] == ["x", "idle", "b", "a"]


def test_the_filter_chooses_rows_and_others_still_hold_everybody_else() -> None:
    state = heard(
        batch(
            engine_minute(observed_seconds=60.0),
            *(minute(f"{team}{i}", service=float(i)) for team in "ab" for i in range(5)),
        )
    )
    now = look(state, filter="^a", n=2)
    assert [r.tenant for r in now.rows] == ["a4", "a3"]
    assert (now.tenants, now.matched, now.others_tenants) == (10, 5, 8)
    assert now.others["service"] == 20.0 - 7.0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"sort": "wait_kv"}, "perhaps wait_kv_s"),
        ({"sort": "bogus"}, "use tenant, service, share"),
        ({"n": 0}, "1 to 1000"),
        ({"n": 10_000}, "1 to 1000"),
        ({"every_s": 0.1}, "every_s = 0.1: expected 0.2"),
        ({"every_s": math.nan}, "every_s = nan"),
        ({"window_s": 3600.0}, "expected 1 to 300 seconds"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_can(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        Asked(**asked)


def other(engine: str, at: float, **columns: Any) -> Batch:
    rows = (
        engine_minute(at, observed_seconds=60.0),
        minute("a", at, **columns),
    )
    moved = tuple(
        type(r)(**{n: getattr(r, n) for n in type(r).__slots__} | {"engine": engine}) for r in rows
    )
    return Batch(engine, "r1", "main", Emitter.WORKER, True, 1, moved)


def test_engines_add_up_each_by_its_own_clock() -> None:
    state = WatchState()
    state.hear([other("e1", T0, service=1.0, kv_bytes_avg=10.0, vtc_gap=5.0)], T0 + 60)
    # A day ahead: its clock is wrong, its minute is as good as another's.
    state.hear([other("e2", T0 + 86_400, service=2.0, kv_bytes_avg=20.0, vtc_gap=3.0)], T0 + 60)
    [row] = look(state).rows
    assert (row["service"], row["kv_bytes_avg"], row["vtc_gap"]) == (3.0, 30.0, 5.0)


def test_a_silent_engine_is_shown_and_not_counted() -> None:
    state = WatchState()
    state.hear([other("e1", T0, service=1.0)], T0 + 60)
    state.hear([other("e2", T0 + 180, service=2.0)], T0 + 240)
    now = look(state, T0 + 60 + STALE_S + 1)
    [row] = now.rows
    assert row["service"] == 2.0
    assert [(p.engine, p.counted, p.tenants) for p in now.pools] == [
        ("e1", False, 0),
        ("e2", True, 1),
    ]
    assert now.pools[0].heard_age_s == STALE_S + 1
    assert "e1 pool main: silent" in now.partial[0]


def test_a_restart_inside_the_minute_adds_both_runs() -> None:
    first = batch(engine_minute(observed_seconds=20.0), minute("a", service=2.0))
    rows = (engine_minute(observed_seconds=60.0), minute("a", service=5.0))
    again = tuple(
        type(r)(**{n: getattr(r, n) for n in type(r).__slots__} | {"run_id": "r2"}) for r in rows
    )
    second = Batch("e1", "r2", "main", Emitter.WORKER, True, 1, again)
    [row] = look(heard(first, second)).rows
    assert row["service"] == 7.0


def test_old_buckets_are_forgotten() -> None:
    state = WatchState()
    for i in range(30):
        at = T0 + 60 * i
        state.hear(
            [batch(engine_minute(at, observed_seconds=60.0), minute(f"t{i}", at, service=1.0))],
            at + 60,
        )
        look(state, at + 60)
    assert len(state._states) == len(state._engines) == KEEP_S / 60


def test_nothing_heard_is_said() -> None:
    now = look(WatchState())
    assert (now.rows, now.pools, now.others_tenants) == ((), (), 0)
    assert now.partial == ("nothing has been heard yet",)


def test_totals_are_added_up_once_for_all_who_look_between_two_deliveries() -> None:
    state = sealed_and_open()
    first = state.look(T0 + 80, 60.0)
    assert state.look(T0 + 81, 60.0).values is first.values
    state.hear([batch(engine_minute(T0 + 60, observed_seconds=30.0), sealed=False, seq=3)], T0 + 90)
    assert state.look(T0 + 90, 60.0).values is not first.values


sum_values = st.none() | st.integers(0, 1_000_000)


@st.composite
def deliveries(draw: st.DrawFn) -> list[Batch]:
    """Two buckets, each as an open and a sealed state, of front and worker."""
    found = []
    for at in (T0, T0 + 60):
        for emitter in (Emitter.FRONT, Emitter.WORKER):
            for seq, is_sealed in ((1, False), (2, True)):
                rows: list[Any] = []
                for tenant in draw(st.sets(st.sampled_from("abcdef"), min_size=1)):
                    if emitter is Emitter.FRONT:
                        value = draw(st.integers(0, 1000))
                        rows.append(minute(tenant, at, offered_requests=value))
                    else:
                        rows.append(
                            minute(
                                tenant,
                                at,
                                service=float(draw(st.integers(0, 1000))),
                                output_tokens=draw(sum_values),
                                kv_bytes_avg=float(draw(st.integers(0, 1000))),
                                observed_seconds=60.0 if is_sealed else 30.0,
                            )
                        )
                if emitter is Emitter.WORKER:
                    rows.append(engine_minute(at, observed_seconds=60.0 if is_sealed else 30.0))
                found.append(batch(*rows, emitter=emitter, sealed=is_sealed, seq=seq))
    return found


@given(deliveries(), st.integers(1, 8), st.randoms(use_true_random=False))
def test_rows_and_others_add_up_to_the_same_however_they_are_cut_and_delivered(
    batches: list[Batch], n: int, chance: random.Random
) -> None:
    in_order = look(heard(*batches, now=T0 + 120), T0 + 120, n=1000)
    shuffled = batches * 2
    chance.shuffle(shuffled)
    cut = look(heard(*shuffled, now=T0 + 120), T0 + 120, n=n, filter="[a-d]")
    for name in ADDS:
        whole = [r[name] for r in in_order.rows]
        parts = [r[name] for r in (*cut.rows, cut.others)]
        assert sum(v or 0.0 for v in parts) == pytest.approx(sum(v or 0.0 for v in whole)), name
    assert len(cut.rows) + cut.others_tenants == len(in_order.rows) == in_order.tenants


def test_every_column_says_its_unit_kind_and_meaning() -> None:
    assert len(AT) == len(COLUMNS)
    for column in COLUMNS:
        assert column.kind in ("sum", "avg", "max", "last", "share", "percentile")
        assert column.unit
        assert column.meaning
