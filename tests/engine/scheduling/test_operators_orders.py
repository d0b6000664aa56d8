"""What an operator does to a scheduler that runs: the real core in virtual time."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.between_steps import BetweenSteps, StepStuck
from engine.chronicle import KnownAdapter
from engine.config import Tenant
from engine.errors import EngineError
from engine.scheduling.orders import LATE_S
from engine.scheduling.policies import POLICIES
from engine.scheduling.policies.counters import Counters
from telemetry.records import AdapterRecord, EventRecord, PolicyRecord
from tests.engine.worlds import PAGE_BYTES, make_pool


def order(pool, at, act):
    """An act that reaches the core at `at`; what became of it is read after the run."""
    orders = []
    pool.world.at(at, lambda: orders.append(pool.core.between_steps.soon(act)))
    return orders


def known(name, pages, content=""):
    key = "key-" + (content or name)
    return KnownAdapter(key, name, pages, pages * PAGE_BYTES, 8, True)


def outcomes(pool):
    return {r.request_id: r.outcome for r in pool.requests()}


def served(pool, tenant, after):
    rows = [r for r in pool.requests() if r.tenant == tenant and r.first_token is not None]
    return sum(r.first_token > pool.clock.base.unix(after) for r in rows)


# -- weights and tiers


def flooded(change=None, policy="vtc"):
    """Two tenants with endless work and one slot's worth of room between them."""
    pool = make_pool(("a", "b"), policy=policy, slots=4, pages=400)
    for i in range(150):
        pool.ask(0.001 * i, "a", 64, 8)
        pool.ask(0.001 * i, "b", 64, 8)
    if change is not None:
        tenants = tuple(replace(Tenant(t), **change.get(t, {})) for t in "ab")
        said = {"who": "op", "why": "", "tenants": tenants}
        order(pool, 2.0, lambda s: pool.core.set_policy(policy, **said))
    pool.run(until=5.0)
    finished = [r for r in pool.requests() if r.outcome == "finished"]
    since = pool.clock.base.unix(2.5)
    late = [r.tenant for r in finished if r.ended > since]
    return late.count("a") / max(1, late.count("b")), pool


def test_a_weight_changed_live_changes_the_share_from_then_on():
    even, _ = flooded()
    assert even == pytest.approx(1.0, rel=0.15)
    ratio, pool = flooded({"a": {"weight": 3.0}})
    assert ratio == pytest.approx(3.0, rel=0.25)
    parameters = pool.logs(PolicyRecord)[-1].parameters
    assert '"a": {"weight": 3.0' in parameters


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tier_lowered_live_lets_the_others_go_first_under_every_policy(policy):
    ratio, _ = flooded({"a": {"tier": 10}}, policy)
    assert ratio < 0.1


@given(
    st.lists(st.sampled_from([0.001, 0.1, 1.0, 7.0, 1000.0]), min_size=1, max_size=4),
    st.integers(1, 5000),
    st.integers(0, 5000),
)
def test_no_change_of_weight_turns_a_refund_into_credit(weights, prompt, computed):
    computed = min(computed, prompt)
    counters = Counters({"a": 1.0})
    counters.charge_prompt("a", prompt)
    before = counters.value("a")
    for weight in weights:
        counters.reweigh("a", weight, prompt - computed)
    counters.refund_prompt("a", prompt - computed)
    kept = before * computed / prompt  # what was computed was charged by the first weight
    assert counters.value("a") == pytest.approx(kept, rel=1e-6, abs=1e-3)


def test_a_tenant_that_changes_its_tier_comes_there_as_an_arrival_does():
    counters = Counters({}, {"x": 1})
    for _ in range(3):
        counters.enters("old")
        counters.charge_prompt("old", 1000)
    counters.enters("x")
    assert counters.value("x") == 0.0
    counters.retier("x", 0)
    assert counters.value("x") == counters.value("old") == 3000.0
    assert counters.smallest(1) is None
    assert counters.smallest(0) == 3000.0


