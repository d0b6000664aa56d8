"""Counters of several replicas that tell each other what they charged: nothing is lost, nothing
counts twice, and nobody banks credit by asking for nothing here while others are served there."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.scheduling.policies.counters import WP, WQ, Counters

TENANTS = "abc"

op = st.one_of(
    st.tuples(st.just("prompt"), st.integers(0, 2), st.sampled_from(TENANTS), st.integers(1, 99)),
    st.tuples(st.just("refund"), st.integers(0, 2), st.sampled_from(TENANTS), st.integers(1, 9)),
    st.tuples(st.just("output"), st.integers(0, 2), st.sampled_from(TENANTS), st.integers(-3, 9)),
    st.tuples(st.just("decode"), st.integers(0, 2), st.sampled_from(TENANTS), st.integers(0, 3)),
    st.tuples(st.just("steps"), st.integers(0, 2), st.just("a"), st.integers(1, 50)),
    st.tuples(st.just("tell"), st.integers(0, 2), st.just("a"), st.just(0)),
)


def replicas(count: int, weights: dict[str, float] | None = None) -> list[Counters]:
    made = [Counters(weights or {}) for _ in range(count)]
    for counters in made:
        counters.share()
    return made


def tell(all_of_them: list[Counters], number: int) -> None:
    charges = all_of_them[number].take_charges()
    for other in all_of_them:
        if other is not all_of_them[number]:
            other.charged_elsewhere(charges)


# Thirds do not add up to a whole again: what was left was told as service, and asked to be told.
@example(
    [("prompt", 0, "a", 1)] * 2
    + [("tell", 0, "a", 0)]
    + [("prompt", 0, "a", 1)] * 4
    + [("prompt", 1, "a", 1), ("decode", 0, "a", 1)],
    {"a": 3.0, "b": 0.5},
)
@given(st.lists(op, max_size=60), st.sampled_from([{}, {"a": 3.0, "b": 0.5}]))
def test_when_all_have_told_every_replica_holds_what_all_charged(ops, weights):
    pool = replicas(3, weights)
    charged = dict.fromkeys(TENANTS, 0.0)
    rows = {(n, t): 0 for n in range(3) for t in TENANTS}
    for kind, number, tenant, amount in ops:
        counters = pool[number]
        if kind == "prompt":
            counters.charge_prompt(tenant, amount)
            charged[tenant] += WP * amount
        elif kind == "refund":
            counters.refund_prompt(tenant, amount)
            charged[tenant] -= WP * amount
        elif kind == "output":
            counters.charge_output(tenant, amount)
            charged[tenant] += WQ * amount
        elif kind == "decode":
            counters.decoding(tenant, amount - rows[number, tenant])
            rows[number, tenant] = amount
        elif kind == "steps":
            counters.stepped(amount)
            for t in TENANTS:
                charged[t] += WQ * rows[number, t] * amount
        else:
            tell(pool, number)
    for number in range(3):
        tell(pool, number)
    for counters in pool:
        assert counters.take_charges() == {}, "all has been told, and is told once"
        for t in TENANTS:
            held = counters.unlifted(t) * counters.weight(t)
            assert held == pytest.approx(charged[t], rel=1e-9, abs=1e-6)
    for t in TENANTS:
        own = sum(counters.service(t) for counters in pool)
        assert own == pytest.approx(charged[t], rel=1e-9, abs=1e-6)


def test_what_is_told_is_service_and_counts_by_weight_where_it_arrives():
    here, there = replicas(2, {"a": 4.0})
    here.charge_prompt("a", 100)
    here.charge_output("a", 10)
    assert here.take_charges() == {"a": 120.0}
    there.charged_elsewhere({"a": 120.0})
    assert there.value("a") == 30.0
    assert there.service("a") == 0.0


def test_a_change_of_weight_is_no_service():
    counters, _ = replicas(2, {"a": 2.0})
    counters.charge_prompt("a", 100)
    counters.reweigh("a", 5.0, owed_tokens=40)
    counters.charge_prompt("a", 10)
    assert counters.take_charges() == {"a": pytest.approx(110.0)}
    assert counters.take_charges() == {}


def test_who_comes_to_an_empty_queue_is_lifted_to_whoever_is_served_elsewhere():
    here, _ = replicas(2)
    here.charged_elsewhere({"busy": 500.0, "busier": 900.0})
    here.enters("idle")
    assert here.value("idle") == 500.0, "the least of those that are served there"
    here.leaves("idle")
    here.enters("busier")
    assert here.lift("busier") == 0.0


def test_who_is_served_elsewhere_is_lifted_to_nobody_of_another_tier():
    here = Counters({}, {"gold": 1})
    here.share()
    here.charged_elsewhere({"gold": 500.0})
    here.enters("plain")
    assert here.value("plain") == 0.0


def test_what_was_given_back_elsewhere_lets_a_tenant_that_waits_here_go_first():
    here, _ = replicas(2)
    here.charged_elsewhere({"a": 100.0, "b": 60.0})
    here.enters("b")
    here.enters("a")
    assert here.smallest() == 60.0
    assert here.charged_elsewhere({"a": -70.0}) == ["a"]
    assert here.smallest() == 30.0


def test_counters_that_share_with_nobody_have_nothing_to_tell():
    counters = Counters({})
    counters.charge_prompt("a", 5)
    assert counters.take_charges() == {}
