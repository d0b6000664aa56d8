"""Two ways of counting the same seconds must agree: requests' own clocks and the ledger."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Slo
from engine.scheduling.plan import StepOutcome
from telemetry.conventions import WAIT_REASONS
from telemetry.records import AdapterMinute, StepSample
from tests.engine.worlds import make_pool

REASONS = WAIT_REASONS


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def request_waits(pool, tenant, reason):
    return sum(
        (getattr(r, f"wait_{reason}_s") or 0) + (getattr(r, f"rewait_{reason}_s") or 0)
        for r in pool.requests()
        if r.tenant == tenant
    )


def busy_pool(policy="vtc", ticks=1.0, **kw):
    kw = {"pages": 40, "adapters": {"x": 6, "y": 6, "z": 6, "u": 6}, "slots": 4, **kw}
    pool = make_pool(("a", "b", "c"), policy=policy, **kw)
    for i in range(30):
        pool.ask(0.05 * i, "a", 40 + 7 * i % 90, 12, "xyzu"[i % 4])
        pool.ask(0.11 * i, "b", 20, 8, "xu"[i % 2])
        pool.ask(0.31 * i, "c", 10, 5)
    pool.run(ticks=ticks)
    return pool


@pytest.mark.parametrize("policy", ["vtc", "fcfs"])
@pytest.mark.parametrize("ticks", [None, 0.7])
def test_waits_of_requests_equal_the_ledgers_integrals(policy, ticks):
    pool = busy_pool(policy, ticks)
    assert {r.outcome for r in pool.requests()} == {"finished"}
    for reason in REASONS:
        for tenant in "abc":
            booked = pool.total(f"wait_{reason}_s", tenant)
            assert close(request_waits(pool, tenant, reason), booked), (tenant, reason)
    assert pool.total("wait_slot_s") > 1
    assert pool.total("wait_kv_s") > 0.1
    assert pool.total("wait_adapter_s") > 0.1
    assert pool.total("wait_budget_s") > 0.1


def test_the_matrix_closes_to_the_waits():
    pool = busy_pool()
    for tenant in "abc":
        for reason in REASONS:
            charged = sum(
                c.charged_s for c in pool.charges() if c.victim == tenant and c.reason == reason
            )
            assert close(charged, pool.total(f"wait_{reason}_s", tenant)), (tenant, reason)


def test_a_wait_before_the_first_plan_is_charged_too():
    pool = make_pool()
    pool.world.run_to(1.0)
    pool.ask(1.0, "a", 10, 2)
    pool.world.run_to(1.5)
    pool.run()
    assert pool.total("wait_budget_s") == pytest.approx(0.5)
    assert sum(c.charged_s for c in pool.charges() if c.reason == "budget") == pytest.approx(0.5)


def test_the_stall_of_requests_equals_the_ledgers():
    pool = busy_pool(ticks=0.7)
    for tenant in "abc":
        own = sum(r.stall_s or 0 for r in pool.requests() if r.tenant == tenant)
        assert close(own, pool.total("stall_s", tenant))
        charged = sum(
            c.charged_s for c in pool.charges() if c.victim == tenant and c.reason == "stall"
        )
        assert close(charged, own)


def test_a_row_that_fails_was_stalled_until_then_like_the_others():
    class FailsOnce:
        steps = 0

        def execute(self, plan):
            self.steps += 1
            pool.world.run_to(pool.clock.now() + 0.1)
            bad = {s.request_id: "not finite" for s in plan.segments} if self.steps == 4 else {}
            good = [s for s in plan.segments if s.samples and s.request_id not in bad]
            return StepOutcome({s.request_id: 1 for s in good}, bad)

    pool = make_pool(runner=FailsOnce())
    pool.ask(0.0, "a", 5, 30)
    pool.ask(0.15, "b", 300, 3)
    pool.ask(0.15, "c", 30, 3)
    pool.run()
    assert {r.outcome for r in pool.requests()} == {"failed"}
    for tenant in "abc":
        own = sum(r.stall_s or 0 for r in pool.requests() if r.tenant == tenant)
        assert close(own, pool.total("stall_s", tenant)), tenant
    assert pool.total("stall_s", "a") > 0.02
    made = sum(pool.total(c) for c in ("prompt_tokens", "recomputed_tokens"))
    assert sum(e.prefill_tokens for e in pool.engine()) == made
    # Each first token is its prefill's.
    decoded = pool.total("output_tokens") - sum(bool(r.output_tokens) for r in pool.requests())
    assert sum(e.decode_tokens for e in pool.engine()) == decoded > 0


def test_a_step_of_which_rows_failed_is_no_sample_of_what_steps_cost():
    class Breaks:
        steps = 0

        def execute(self, plan):
            self.steps += 1
            broken = self.steps == 3
            pool.world.run_to(pool.clock.now() + (0.3 if broken else 0.1))
            if broken:
                raise RuntimeError("the device")
            return StepOutcome({s.request_id: 1 for s in plan.segments if s.samples}, {})

    pool = make_pool(runner=Breaks())
    pool.ask(0.0, "a", 5, 30)
    pool.ask(0.6, "b", 5, 3)
    pool.ask(50.0, "b", 5, 1)  # by then what came before is sealed
    pool.run()
    took_s = [round(s.duration_s, 3) for s in pool.logs(StepSample)]
    assert took_s == [0.1] * 5, "two before it, three after"


@pytest.mark.parametrize("when", [0.1, 0.5, 2.0])  # loading, in use, idle
def test_an_adapter_that_was_unloaded_is_resident_no_more(when):
    pool = make_pool(adapters={"x": 6}, link_bytes_per_s=1e6, bucket_s=1.0)
    pool.ask(0.0, "a", 20, 40, "x")

    def unload():
        with pool.core.ledger.lock:
            pool.core.ledger.tick(pool.clock.now())
            pool.core.scheduler.unload("key-x")

    pool.world.at(when, unload)
    pool.ask(5.5, "a", 20, 4)
    pool.run()
    rows = pool.rows(AdapterMinute)
    assert not [r for r in rows if r.bucket_start >= 1_800_000_008 and r.resident_s]


def test_ttft_is_the_sum_of_its_parts():
    for r in busy_pool().requests():
        parts = r.wait_front_s + r.prefill_s + sum(getattr(r, f"wait_{x}_s") for x in REASONS)
        assert close(parts, r.ttft_s)


def test_tokens_and_outcomes_are_counted_once():
    pool = busy_pool()
    requests = pool.requests()
    assert len(requests) == 90
    assert pool.total("output_tokens") == sum(r.output_tokens for r in requests)
    cached = sum(r.cached_tokens for r in requests)
    assert cached > 0
    assert pool.total("cached_tokens") == cached
    assert pool.total("prompt_tokens") == sum(r.prompt_tokens for r in requests) - cached
    assert pool.total("recomputed_tokens") == sum(r.recomputed_tokens for r in requests)
    assert pool.total("finished") == 90
    assert pool.total("service") == pool.total("prompt_tokens") + 2 * pool.total("output_tokens")


def test_engine_seconds_close_to_the_prediction():
    pool = busy_pool()
    billed = pool.total("engine_seconds")
    engine = pool.engine()
    predicted = sum(e.predicted_s for e in engine)
    assert close(billed + sum(e.base_cost_s for e in engine), predicted)
    assert close(sum(e.busy_s + e.idle_s for e in engine), sum(e.observed_seconds for e in engine))


def test_a_slow_engine_is_charged_to_capacity_and_to_nobody():
    def slow(now):
        return 2.0

    pool = make_pool(slowdown=slow)
    for i in range(40):
        pool.ask(0.01 * i, "a", 64, 8)
        pool.ask(0.01 * i, "b", 64, 8)
    pool.run(ticks=0.5)
    by_kind: dict[str, float] = {}
    for c in pool.charges():
        if c.reason != "stall":
            by_kind[c.holder_kind] = by_kind.get(c.holder_kind, 0) + c.charged_s
    # Steps take twice what they should: half of every second of waiting is lost capacity.
    assert by_kind["capacity"] == pytest.approx(0.5 * sum(by_kind.values()), rel=0.05)


def test_a_frozen_step_accrues_to_capacity_while_it_is_frozen():
    pool = make_pool(freeze=(1.0, 5.0), slots=2, slo=Slo(ttft_s=1.0, max_gap_s=0.5))
    for i in range(40):
        pool.ask(0.02 * i, "a", 64, 20)
    seen = []

    def look():
        pool.core.tick()
        status = pool.core.status()
        open_rows = pool.core.ledger.collect(pool.clock.now())[-1].minutes
        capacity = sum(
            r.charged_s for r in open_rows if getattr(r, "holder_kind", "") == "capacity"
        )
        gaps = sum(getattr(r, "slo_missed_gap", 0) or 0 for r in open_rows)
        seen.append((pool.clock.now(), status.last_token_age_s, status.frozen, capacity, gaps))

    for at in (2.0, 3.0, 4.0, 5.0):
        pool.world.at(at, look)
    pool.run()
    ages = [age for _, age, _, _, _ in seen]
    assert ages == sorted(ages)
    assert ages[-1] > 3.5
    assert seen[-1][2]
    grown = [b[3] - a[3] for a, b in pairwise(seen)]
    waiting = 38  # all but the two that run, at most
    assert all(0 < g <= waiting * 1.001 for g in grown)
    assert seen[0][4] > 0, "a gap target passed during the freeze is booked during the freeze"


def test_misses_are_booked_while_the_request_still_waits():
    pool = make_pool(slots=1, slo=Slo(ttft_s=0.5), bucket_s=1.0)
    for _ in range(30):
        pool.ask(0.0, "a", 64, 10)
    pool.run(ticks=0.25)
    missed = pool.total("slo_missed_ttft", "a")
    assert missed == sum(bool(r.missed_ttft) for r in pool.requests())
    assert pool.total("missed_waiting", "a") > 0
    assert pool.total("slo_eligible") == pool.total("slo_met") + pool.total("slo_missed")
    assert pool.total("slo_eligible") == 30


def test_memory_is_whole_after_a_run_with_preemptions_and_evictions():
    pool = make_pool(("a", "b"), pages=26, adapters={"x": 6, "y": 6, "z": 6}, slots=4)
    for i in range(12):
        pool.ask(0.01 * i, "a", 30, 90, "xyz"[i % 3])
        pool.ask(0.01 * i, "b", 20, 60)
    pool.run(ticks=0.5)
    assert {r.outcome for r in pool.requests()} == {"finished"}
    assert all(r.output_tokens == r.max_tokens for r in pool.requests())
    assert pool.total("preemptions_suffered") > 0
    assert pool.total("recomputed_tokens") > 0
    assert sum(e.evictions for e in pool.engine()) > 0
    pool.core.scheduler._pool.check_integrity()
    held = pool.core.scheduler._pool.holdings()
    assert not held.kv
    assert not held.adapters
    assert pool.total("preemptions_suffered") == pytest.approx(pool.total("preemptions_caused"))


asks = st.lists(
    st.tuples(
        st.floats(0, 3),
        st.sampled_from("abc"),
        st.integers(1, 120),
        st.integers(1, 20),
        st.sampled_from([None, "x", "y", "z"]),
    ),
    min_size=1,
    max_size=40,
)


@given(asks, st.sampled_from(["vtc", "fcfs"]), st.sampled_from([26, 40, 200]), st.data())
def test_any_traffic_closes_and_ends(traffic, policy, pages, data):
    """Whatever arrives, and whatever is aborted when: sums close, nothing is left behind."""
    pool = make_pool(
        ("a", "b", "c"),
        policy=policy,
        pages=pages,
        adapters={"x": 5, "y": 7, "z": 3},
        slots=4,
        step_tokens=48,
        adapters_per_step=2,
        slo=Slo(ttft_s=0.4, tpot_s=0.05, max_gap_s=0.2),
    )
    names = [pool.ask(*one) for one in traffic]
    for name in data.draw(st.lists(st.sampled_from(names), max_size=5)):
        at = data.draw(st.floats(0, 4))
        pool.world.at(at, lambda name=name: pool.core.abort(name))
    pool.run(ticks=0.9)
    requests = pool.requests()
    assert len(requests) == len(names)
    assert pool.core.status().running == pool.core.status().waiting == 0
    for tenant in "abc":
        for reason in REASONS:
            assert close(
                request_waits(pool, tenant, reason), pool.total(f"wait_{reason}_s", tenant)
            )
    assert close(
        sum(c.charged_s for c in pool.charges() if c.reason != "stall"),
        sum(pool.total(f"wait_{r}_s") for r in REASONS),
    )
    assert pool.total("slo_eligible") == pool.total("slo_met") + pool.total("slo_missed")
    outcomes = sum(pool.total(o) for o in ("finished", "aborted", "failed", "timed_out"))
    assert outcomes == len(names)
    pool.core.scheduler._pool.check_integrity()
    held = pool.core.scheduler._pool.holdings()
    assert not held.kv
    assert not held.adapters