# -- preemption


def test_a_tenants_excess_waits_again_and_all_of_it_finishes():
    pool = make_pool(("big", "small"), policy="fcfs", slots=8, pages=400)
    names = [pool.ask(0.0, "big", 40, 200) for _ in range(8)]
    names += [pool.ask(0.5, "small", 40, 10) for _ in range(4)]
    shares = order(pool, 1.0, lambda s: s.orders.excess("big"))
    done = order(pool, 1.0, lambda s: s.preempt("big"))
    left = order(pool, 1.0, lambda s: s.orders.excess("big"))
    pool.run()
    assert (shares[0].result.running, shares[0].result.fair) == (8, 4)
    assert done[0].result == 4
    assert left[0].result.may_go == 0
    assert set(outcomes(pool)) == set(names)
    assert set(outcomes(pool).values()) == {"finished"}
    preempted = [e for e in pool.logs(EventRecord) if e.kind == "preempt"]
    assert len(preempted) == 4
    assert all("by an operator" in e.detail and e.cause_tenant is None for e in preempted)
    pool.core.scheduler.check_integrity()


def test_a_tenant_alone_has_no_excess():
    pool = make_pool(("big",), slots=8, pages=400)
    for _ in range(8):
        pool.ask(0.0, "big", 40, 100)
    done = order(pool, 1.0, lambda s: s.preempt("big"))
    pool.run()
    assert done[0].result == 0


def test_preempting_for_ever_preempts_each_request_as_often_as_it_may_be():
    pool = make_pool(("big", "small"), policy="vtc", slots=4, pages=400, preemptions=2)
    names = [pool.ask(0.0, "big", 40, 150) for _ in range(6)]
    names += [pool.ask(0.0, "small", 40, 150) for _ in range(6)]
    for i in range(1, 200):
        order(pool, 0.05 * i, lambda s: s.preempt("big"))
    pool.run()
    assert set(outcomes(pool).values()) == {"finished"}
    assert max(r.preemptions for r in pool.requests()) <= 2
    pool.core.scheduler.check_integrity()


def test_an_operators_abort_ends_one_request_and_says_by_whom():
    pool = make_pool(("a",), slots=2)
    kept, gone = pool.ask(0.0, "a", 10, 100), pool.ask(0.0, "a", 10, 100)
    found = order(pool, 0.3, lambda s: (s.orders.is_live(gone), s.orders.is_live("other")))
    order(pool, 0.3, lambda s: s.abort(gone, "aborted by an operator"))
    pool.run()
    assert found[0].result == (True, False)
    assert outcomes(pool) == {kept: "finished", gone: "aborted"}


# -- adapters


def test_an_unloaded_adapter_serves_whom_it_was_promised_to_then_its_pages_are_back():
    pool = make_pool(("a",), adapters={"x": 40}, slots=2, pages=200)
    names = [pool.ask(0.0, "a", 40, 60, "x") for _ in range(6)]  # four of them wait
    order(pool, 0.5, lambda s: pool.core.let_leave("x", s))
    late = pool.ask(0.9, "a", 20, 5, "x")  # let in a moment before, and on its way
    pool.world.at(60.0, lambda: None)
    pool.run(jumping=False)
    assert {outcomes(pool)[n] for n in (*names, late)} == {"finished"}
    assert pool.core.adapter_key("x") is None
    assert pool.core.scheduler.orders.place("key-x") == "disk"
    assert pool.core.status().free_pages == 200 - pool_cached(pool)
    assert "key-x" in pool.core._transfers.forgotten
    pool.core.scheduler.check_integrity()


def pool_cached(pool):
    """Pages that the prefix cache keeps for whoever repeats a prompt."""
    return pool.core._pool.cached_bytes // PAGE_BYTES


