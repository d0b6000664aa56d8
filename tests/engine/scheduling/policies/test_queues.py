"""Order inside a tenant: first come first, or a fair share each group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.policies.counters import StepClock
from engine.scheduling.policies.queues import Line, Queues, SharedQueue
from tests.engine.scheduling.policies.rig import Rig, make_request


def test_a_request_that_returns_takes_its_place_by_arrival():
    line = Line()
    asked = [make_request(i, "a", 5, 5) for i in range(5)]
    for request in asked[1:4]:
        line.append(request)
    line.insert(asked[0])
    line.insert(asked[4])
    line.remove(asked[2])
    line.insert(asked[2])
    assert list(line) == asked
    assert (line.head(), line.first, len(line)) == (asked[0], 0, 5)


def test_what_is_not_in_line_cannot_leave_it():
    with pytest.raises(KeyError):
        Line().remove(make_request(3, "a", 5, 5))
    with pytest.raises(KeyError):
        Queues(StepClock()).remove(make_request(3, "a", 5, 5))


@given(st.lists(st.tuples(st.sampled_from(["pass", "take", "other", "come"]), st.integers(0, 50))))
def test_a_walk_sees_everybody_left_once_whoever_leaves_on_the_way(moves):
    line, out, seen, come = Line(), [], [], 11
    for i in range(12):
        line.append(make_request(i, "a", 5, 5))
    walk = line.walk()
    for kind, at in moves:
        head = walk.head()
        if head is None:
            break
        assert head in line
        if kind == "pass":
            seen.append(head.sequence)
            walk.passed()
        elif kind == "take":
            line.remove(head)
            out.append(head)
            walk.admitted()
        elif kind == "other":
            other = list(line)[at % len(line)]
            line.remove(other)
            out.append(other)
        else:
            come += 1
            line.append(make_request(come, "a", 5, 5))
    while (head := walk.head()) is not None:
        seen.append(head.sequence)
        walk.passed()
    gone = {r.sequence for r in out}
    assert seen == sorted(set(seen))
    assert {r.sequence for r in line} - set(seen) == set()
    assert set(range(12)) - gone <= set(seen)


def admitted_groups(rig, n):
    groups, scan = [], rig.policy.scan()
    for _ in range(n):
        head = scan.head()
        rig.admit(head)
        scan.admitted()
        groups.append(head.group)
    scan.close()
    return groups


@pytest.mark.parametrize("policy", ["vtc", "fcfs"])
def test_a_flood_under_one_key_does_not_starve_the_tenants_other_keys(policy):
    rig = Rig(policy, share_by={"a": "key"})
    for _ in range(20):
        rig.arrive("a", 50, 10, "greedy")
    for _ in range(4):
        rig.arrive("a", 50, 10, "modest")
    assert admitted_groups(rig, 8).count("modest") == 4


def test_without_sharing_a_tenants_requests_go_as_they_came():
    rig = Rig("vtc", share_by={"a": "none"})
    for i in range(10):
        rig.arrive("a", 50, 10, "xy"[i > 7])
    assert admitted_groups(rig, 10) == ["x"] * 8 + ["y"] * 2


def test_tokens_generated_count_inside_the_tenant_too():
    """Two adapters, same prompts; the one that answers at length gets fewer requests in."""
    rig = Rig("vtc", share_by={"a": "adapter"})
    for i in range(12):
        rig.arrive("a", 10, 500 if i % 2 == 0 else 1, "long" if i % 2 == 0 else "short")
    assert admitted_groups(rig, 2) == ["long", "short"]
    for request in list(rig.running.values()):
        rig.first_token(request)
    rig.step(20)
    assert admitted_groups(rig, 4) == ["short"] * 4
    assert isinstance(rig.queues["a"], SharedQueue)
    assert rig.queues["a"].counter("long") == 10 + 2 * 21


def test_a_groups_counter_goes_on_while_nothing_of_the_tenant_waits():
    rig = Rig("vtc", share_by={"a": "key"})
    first = rig.arrive("a", 10, 100, "x")
    rig.admit(first)
    rig.first_token(first)
    assert "a" not in rig.queues
    rig.step(30)
    rig.arrive("a", 10, 5, "x")
    assert rig.queues["a"].counter("x") == 10 + 2 * 31


def test_the_front_says_whether_a_tenant_begins_or_ends_to_wait():
    queues = Queues(StepClock())
    one, two = make_request(0, "a", 5, 5), make_request(1, "a", 5, 5)
    assert queues.append(one) is True
    assert queues.append(two) is False
    assert queues.waiting == 2
    assert queues.remove(one) is False
    assert queues.remove(two) is True
    assert dict(queues) == {}
    assert queues.insert(one) is True
    assert list(queues.of("a")) == [one]
