"""The counters by themselves: the lift in both branches, charges by weight, rates, refunds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.policies.counters import WP, WQ, Counters


def waiting(counters, *tenants):
    for tenant in tenants:
        counters.enters(tenant)


def test_the_lift_takes_the_smallest_waiting_counter():
    counters = Counters({})
    waiting(counters, "a", "b")
    counters.charge_prompt("a", 100)
    counters.charge_prompt("b", 60)
    waiting(counters, "c")
    assert counters.value("c") == 60
    assert counters.unlifted("c") == 0
    assert counters.lift("c") == 60
    assert counters.take_lifts() == {"c": 1}
    assert counters.take_lifts() == {}


def test_when_nobody_waits_the_lift_takes_the_counter_of_whom_left_last():
    counters = Counters({})
    waiting(counters, "a", "b")
    counters.charge_prompt("a", 100)
    counters.charge_prompt("b", 60)
    for tenant in "ba":
        counters.left_queue(tenant)
        counters.leaves(tenant)
    assert counters.smallest() is None
    waiting(counters, "d")
    assert counters.value("d") == 100
    assert counters.take_lifts() == {"d": 1}


def test_a_lift_never_lowers_and_the_first_of_all_is_not_lifted():
    counters = Counters({})
    waiting(counters, "a")
    assert counters.take_lifts() == {}
    counters.left_queue("a")
    counters.leaves("a")
    counters.charge_prompt("a", 50)
    waiting(counters, "b")
    counters.charge_prompt("b", 3)
    counters.charge_output("a", 100)
    waiting(counters, "a")
    assert counters.value("a") == 250


def test_a_return_is_not_lifted_but_stands_among_the_waiting():
    counters = Counters({})
    waiting(counters, "a")
    counters.charge_prompt("a", 100)
    counters.returns("b")
    assert counters.value("b") == 0
    assert counters.smallest() == 0
    assert counters.take_lifts() == {}


def test_lifts_look_at_the_tenants_own_tier():
    """Else `starved`, whose counter stands still behind the first tier, would let `idle` bank what
    its own kind was served meanwhile."""
    counters = Counters({}, {"starved": 1})
    waiting(counters, "starved", "busy")
    counters.charge_prompt("busy", 1000)
    waiting(counters, "idle")
    assert counters.value("idle") == 1000
    assert counters.smallest() == 0
    assert counters.smallest(0) == 1000
    assert counters.smallest(7) is None


def test_charges_are_divided_by_weight():
    counters = Counters({"a": 4.0})
    counters.charge_prompt("a", 100)
    counters.charge_output("a", 10)
    assert counters.value("a") == (WP * 100 + WQ * 10) / 4
    assert counters.prompt_charge("a", 100) == 25
    assert counters.weight("b") == 1.0


def test_decoding_rows_are_charged_by_the_steps_that_pass():
    counters = Counters({"a": 2.0})
    counters.decoding("a", 3)
    counters.stepped(5)
    counters.decoding("a", -1)
    counters.stepped(2)
    counters.decoding("a", -2)
    counters.stepped(100)
    assert counters.value("a") == WQ * (3 * 5 + 2 * 2) / 2


def test_a_weight_of_three_leaves_no_rest_of_a_rate():
    counters = Counters({"a": 3.0})
    for by in (1, 1, 1, -1, -1, -1):
        counters.decoding("a", by)
    before = counters.value("a")
    counters.stepped(10**9)
    assert counters.value("a") == before


def test_a_refund_brings_the_smallest_down():
    counters = Counters({})
    waiting(counters, "a", "b")
    counters.charge_prompt("a", 100)
    counters.charge_prompt("b", 60)
    assert counters.smallest() == 60
    counters.refund_prompt("a", 70)
    assert counters.smallest() == 30
    counters.leaves("a")
    assert counters.smallest() == 60


event = st.tuples(
    st.sampled_from(["in", "back", "out", "prompt", "refund", "token", "rows", "step"]),
    st.sampled_from("abc"),
    st.integers(1, 9),
)


@given(st.lists(event, max_size=80))
def test_the_smallest_is_the_minimum_over_the_waiting_after_any_history(events):
    counters, inside = Counters({"a": 2.0}), set()
    for kind, tenant, n in events:
        if kind == "in" and tenant not in inside:
            counters.enters(tenant)
            inside.add(tenant)
        elif kind == "back" and tenant not in inside:
            counters.returns(tenant)
            inside.add(tenant)
        elif kind == "out" and tenant in inside:
            counters.left_queue(tenant)
            counters.leaves(tenant)
            inside.discard(tenant)
        elif kind == "prompt":
            counters.charge_prompt(tenant, n)
        elif kind == "refund":
            counters.refund_prompt(tenant, n)
        elif kind == "token":
            counters.charge_output(tenant, n - 4)
        elif kind == "rows":
            counters.decoding(tenant, n)
        elif kind == "step":
            counters.stepped(n)
        expected = min((counters.value(t) for t in inside), default=None)
        assert counters.smallest() == pytest.approx(expected)