def test_an_unloaded_adapter_leaves_a_worker_that_is_idle():
    pool = make_pool(("a",), adapters={"x": 40})
    pool.ask(0.0, "a", 10, 5, "x")
    order(pool, 5.0, lambda s: pool.core.let_leave("x", s))
    pool.world.at(6.5, lambda: None)
    pool.run()
    assert not pool.core.scheduler.orders.users("key-x")
    assert pool.core.scheduler.orders.place("key-x") == "disk"


def test_an_unloaded_adapter_leaves_though_the_ledgers_timer_is_the_first_to_see_the_instant():
    pool = make_pool(("a",), adapters={"x": 40})
    core = pool.core
    core.between_steps.soon(lambda s: core.let_leave("x", s))
    core.step()
    pool.clock.turn(LATE_S)
    core.tick()
    assert core.wait_for_work(0.0)
    core.step()
    assert core.scheduler.orders.place("key-x") == "disk"
    assert not core.wait_for_work(0.0)


def test_one_of_two_names_for_the_same_bytes_may_go():
    pool = make_pool(("a",), adapters={"x": 10})
    order(pool, 0.0, lambda s: pool.core.take_in(known("twin", 10, content="x"), s))
    order(pool, 0.1, lambda s: pool.core.let_leave("x", s))
    name = pool.ask(5.0, "a", 10, 5, "x")  # by its key: as the twin's requests come
    pool.run()
    assert outcomes(pool)[name] == "finished"
    assert pool.core.adapter_key("twin") == "key-x"


def test_other_content_under_a_name_comes_beside_the_old_which_ends_what_it_began():
    pool = make_pool(("a",), adapters={"x": 10}, slots=1, pages=200)
    old = [pool.ask(0.0, "a", 40, 40, "x") for _ in range(3)]
    order(pool, 0.3, lambda s: pool.core.take_in(known("x", 12, content="x2"), s))
    new = pool.ask(1.0, "a", 40, 5, "x2")
    pool.world.at(60.0, lambda: None)
    pool.run()
    assert {outcomes(pool)[n] for n in (*old, new)} == {"finished"}
    assert pool.core.adapter_key("x") == "key-x2"
    assert pool.core.scheduler.orders.place("key-x") == "disk"
    assert [(a.name, a.adapter) for a in pool.logs(AdapterRecord)] == [("x", "key-x2")]
    pool.core.scheduler.check_integrity()


def test_an_adapter_loaded_while_the_pool_is_exactly_full_waits_for_room_and_hurts_nobody():
    pool = make_pool(("a", "b"), slots=4, pages=64, prefix_cache=False)
    # Four sequences that hold every page of the pool at their end.
    full = [pool.ask(0.0, "a", 200, 55) for _ in range(4)]
    late = []

    def when_full(scheduler):
        if not late and pool.core._pool.free_pages == 0 and scheduler.running == 4:
            pool.core.take_in(known("x", 20), scheduler)
            late.append(pool.ask(pool.clock.now(), "b", 20, 5, "x"))

    for i in range(200):
        order(pool, 0.01 * i, when_full)
    pool.run(jumping=False)
    late = late[0]
    assert {outcomes(pool)[n] for n in full} == {"finished"}
    assert outcomes(pool)[late] == "finished"
    row = next(r for r in pool.requests() if r.request_id == late)
    assert row.wait_adapter_s + row.wait_kv_s + row.wait_slot_s > 0
    assert all(r.preemptions == 0 for r in pool.requests())
    pool.core.scheduler.check_integrity()


def test_more_host_copies_than_may_be_kept_push_out_the_oldest_not_the_new_one():
    pool = make_pool(("a",), adapters={"x": 4, "y": 4}, host_adapters=2)
    order(pool, 0.1, lambda s: pool.core.take_in(known("z", 4), s))
    pool.world.at(1.0, lambda: None)
    name = pool.ask(2.0, "a", 10, 5, "z")
    pool.run()
    assert outcomes(pool)[name] == "finished"
    pool.core.scheduler.check_integrity()


# -- pins


