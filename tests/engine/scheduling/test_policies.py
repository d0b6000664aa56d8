"""Policies on the real scheduler, in virtual time. Their bounds are in test_bounds_real."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Tenant
from engine.errors import EngineError
from engine.scheduling.policies import POLICIES
from engine.simulation.world import simulate
from telemetry.records import EventRecord, PolicyRecord
from tests.engine import worlds
from tests.engine.worlds import make_pool


def ttft(pool, tenant):
    values = sorted(r.ttft_s for r in pool.requests() if r.tenant == tenant)
    return values[len(values) // 2], values[-1]


def flood(policy):
    """A light tenant beside one that sends 40 long prompts at once."""
    pool = make_pool(("light", "heavy"), policy=policy, pages=2000, slots=8)
    for i in range(40):
        pool.ask(1.0 + 0.001 * i, "heavy", 400, 30)
    for i in range(20):
        pool.ask(0.5 * i, "light", 20, 10)
    pool.run(ticks=1.0)
    return pool


def test_a_light_tenants_ttft_survives_a_long_context_flood_under_vtc_only():
    fcfs, vtc = flood("fcfs"), flood("vtc")
    assert ttft(fcfs, "light")[1] > 2.0
    assert ttft(vtc, "light")[1] < 0.75
    assert vtc.clock.now() == pytest.approx(fcfs.clock.now(), rel=0.05), "same work, same time"


def test_under_fcfs_admissions_follow_arrivals():
    pool = flood("fcfs")
    started = sorted(pool.requests(), key=lambda r: (r.first_scheduled, r.arrived))
    assert [r.arrived for r in started] == sorted(r.arrived for r in started)


def test_a_policy_switched_live_takes_over_and_is_written_down():
    pool = make_pool(("light", "heavy"), policy="fcfs", pages=2000, slots=4)
    for i in range(60):
        pool.ask(0.001 * i, "heavy", 300, 20)
    late = pool.ask(1.0, "light", 10, 5)
    pool.world.at(1.2, lambda: pool.core.set_policy("vtc", who="op", why="flood", if_version=1))
    pool.run(ticks=1.0)
    waited = next(r for r in pool.requests() if r.request_id == late)
    last_heavy = max(r.first_token for r in pool.requests() if r.tenant == "heavy")
    assert waited.first_token < last_heavy
    written = [(p.version, p.policy, p.previous, p.who) for p in pool.logs(PolicyRecord)]
    assert written == [(2, "vtc", "fcfs", "op")]
    assert any(e.kind == "policy" for e in pool.logs(EventRecord))


def test_a_stale_version_or_an_unknown_policy_changes_nothing():
    pool = make_pool()
    with pytest.raises(EngineError, match=r"version 7 .* 1 is"):
        pool.core.set_policy("fcfs", who="op", why="", if_version=7)
    with pytest.raises(EngineError, match="'lifo' is not known"):
        pool.core.set_policy("lifo", who="op", why="")
    assert pool.core.status().policy == "vtc"


def mixed(policy, jumping):
    """Four tenants with weights, more than fits: preemption, aborts, answers of any length."""
    pool = make_pool(tuple("abcd"), policy=policy, pages=20, slots=6, weights={"a": 2.0})
    for i in range(60):
        name = pool.ask(0.02 * (i % 13), "abcd"[i % 4], 10 + 7 * (i % 9), 5 + 11 * (i % 6))
        if i % 7 == 0:
            pool.world.at(0.3 + 0.05 * i, lambda name=name: pool.core.abort(name))
    simulate(pool.core, pool.world, jumping=jumping)
    pool.batches += pool.core.ledger.collect(pool.clock.now())
    return pool


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_serves_everybody_and_jumping_changes_nothing(policy):
    pools = [mixed(policy, jumping) for jumping in (True, False)]
    told = []
    for pool in pools:
        rows = sorted(pool.requests(), key=lambda r: r.request_id)
        assert len(rows) == 60
        assert sum(e.preemptions for e in pool.engine()) > 0
        told.append([(r.request_id, r.outcome, r.output_tokens) for r in rows])
        counters = pool.core.scheduler._counters
        for tenant in "abcd":
            charged = counters.unlifted(tenant) * counters.weight(tenant)
            assert charged == pytest.approx(pool.total("service", tenant))
    assert told[0] == told[1]
    ends = [sorted((r.request_id, r.ended) for r in p.requests()) for p in pools]
    assert [e for _, e in ends[0]] == pytest.approx([e for _, e in ends[1]], abs=1e-6)


def test_nothing_is_ahead_of_the_tokens_once_everybody_has_ended():
    """vtc-predicted: what was charged and never produced is all given back."""
    pool = mixed("vtc-predicted", jumping=True)
    policy, counters = pool.core.scheduler._waiting.policy, pool.core.scheduler._counters
    for tenant in "abcd":
        ahead = policy.measure(tenant) - counters.unlifted(tenant) - policy._ahead.lift(tenant)
        assert ahead == pytest.approx(0.0, abs=1e-9)
    assert policy._rows == {}


@pytest.fixture
def tenants(monkeypatch):
    """Sets tiers and inner sharing of the tenants of pools made from now on."""

    def of(**rights):
        def make(name, weight, slo):
            return Tenant(name, weight, slo=slo, **rights.get(name, {}))

        monkeypatch.setattr(worlds, "Tenant", make)

    return of


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_lower_tier_is_served_as_if_the_others_were_not_there(tenants, policy):
    tenants(gold={"tier": -1})
    pool = make_pool(("gold", "plain"), policy=policy, slots=4, pages=2000, prefix_cache=False)
    for i in range(60):
        pool.ask(0.001 * i, "plain", 200, 30)
    for i in range(8):
        pool.ask(0.5 + 0.4 * i, "gold", 60, 10)
    pool.run(ticks=1.0)
    assert ttft(pool, "gold")[1] < 0.75
    assert ttft(pool, "plain")[1] > 3.0


@pytest.mark.parametrize("policy", ["vtc", "fcfs"])
def test_one_key_of_a_tenant_cannot_starve_its_other_keys(tenants, policy):
    slowest = {}
    for share_by in ("none", "key"):
        tenants(a={"share_by": share_by})
        pool = make_pool(("a",), policy=policy, slots=4, pages=2000, prefix_cache=False)
        for i in range(50):
            pool.ask(0.001 * i, "a", 200, 30, key_id="batch")
        chats = [pool.ask(0.5 + 0.4 * i, "a", 20, 10, key_id="chat") for i in range(8)]
        pool.run(ticks=1.0)
        slowest[share_by] = max(r.ttft_s for r in pool.requests() if r.request_id in chats)
    assert slowest["key"] < 0.75
    assert slowest["none"] > 2.0


traffic = st.lists(
    st.tuples(
        st.floats(0, 2),
        st.sampled_from("abc"),
        st.integers(1, 150),
        st.integers(1, 25),
    ),
    min_size=5,
    max_size=50,
)


@given(traffic, st.data())
def test_charges_sum_to_prompt_and_output_through_aborts_and_preemption(arrivals, data):
    """Bound 7: no lift happens here (all arrive at once, nobody returns), so a counter is exactly
    its charges: computed prompt tokens and output, refunds included."""
    pool = make_pool(("a", "b", "c"), slots=4, pages=30, step_tokens=32)
    names = [pool.ask(0.0, *one[1:]) for one in arrivals]
    for name in data.draw(st.lists(st.sampled_from(names), max_size=6)):
        at = data.draw(st.floats(0, 3))
        pool.world.at(at, lambda name=name: pool.core.abort(name))
    pool.run(ticks=1.0)
    for tenant in "abc":
        counter = pool.core.scheduler._counters.value(tenant)
        assert counter == pytest.approx(pool.total("service", tenant))


def test_no_credit_is_banked_while_idle():
    pool = make_pool(("a", "idler"), slots=2, pages=400, prefix_cache=False)
    for i in range(40):
        pool.ask(0.01 * i, "a", 60, 10)
    for _ in range(10):
        pool.ask(3.0, "idler", 60, 10)
    pool.run(ticks=1.0)
    counters = pool.core.scheduler._counters
    own = 10 * (60 + 2 * 10)
    assert counters.value("idler") >= own + 0.75 * counters.value("a")
    assert pool.total("vtc_lifts", "idler") == 1


def test_decode_rows_are_never_starved_by_a_long_prefill():
    pool = make_pool(("a", "b"), step_tokens=32, pages=2000, slots=4)
    pool.ask(0.0, "a", 10, 100)
    pool.ask(0.2, "b", 3000, 1)
    pool.run(ticks=1.0)
    decoding = next(r for r in pool.requests() if r.tenant == "a")
    assert decoding.max_gap_s < 0.1
    assert decoding.stall_s > 0.2


def test_a_head_short_of_pages_is_passed_by_a_bounded_number_of_times():
    pool = make_pool(("big", "small"), pages=64, slots=8, bypass=3, policy="fcfs")
    for _ in range(3):
        pool.ask(0.0, "small", 150, 60)
    head = pool.ask(0.05, "big", 800, 4)
    for i in range(30):
        pool.ask(0.06 + 0.01 * i, "small", 20, 4)
    pool.run(ticks=1.0)
    by_id = {r.request_id: r for r in pool.requests()}
    started = by_id[head].first_scheduled
    before = [
        r for r in pool.requests()
        if r.tenant == "small" and r.arrived > by_id[head].arrived and r.first_scheduled < started
    ]  # fmt: skip
    assert 1 <= len(before) <= 3 + 8, "passed by at most 3 times, a scan may admit several at once"
    assert by_id[head].wait_kv_s > 0
