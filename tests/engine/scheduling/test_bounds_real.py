"""The bounds of VTC on the real scheduler in virtual time: chunked prefill, prefix cache, aborts,
preemption, bypass and adapters on their way. (On the paper's own setting: policies/test_bounds.)

Which theorem holds how:

* Chunked prefill and the prefix cache change nothing. The prompt (less what is cached) is charged
  at admission, and M is what the running batch may hold: all five hold as they stand.
* An abort gives back what was charged and not computed, at most M of prompts at once. A counter
  may fall by wp·M below the others': every bound gets that much slack a U.
* Preemption: one whose pages were taken comes back without a lift, its counter as it was when the
  others were served. Slack: what was served in the longest life of a request after its first step;
  and, for a head short of pages, what the bounded number of those that passed it were charged.
* An adapter on its way: its tenant is passed by, and its counter stands still. No multiple of U
  bounds that. Slack: what was served in all the time a tenant's requests waited for adapters. What
  holds without slack: every admission is the argmin over the waiting that may be admitted.

The worst seen is printed beside the bound (`pytest -s`). M is the most the batch held in the run.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.scheduling.policies.counters import WP, WQ
from engine.scheduling.request import State
from engine.simulation.world import simulate
from tests.engine.scheduling.policies import harness
from tests.engine.scheduling.policies.harness import Asked, Moment, Trace, traffic
from tests.engine.worlds import make_pool

MEASURES = {
    "Lemma 4.3": (harness.counter_gap, 1),
    "Theorem 4.4": (harness.service_gap, 2),
    "Theorem 4.9": (harness.shortfall, 4),
    "Theorem 4.11": (harness.served_before_dispatch, 2),
    "Theorem 4.13": (harness.below_equal_part, 5),
}


def watch(pool, weights) -> Trace:
    """A trace of the pool, filled as it runs: a moment after each arrival, admission, plan and
    settling."""
    scheduler, trace = pool.core.scheduler, Trace(weights=weights)
    waiting, counters = scheduler._waiting, scheduler._waiting.counters
    add, take_out, plan, settle = waiting.add, waiting.take_out, scheduler.plan, scheduler.settle
    tenants = set()

    def moment():
        batch = scheduler._running.sequences.values()
        held = sum(r.prompt_tokens + r.ask.max_tokens for r in batch)
        trace.batch_tokens = max(trace.batch_tokens, held)
        service = {t: counters.unlifted(t) * counters.weight(t) for t in tenants}
        values = {t: counters.value(t) for t in waiting.queues}
        trace.moments.append(Moment(values, service, pool.clock.now()))
        return len(trace.moments) - 1

    def added(request):
        runs = any(r.tenant == request.tenant for r in scheduler._running.sequences.values())
        rested = not runs and request.tenant not in waiting.queues
        add(request)
        tenants.add(request.tenant)
        trace.asked[request.ask.request_id] = Asked(request.tenant, moment(), rested)

    def taken_out(request):
        take_out(request)
        asked = trace.asked[request.ask.request_id]
        if request.state is State.WAITING and asked.admitted is None:
            asked.admitted = moment()

    def planned(*args):
        result = plan(*args)
        moment()
        return result

    def settled(*args):
        result = settle(*args)
        moment()
        return result

    waiting.add, waiting.take_out = added, taken_out
    scheduler.plan, scheduler.settle = planned, settled
    return trace


def play(seed, *, aborts=False, adapters=None, weights=None, sizes=(150, 25), **limits):
    limits = {"slots": 4, "pages": 4000, "prefix_cache": False, **limits}
    weights = weights or {}
    pool = make_pool(tuple("abcd"), weights=weights, adapters=adapters, **limits)
    arrivals = traffic(seed, 4, 60, *sizes)
    trace = watch(pool, weights)
    for i, (step, tenant, prompt, out) in enumerate(arrivals):
        adapter = None if adapters is None else sorted(adapters)[i % len(adapters)]
        at_s = step * 0.012
        name = pool.ask(at_s, tenant, prompt, out, adapter)
        if aborts and i % 3 == 0:
            pool.world.at(at_s + 0.05 * (i % 9), lambda name=name: pool.core.abort(name))
    trace.longest_prompt = max(a[2] for a in arrivals)
    return trace, pool


def run(pool):
    simulate(pool.core, pool.world, jumping=False)
    pool.batches += pool.core.ledger.collect(pool.clock.now())


def worst_of(name, measures, slack_of, examples=25, **setting):
    """Every measure stays within its multiple of U and the slack, over many traces."""
    worst = dict.fromkeys(measures, (0.0, 0.0, 0.0))

    @settings(max_examples=examples, deadline=None)
    @given(st.integers(0, 10**6))
    def hold(seed):
        trace, pool = play(seed, **setting)
        run(pool)
        slack = slack_of(trace, pool)
        for m in measures:
            measure, times = MEASURES[m]
            seen, bound = measure(trace), times * (trace.u + slack)
            worst[m] = max(worst[m], (seen / bound, seen, bound))
            assert seen <= bound * (1 + 1e-9), m

    hold()
    print(f"\n{name}:")
    for m, (part, seen, bound) in worst.items():
        print(f"  {m}: worst {seen:,.0f} of {bound:,.0f} allowed ({part:.0%})")
    assert worst["Lemma 4.3"][1] > 0


def none(trace, pool):
    return 0.0


@pytest.mark.parametrize("step_tokens", [16, 64, 512])
def test_all_bounds_hold_as_they_stand_with_chunked_prefill(step_tokens):
    worst_of(f"chunks of {step_tokens}", MEASURES, none, step_tokens=step_tokens)


def test_all_bounds_hold_as_they_stand_with_the_prefix_cache():
    worst_of("prefix cache", MEASURES, none, prefix_cache=True)


def test_the_bounds_hold_by_weight_on_the_real_scheduler():
    measures = [m for m in MEASURES if m != "Theorem 4.13"]
    worst_of("weights 2 and 0.5", measures, none, weights={"a": 2.0, "b": 0.5})


def test_aborts_add_no_more_than_the_prompts_they_give_back():
    worst_of("aborts", MEASURES, lambda t, pool: WP * t.batch_tokens, aborts=True, slots=8)


def lives_and_bypasses(trace, pool):
    lives = [r.ended - r.first_scheduled for r in pool.requests() if r.first_scheduled is not None]
    longest = max(lives)
    charges = [WP * r.prompt_tokens + WQ * r.output_tokens for r in pool.requests()]
    return harness.most_served_within(trace, longest) + 8 * max(charges)


def test_preemption_and_bypass_add_no_more_than_was_served_in_a_requests_life():
    tight = {"pages": 14, "sizes": (60, 60), "slots": 6}
    preempted = 0
    for seed in range(10):
        pool = play(seed, **tight)[1]
        run(pool)
        preempted += sum(e.preemptions for e in pool.engine())
    assert preempted > 10, "a setting in which nobody is preempted shows nothing"
    worst_of("preemption", MEASURES, lives_and_bypasses, **tight)


ADAPTERS = {f"x{i}": 6 for i in range(8)}


def adapter_waits(trace, pool):
    waits = {}
    for r in pool.requests():
        waits[r.tenant] = waits.get(r.tenant, 0.0) + r.wait_adapter_s + r.rewait_adapter_s
    return harness.most_served_within(trace, max(waits.values()))


def test_adapters_on_their_way_add_no_more_than_was_served_while_they_were_waited_for():
    worst_of("adapters", MEASURES, adapter_waits, adapters=ADAPTERS, pages=120)


@settings(max_examples=25, deadline=None)
@example(343, ADAPTERS)  # seventeen of a tenant's wait for adapters before one that may begin
@given(st.integers(0, 10**6), st.sampled_from([None, ADAPTERS]))
def test_every_admission_is_the_argmin_over_the_waiting_that_may_be_admitted(seed, adapters):
    """Bound 6. Who may: pages are plenty, so whoever has a request whose adapter is there."""
    _, pool = play(seed, adapters=adapters, pages=4000 if adapters is None else 150)
    scheduler = pool.core.scheduler
    waiting, residency = scheduler._waiting, scheduler._residency
    take_out, seen = waiting.take_out, []

    def may(request):
        key = request.ask.adapter
        return key is None or residency.place(key).value == "device"

    def taken_out(request):
        if request.state is State.WAITING:
            own = waiting.counters.value(request.tenant)
            others = [t for t, q in waiting.queues.items() if any(may(r) for r in q)]
            seen.append(own)
            assert own <= min(waiting.counters.value(t) for t in others) + 1e-9
        take_out(request)

    waiting.take_out = taken_out
    run(pool)
    assert len(seen) == len(pool.requests())


@pytest.mark.parametrize(("policy", "keeps"), [("vtc", True), ("fcfs", False)])
def test_a_flood_breaks_the_bound_of_theorem_4_4_under_fcfs_only(policy, keeps):
    pool = make_pool(tuple("ab"), policy=policy, slots=4, pages=4000, prefix_cache=False)
    trace = watch(pool, {})
    for _ in range(60):
        pool.ask(0.0, "b", 100, 30)
    for i in range(100):
        pool.ask(0.001 * i, "a", 20, 10)
    run(pool)
    trace.longest_prompt = 100
    assert (harness.service_gap(trace) <= 2 * trace.u) is keeps