def thrashing(pinned):
    """More adapters than fit, in turn: each load evicts another."""
    pool = make_pool(
        ("a", "b"),
        adapters=dict.fromkeys("xyz", 30),
        pages=100,
        slots=2,
        prefetch=2,
        max_context=128,
    )
    if pinned:
        order(pool, 0.0, lambda s: pool.core.pin({"key-x": "a"}, s))
    for i in range(12):
        pool.ask(1.0 + 1.5 * i, "b", 30, 10, "yz"[i % 2])
    pool.ask(20.0, "a", 30, 10, "x")
    pool.run(jumping=False)
    assert set(outcomes(pool).values()) == {"finished"}
    pool.core.scheduler.check_integrity()
    return next(r for r in pool.requests() if r.tenant == "a")


def test_a_pinned_adapter_is_on_the_device_whoever_else_wants_the_room():
    assert thrashing(pinned=True).adapter_state == "device"
    assert thrashing(pinned=False).adapter_state == "host"


def test_the_end_of_a_pin_makes_it_evictable_again():
    pool = make_pool(("b",), adapters={"x": 60, "y": 60}, pages=100, max_context=128)
    order(pool, 0.0, lambda s: pool.core.pin({"key-x": "b"}, s))
    order(pool, 5.0, lambda s: pool.core.pin({}, s))
    name = pool.ask(6.0, "b", 30, 10, "y")
    pool.run()
    assert outcomes(pool)[name] == "finished"
    assert pool.core.scheduler.orders.held == frozenset()


@settings(max_examples=25, deadline=None)
@given(
    st.sets(st.sampled_from("wxyz")),
    st.lists(
        st.tuples(st.sampled_from("wxyz"), st.integers(1, 100), st.integers(1, 28)), max_size=12
    ),
)
def test_no_pin_keeps_a_request_waiting_for_ever(pins, asks):
    # The bound is the worker's: beside the pins the longest request with the largest adapter fits.
    pool = make_pool(
        ("a",), adapters={"w": 20, "x": 18, "y": 5, "z": 1}, pages=64, slots=4, max_context=128
    )
    most = pool.core.scheduler.orders.most_pinned_pages(20)
    sizes = {"w": 20, "x": 18, "y": 5, "z": 1}
    fits = sum(sizes[p] for p in pins) <= most
    if fits:
        order(pool, 0.0, lambda s: pool.core.pin({"key-" + p: "a" for p in pins}, s))
    for i, (adapter, prompt, out) in enumerate(asks):
        pool.ask(0.01 * i, "a", prompt, out, adapter)
    pool.run()
    assert len(outcomes(pool)) == len(asks)
    assert set(outcomes(pool).values()) <= {"finished"}
    assert most == 64 - 8 - 20
    pool.core.scheduler.check_integrity()


# -- between two steps


def test_an_order_that_fails_is_told_to_whoever_gave_it_and_the_step_goes_on():
    pool = make_pool(("a",))
    name = pool.ask(0.0, "a", 10, 50)

    def fails(scheduler):
        raise EngineError("no")

    orders = order(pool, 0.2, fails)
    pool.run()
    assert str(orders[0].error) == "no"
    assert outcomes(pool)[name] == "finished"


def test_an_order_that_no_step_makes_room_for_is_not_done_later():
    done = []
    between = BetweenSteps(threading.RLock(), lambda: None)
    with pytest.raises(StepStuck, match="nothing was changed"):
        between.do(lambda s: done.append("late"), timeout_s=0.01)
    between.carry_out(None)  # type: ignore[arg-type]
    assert done == []
    assert not between


def test_what_an_operator_did_is_an_event_with_whom_it_is_about():
    pool = make_pool(("a",))
    pool.core.operated("abort request 'r' by op: stuck", tenant="a", request_id="r")
    pool.run(until=1.0)
    event = next(e for e in pool.logs(EventRecord) if e.kind == "admin")
    assert (event.tenant, event.request_id) == ("a", "r")
    assert event.detail == "abort request 'r' by op: stuck"
