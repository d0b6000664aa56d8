"""Claims about the ledger one by one: who is charged, cuts, freezes, targets, levels, steps."""

from __future__ import annotations

import pytest

from telemetry.ledger.interference import SHARED, adapter_group
from telemetry.ledger.views import StepView, Targets, TenantWork
from telemetry.records import (
    StepSample,
)
from tests.telemetry.ledger_worlds import (
    by_index,
    charged,
    end,
    engine_minute,
    hold_slots,
    minutes,
    new_ledger,
    tenant_minute,
)


def test_a_wait_is_cut_exactly_at_each_bucket():
    ledger = new_ledger()
    hold_slots(ledger, holder=1)
    ledger.begin(StepView(1, 100.0, "slot"), 0.0)
    ledger.joined("r", "victim", 4.0, 4.0)
    ledger.tick(27.5)
    batches = ledger.collect(27.5)
    assert [tenant_minute(b, "victim").wait_slot_s for b in batches] == [6.0, 10.0, 7.5]
    assert [b.sealed for b in batches] == [True, True, False]
    assert [engine_minute(b).observed_seconds for b in batches] == [10.0, 10.0, 7.5]
    assert all(list(charged(b, "victim", "slot")) == [("tenant", "holder")] for b in batches)
    assert [tenant_minute(b, "victim").oldest_wait_s for b in batches] == [6.0, 16.0, 23.5]


def test_when_the_shared_reason_flips_everyone_unexamined_flips_with_it():
    ledger = new_ledger()
    hold_slots(ledger, holder=1)
    ledger.joined("r", "victim", 0.0, 0.0)
    for at, reason in ((0.0, "slot"), (2.0, "kv"), (3.0, "slot")):
        ledger.begin(StepView(1, 9.0, reason, free_bytes=1.0), at)
    batch = ledger.collect(7.0)[-1]
    row = tenant_minute(batch, "victim")
    assert (row.wait_slot_s, row.wait_kv_s, row.wait_budget_s) == (6.0, 1.0, 0.0)
    assert charged(batch, "victim", "kv") == {("capacity", ""): 1.0}  # all of it was free


def test_pins_and_floors_are_policy_and_free_pages_capacity():
    ledger = new_ledger()
    ledger.joined("r", "victim", 0.0, 0.0)
    ledger.joined("h", "holder", 0.0, 0.0)
    ledger.wait_moved("victim", SHARED, "kv")
    ledger.kv_bytes("holder", 30.0)
    ledger.adapter_bytes("holder", 20.0)
    ledger.begin(StepView(1, 9.0, free_bytes=40.0, cached_bytes=20.0, pinned_bytes=10.0), 0.0)
    assert charged(ledger.collect(5.5)[-1], "victim", "kv") == pytest.approx(
        {("capacity", ""): 2.5, ("policy", ""): 0.5, ("tenant", "holder"): 2.5}
    )


def test_adapters_that_cannot_be_ordered_are_charged_as_pages_are():
    ledger = new_ledger()
    ledger.joined("r", "victim", 0.0, 0.0)
    ledger.joined("h", "holder", 0.0, 0.0)
    ledger.kv_bytes("holder", 100.0)
    ledger.wait_moved("victim", SHARED, "adapter")
    ledger.tick(2.0)
    ledger.wait_moved("victim", "adapter", adapter_group("key"))  # ordered: on its way
    ledger.begin(StepView(1, 9.0, blame={"key": {"evictor": 1.0}}), 2.0)
    batch = ledger.collect(5.0)[-1]
    assert charged(batch, "victim", "adapter") == {
        ("tenant", "holder"): pytest.approx(2.0),
        ("tenant", "evictor"): pytest.approx(3.0),
    }
    assert tenant_minute(batch, "victim").wait_adapter_s == pytest.approx(5.0)


def test_beyond_eight_holders_the_rest_is_others_and_the_sum_closes():
    ledger = new_ledger()
    hold_slots(ledger, **{f"t{i}": i + 1 for i in range(20)})
    ledger.joined("r", "victim", 0.0, 0.0)
    ledger.begin(StepView(1, 4.0, "slot"), 0.0)
    batch = ledger.collect(5.0)[-1]
    rows = charged(batch, "victim", "slot")
    assert [who for kind, who in rows if kind == "tenant"] == [f"t{i}" for i in range(19, 11, -1)]
    assert rows["capacity", ""] == pytest.approx(1.0)
    assert ("others", "") in rows
    assert sum(rows.values()) == pytest.approx(tenant_minute(batch, "victim").wait_slot_s)


def test_a_frozen_step_accrues_to_capacity_while_it_is_frozen():
    ledger = new_ledger()
    hold_slots(ledger, holder=1)
    ledger.joined("r", "victim", 0.0, 0.0)
    ledger.begin(StepView(1, 0.5, "slot"), 0.0)
    for at in (1.0, 2.0, 3.0):  # only the timer comes
        ledger.tick(at)
        batch = ledger.collect(at)[-1]
        assert charged(batch, "victim", "slot") == {
            ("tenant", "holder"): pytest.approx(0.5),
            ("capacity", ""): pytest.approx(at - 0.5),
        }
        assert ledger.last_token_age_s == at
    assert engine_minute(batch).capacity_s == pytest.approx(2.5)
    assert engine_minute(batch).last_token_age_max_s == 3.0


