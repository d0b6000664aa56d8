"""The two policies that go round, against a ring with a pointer as the textbook has it."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from engine.config import PolicyKnobs
from tests.engine.scheduling.policies.rig import Rig

backlog = st.dictionaries(
    st.sampled_from("abcde"), st.lists(st.integers(1, 300), min_size=1, max_size=12), min_size=1
)
weights = st.dictionaries(st.sampled_from("abcde"), st.sampled_from([0.5, 1.0, 2.0, 4.0]))


def admitted_in_order(rig):
    """(tenant, prompt) of everybody who waits, admitted one after another."""
    order, scan = [], rig.policy.scan()
    while (head := scan.head()) is not None:
        rig.admit(head)
        scan.admitted()
        order.append((head.tenant, head.prompt_tokens))
    scan.close()
    return order


def filled(name, asked, **kw):
    rig = Rig(name, **kw)
    for tenant, prompts in asked.items():
        for prompt in prompts:
            rig.arrive(tenant, prompt, 1)
    return rig


@given(backlog, weights)
def test_deficit_round_robin_is_the_ring_with_deficits_that_may_go_negative(asked, weights):
    ring, deficit, expected = deque(asked), dict.fromkeys(asked, 0.0), []
    left = {t: deque(prompts) for t, prompts in asked.items()}
    while ring:
        tenant = ring.popleft()
        deficit[tenant] += 100 * weights.get(tenant, 1.0)
        while left[tenant] and deficit[tenant] > 0:
            prompt = left[tenant].popleft()
            deficit[tenant] -= prompt
            expected.append((tenant, prompt))
        if left[tenant]:
            ring.append(tenant)
    knobs = PolicyKnobs(quantum_tokens=100)
    rig = filled("deficit-round-robin", asked, weights=weights, knobs=knobs)
    assert admitted_in_order(rig) == expected


@given(backlog)
def test_round_robin_is_the_ring(asked):
    ring, expected = deque(asked), []
    left = {t: deque(prompts) for t, prompts in asked.items()}
    while ring:
        tenant = ring.popleft()
        expected.append((tenant, left[tenant].popleft()))
        if left[tenant]:
            ring.append(tenant)
    assert admitted_in_order(filled("round-robin", asked)) == expected


def test_a_weight_of_two_is_two_requests_a_round():
    rig = filled("round-robin", {"a": [5] * 6, "b": [5] * 3}, weights={"a": 2.0})
    assert "".join(t for t, _ in admitted_in_order(rig)) == "abaabaaba"


def test_round_robin_gives_as_many_requests_to_those_who_ask_for_a_hundred_times_as_much():
    rig = filled("round-robin", {"long": [500] * 10, "short": [5] * 10})
    first = admitted_in_order(rig)[:10]
    assert sum(1 for t, _ in first if t == "long") == 5


def test_debt_is_kept_while_nothing_waits_and_credit_is_not():
    rig = Rig("deficit-round-robin", knobs=PolicyKnobs(quantum_tokens=100))
    rig.admit(rig.arrive("debtor", 1000, 5))
    for _ in range(5):
        scan = rig.policy.scan()
        rig.arrive("saver", 10, 5)
        rig.admit(scan.head())
        scan.admitted()
    for _ in range(30):
        rig.arrive("other", 50, 5)
    rig.arrive("debtor", 10, 5)
    rig.arrive("saver", 10, 5)
    order = [t for t, _ in admitted_in_order(rig)]
    assert order.index("saver") < 4
    assert order.index("debtor") > 15
