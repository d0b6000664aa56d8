"""The bounds of VTC (Sheng et al., OSDI 2024, section 4) over random traces of the toy pool.

All of them hold here as the paper states them, without slack: the toy is the paper's setting. The
worst seen is printed beside the bound (`pytest -s`). Other policies are held to the same measures
to show that they can fail.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduling.policies.counters import WP, WQ
from engine.scheduling.policies.predictors import NoisyOracle
from tests.engine.scheduling.policies import harness
from tests.engine.scheduling.policies.harness import Toy, traffic

scenario = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "tenants": st.integers(2, 6),
        "slots": st.integers(1, 12),
        "tokens": st.integers(60, 600),
        "longest_prompt": st.integers(1, 300),
        "longest_out": st.integers(1, 60),
    }
)


def play(s, steps=120, **rig):
    longest_out = min(s["longest_out"], s["tokens"] // 3)
    longest_prompt = min(s["longest_prompt"], s["tokens"] - longest_out)
    arrivals = traffic(s["seed"], s["tenants"], steps, longest_prompt, longest_out)
    return Toy(arrivals, slots=s["slots"], tokens=s["tokens"], **rig)


def worst_of(measure, times_u, name, examples=80, **rig):
    """The measure over many traces stays within `times_u` U; prints how near it came."""
    worst = [0.0, 0.0, 0.0]

    @settings(max_examples=examples, deadline=None)
    @given(scenario)
    def hold(s):
        trace = play(s, **rig).run()
        seen, bound = measure(trace), times_u * trace.u
        if seen / bound > worst[0]:
            worst[:] = [seen / bound, seen, bound]
        assert seen <= bound * (1 + 1e-9)

    hold()
    print(f"\n{name}: worst {worst[1]:,.0f} of {worst[2]:,.0f} allowed ({worst[0]:.0%})")
    assert worst[0] > 0.02, "a measure that never moves shows nothing"


def test_lemma_4_3_counters_of_waiting_tenants_stay_within_u():
    worst_of(harness.counter_gap, 1, "Lemma 4.3, counters of waiting tenants, U")


def test_theorem_4_4_two_backlogged_tenants_differ_by_at_most_2u_on_every_interval():
    worst_of(harness.service_gap, 2, "Theorem 4.4, service of two backlogged tenants, 2U")


def test_theorem_4_9_a_backlogged_tenant_gets_what_any_other_gets_but_4u():
    worst_of(harness.shortfall, 4, "Theorem 4.9, any tenant above a backlogged one, 4U")


def test_theorem_4_11_a_tenant_at_rest_is_dispatched_before_others_had_2u_each():
    worst_of(harness.served_before_dispatch, 2, "Theorem 4.11, served to each other meanwhile, 2U")


def test_theorem_4_13_a_backlogged_tenant_misses_at_most_5u_of_an_equal_part():
    worst_of(harness.below_equal_part, 5, "Theorem 4.13, missing to an equal part, 5U")


@pytest.mark.parametrize("weights", [{"a": 2.0, "b": 0.5}, {"a": 3.0, "c": 5.0}])
def test_weighted_service_of_backlogged_tenants_differs_by_at_most_2_max_u_over_w(weights):
    worst_of(
        harness.service_gap, 2, f"weighted {weights}, 2 max(U/w)", examples=60, weights=weights
    )


@given(scenario)
def test_every_charge_of_finished_requests_is_prompt_and_output_exactly(s):
    """Bound 7, without aborts (the conformance suite has them): sums are exact, by weight."""
    toy = play(s, weights={"a": 2.0})
    toy.run()
    for tenant in toy.trace.tenants:
        mine = [a for a in toy.arrivals if a[1] == tenant]
        owed = sum(WP * prompt + WQ * out for _, _, prompt, out in mine)
        weight = toy.trace.weights.get(tenant, 1.0)
        assert toy.rig.counters.unlifted(tenant) == pytest.approx(owed / weight, rel=1e-12)


@given(scenario, st.sampled_from(["vtc", "vtc-predicted", "fcfs", "lcf", "round-robin"]))
def test_no_policy_idles_while_its_head_fits(s, policy):
    """Bound 6: after each step the head either does not fit, or there is none."""
    toy = play(s, policy=policy)
    step = toy.step

    def watched():
        step_before = len(toy.rig.running), toy.reserved
        scan = toy.rig.policy.scan()
        head = scan.head()
        scan.close()
        step()
        if head is not None:
            need = head.prompt_tokens + head.ask.max_tokens
            fitted = step_before[0] < toy.slots and step_before[1] + need <= toy.tokens
            assert (head.sequence not in toy.rig.waiting) == fitted

    toy.step = watched
    toy.run()


def flood(policy, **rig):
    """`a` sends short requests all the time; `b` 60 long ones at once, before them."""
    arrivals = [(0, "b", 100, 30)] * 60 + [(i // 4, "a", 5, 5) for i in range(800)]
    return Toy(arrivals, policy=policy, slots=8, tokens=400, **rig).run()


def test_policies_that_count_no_tokens_break_the_bound_of_theorem_4_4():
    assert harness.service_gap(flood("vtc")) <= 2 * flood("vtc").u
    for policy in ("fcfs", "round-robin"):
        trace = flood(policy)
        assert harness.service_gap(trace) > 2 * trace.u, policy


def test_without_the_lift_an_idle_tenant_takes_the_pool_when_it_comes_back():
    """`a` is served alone for long; then `b` comes with a flood. LCF pays `b` its idle time."""
    arrivals = [(i, "a", 20, 10) for i in range(1500)]
    arrivals += [(1200, "b", 20, 10)] * 300
    for policy, keeps in (("vtc", True), ("vtc-predicted", True), ("lcf", False)):
        trace = Toy(arrivals, policy=policy, slots=4, tokens=120).run()
        assert (harness.shortfall(trace) <= 4 * trace.u) is keeps, policy


def test_deficit_round_robin_shares_tokens_within_a_quantum_and_u():
    """Not VTC's bound but its own: two backlogged tenants differ by at most a quantum and what
    each may have charged beyond its balance, U, both ways."""
    trace = flood("deficit-round-robin")
    assert harness.service_gap(trace) <= 2 * (trace.u + 64)


def test_knowing_the_lengths_narrows_the_gap():
    """Algorithm 3: what is charged at admission is not found out later. Two tenants that ask
    alike but answer at different length; the worst difference of service, by what is known."""
    arrivals = [(i % 3, "ab"[i % 2], 10, 5 if i % 2 else 60) for i in range(400)]
    gaps = {}
    for noise in (None, 0.5, 0.0):
        oracle = None if noise is None else NoisyOracle(lambda r: r.ask.max_tokens, noise, seed=3)
        policy = "vtc" if noise is None else "vtc-predicted"
        trace = Toy(arrivals, policy=policy, slots=16, tokens=2000, predictor=oracle).run()
        gaps[noise] = harness.service_gap(trace)
    print(f"\nservice gap: VTC {gaps[None]:,.0f}, ±50% {gaps[0.5]:,.0f}, oracle {gaps[0.0]:,.0f}")
    assert gaps[0.0] < 0.7 * gaps[None]
    assert gaps[0.5] < 0.7 * gaps[None]