def test_a_pure_decode_batch_stalls_nobody_and_nobody_is_stalled_by_its_own_prefill():
    ledger = new_ledger()
    hold_slots(ledger, a=3, b=1)
    ledger.in_step("a", 3)
    ledger.in_step("b", 1)
    decode = by_index(ledger, {"a": 0.6, "b": 0.2})
    ledger.begin(StepView(1, 1.0, "slot", decode), 0.0)
    ledger.settle({}, by_index(ledger, {"a": 3.0, "b": 1.0}), 1.0)
    batch = ledger.collect(1.0)[-1]
    assert [r.stall_s for r in minutes(batch)] == [0.0, 0.0]
    ledger.begin(StepView(2, 1.0, "slot", None, {"a": 0.5, "b": 0.2}), 1.0)
    ledger.settle({"a": TenantWork(prompt=5)}, None, 2.0)
    ledger.tick(4.0)  # settled: what passes until the next plan stalls nobody
    batch = ledger.collect(4.0)[-1]
    assert charged(batch, "a", "stall") == {
        ("self", ""): pytest.approx(2 * 0.5),
        ("tenant", "b"): pytest.approx(3 * 0.2),
    }
    assert charged(batch, "b", "stall") == {("tenant", "a"): pytest.approx(1 * 0.5)}
    assert tenant_minute(batch, "a").stall_s == pytest.approx(1.6)


def test_a_miss_is_booked_in_the_bucket_its_target_passed_though_the_request_still_waits():
    ledger = new_ledger(targets={"a": Targets(ttft_s=8.0, max_gap_s=1.0)})
    ledger.joined("r", "a", 1.0, 1.0)  # its target passes at 9
    ledger.joined("s", "a", 5.0, 5.0)  # at 13
    ledger.tick(21.0)
    batches = ledger.collect(21.0)
    assert [tenant_minute(b, "a").slo_missed_ttft for b in batches] == [1, 1, 0]
    assert [tenant_minute(b, "a").missed_waiting for b in batches] == [1, 1, 0]
    assert [tenant_minute(b, "a").slo_eligible for b in batches] == [1, 1, 0]
    for request in ("r", "s"):
        ledger.wait_ended(request, "a", SHARED)
        ledger.gap(request, 2.0)  # a second target of a request that missed already
        end(ledger, request, "a", output_tokens=4)
    row = tenant_minute(ledger.collect(22.0)[-1], "a")
    assert (row.slo_eligible, row.slo_missed, row.slo_missed_gap, row.slo_met) == (0, 0, 2, 0)
    assert row.goodput_tokens == 0


def test_client_aborts_before_a_target_passed_are_neither_met_nor_missed():
    ledger = new_ledger(targets={"a": Targets(ttft_s=5.0)})
    for request, outcome in (("r", "aborted"), ("s", "failed"), ("t", "finished")):
        ledger.joined(request, "a", 0.0, 0.0)
        ledger.wait_ended(request, "a", SHARED)
        ledger.first_token(request, "a", 0.5)
        end(ledger, request, "a", outcome, output_tokens=7)
    row = tenant_minute(ledger.collect(1.0)[-1], "a")
    assert (row.slo_eligible, row.slo_met, row.slo_missed, row.goodput_tokens) == (2, 1, 1, 7)
    assert sum(row.ttft) == 3


def test_time_never_goes_back():
    ledger = new_ledger()
    ledger.tick(5.0)
    ledger.tick(3.0)
    assert ledger.joined("r", "a", 4.0, 4.0) == 5.0
    ledger.begin(StepView(1, 1.0), 2.0)
    assert ledger.now == 5.0
    assert tenant_minute(ledger.collect(1.0)[-1], "a").wait_budget_s == 0.0


def test_averages_cover_the_bucket_for_who_came_late():
    ledger = new_ledger()
    ledger.tick(6.0)
    hold_slots(ledger, a=2)
    ledger.kv_bytes("a", 100.0)
    ledger.tick(8.0)
    ledger.kv_bytes("a", 300.0)
    ledger.tick(9.0)
    ledger.kv_bytes("a", -400.0)
    row = tenant_minute(ledger.collect(10.0)[0], "a")
    assert (row.resident_seqs_avg, row.resident_seqs_max) == pytest.approx((0.8, 2.0))
    assert (row.kv_bytes_avg, row.kv_bytes_max) == pytest.approx((60.0, 400.0))


def test_steps_are_counted_timed_and_sampled_with_their_facts():
    ledger = new_ledger()
    for i in range(300):
        ledger.begin(StepView(i, 0.02, decode_rows=4, context_tokens=9), 0.03 * i)
        ledger.settle({}, None, 0.03 * i + 0.025)
    ledger.begin(StepView(300), 9.0)
    first, _ = ledger.collect(10.0)
    engine = engine_minute(first)
    assert engine.steps == 300 == sum(engine.step_time)
    assert engine.decode_tokens == 1200
    assert engine.busy_s == pytest.approx(9.0)
    assert engine.capacity_s == pytest.approx(300 * 0.01)
    assert engine.base_cost_s == pytest.approx(300 * 0.02)
    samples = [r for r in first.logs if isinstance(r, StepSample)]
    assert len(samples) == 7  # 120 a minute, a third a stratum, of ten seconds
    assert samples == sorted(samples, key=lambda s: s.step)
    assert len({s.step for s in samples}) == 7
    assert all(s.duration_s == pytest.approx(0.03) and s.context_tokens == 9 for s in samples)


def test_wrong_events_say_which():
    ledger = new_ledger()
    with pytest.raises(ValueError, match=r"'a': -1 requests in group stall"):
        ledger.in_step("a", -1)
    with pytest.raises(ValueError, match=r"'r' of 'a' ends a wait that never began"):
        ledger.wait_ended("r", "a", SHARED)
    with pytest.raises(ValueError, match=r"no group 'page' \(there are shared, stall"):
        ledger.wait_began("r", "a", "page")
    with pytest.raises(ValueError, match=r"'a' runs fewer than no sequences after -1"):
        ledger.runs("a", -1)
