"""Every policy against a twin that recomputes everything from scratch, through anything that can
happen to requests; then what all of them promise, one claim a test."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import PolicyKnobs
from engine.errors import EngineError
from engine.scheduling.policies import POLICIES, make_policy
from engine.scheduling.policies.counters import Counters
from engine.scheduling.policies.queues import Queues
from tests.engine.scheduling.policies.rig import Rig
from tests.engine.scheduling.policies.twin import Twin

KNOBS = PolicyKnobs(quantum_tokens=64, first_prediction_tokens=6)
NAMES = sorted(POLICIES)
TENANTS = "abcd"

op = st.one_of(
    st.tuples(
        st.just("arrive"),
        st.sampled_from(TENANTS),
        st.integers(1, 60),
        st.integers(1, 20),
        st.sampled_from(["", "x", "y"]),
    ),
    st.tuples(st.just("scan"), st.text("aap", max_size=8)),
    st.tuples(st.just("look"), st.text("sp", max_size=8)),
    st.tuples(st.just("step"), st.integers(1, 9)),
    st.tuples(st.sampled_from(["abort", "preempt", "chunk"]), st.integers(0, 1000)),
    st.tuples(st.just("token"), st.integers(0, 1000)),
    st.tuples(st.just("elsewhere"), st.sampled_from(TENANTS), st.sampled_from([-45, -8, 13, 60])),
)
setup = st.fixed_dictionaries(
    {
        "weights": st.sampled_from([{}, {"a": 2.0, "b": 0.5}]),
        "tiers": st.sampled_from([{}, {"a": 1}, {"a": 0, "b": 1, "c": 1, "d": 2}]),
        "share_by": st.sampled_from([{}, {"a": "key"}, {"a": "adapter", "b": "key"}]),
    }
)


class Both:
    """The policy and its twin, told the same; any difference is a failure."""

    def __init__(self, name, **setup):
        self.rig = Rig(name, knobs=KNOBS, **setup)
        self.twin = Twin(name, knobs=KNOBS, **setup)

    def do(self, op):
        rig, twin, (kind, *rest) = self.rig, self.twin, op
        if kind == "arrive":
            twin.arrive(rig.arrive(*rest))
        elif kind == "scan":
            self.scan(rest[0])
        elif kind == "look":
            self.look(rest[0])
        elif kind == "step":
            twin.step(*rig.step(rest[0]))
        elif kind == "elsewhere":
            rig.elsewhere(*rest)
            twin.elsewhere(*rest)
        elif kind == "switch":
            rig.switch(rest[0])
            twin.switch(rest[0])
        elif kind == "abort" and (r := pick({**rig.waiting, **rig.running}, rest[0])):
            twin.abort(r, rig.abort(r))
        elif kind == "preempt" and (r := pick(rig.running, rest[0])):
            rig.preempt(r)
            twin.preempt(r)
        elif kind == "chunk" and (r := pick(self.filling(), rest[0])):
            rig.compute(r, min(5, r.length - r.computed - 1))
        elif kind == "token" and (r := pick(self.filling(), rest[0])):
            twin.first_token(r, rig.first_token(r))
        self.same()

    def filling(self):
        return {s: r for s, r in self.rig.running.items() if s not in self.rig.decoding}

    def scan(self, decisions):
        scan, gone = self.rig.policy.scan(), []
        for decision in decisions:
            head = scan.head()
            assert head is self.twin.next(gone)
            assert scan.head() is head, "asking twice changes nothing"
            if head is None:
                break
            if decision == "a":
                self.rig.admit(head)
                self.twin.admit(head)
                scan.admitted()
            else:
                gone.append(head)
                scan.passed()
        scan.close()

    def look(self, decisions):
        scan, gone, supposed = self.rig.policy.scan(), [], []
        for decision in decisions:
            head = scan.head()
            assert head is self.twin.next(gone, supposed)
            if head is None:
                break
            gone.append(head)
            if decision == "s":
                supposed.append(head)
                scan.supposed()
            else:
                scan.passed()
        scan.close()

    def same(self):
        rig, twin = self.rig, self.twin
        for tenant in TENANTS:
            assert rig.counters.value(tenant) == twin.value.get(tenant, 0.0)
            assert rig.counters.unlifted(tenant) == twin.unlifted.get(tenant, 0.0)
        waiting = {r.tenant for r in twin.waiting}
        smallest = min((twin.value.get(t, 0.0) for t in waiting), default=None)
        assert rig.counters.smallest() == smallest
        assert set(rig.queues) == waiting
        assert rig.queues.waiting == len(twin.waiting)
        scan = rig.policy.scan()
        assert scan.head() is twin.next()
        scan.close()

    def drain(self):
        """Whoever waits, in order; nothing lost, nothing twice."""
        expected = {r.sequence for r in self.twin.waiting}
        seen = []
        while self.twin.waiting:
            before = self.rig.policy.scan()
            seen.append(before.head().sequence)
            before.close()
            self.scan("a")
        assert sorted(seen) == sorted(expected)


def pick(requests, at):
    return list(requests.values())[at % len(requests)] if requests else None


def long_life(draw: Random, exchange: bool, elsewhere: bool = False):
    """Many operations, mixed so that queues fill, requests run and some return. `elsewhere`: other
    replicas charge tenants, and give back, in between."""
    for _ in range(150):
        kind = draw.choices(
            [
                *("arrive", "scan", "look", "step", "abort", "preempt", "chunk", "token"),
                *("switch", "elsewhere"),
            ],
            [6, 5, 2, 3, 1, 2, 1, 5, 1 if exchange else 0, 2 if elsewhere else 0],
        )[0]
        if kind == "arrive":
            tenant, group = draw.choice(TENANTS), draw.choice(["", "x", "y"])
            yield kind, tenant, draw.randint(1, 60), draw.randint(1, 20), group
        elif kind == "scan":
            yield kind, "".join(draw.choices("ap", [3, 1], k=draw.randint(1, 8)))
        elif kind == "look":
            yield kind, "".join(draw.choices("sp", [3, 1], k=draw.randint(1, 8)))
        elif kind == "step":
            yield kind, draw.randint(1, 12)
        elif kind == "switch":
            yield kind, draw.choice(NAMES)
        elif kind == "elsewhere":
            yield kind, draw.choice(TENANTS), draw.choice([-45, -8, 13, 60])
        else:
            yield kind, draw.randint(0, 1000)


SETUPS = [
    {},
    {"weights": {"a": 2.0, "b": 0.5}},
    {"tiers": {"a": 0, "b": 1, "c": 1, "d": 2}},
    {"share_by": {"a": "adapter", "b": "key", "c": "none"}},
    {"weights": {"a": 4.0}, "tiers": {"d": -1}, "share_by": {"a": "key"}},
]


@pytest.mark.parametrize("setup", SETUPS, ids=["plain", "weights", "tiers", "groups", "all"])
@pytest.mark.parametrize("name", NAMES)
def test_a_policy_and_its_twin_agree_on_every_head_and_every_counter(name, setup):
    for seed in range(12):
        both = Both(name, **setup)
        for one in long_life(Random(seed), exchange=False, elsewhere=seed % 2 == 1):
            both.do(one)
        both.drain()
        assert both.rig.counters.take_lifts() == both.twin.lifts


@pytest.mark.parametrize("setup", SETUPS, ids=["plain", "weights", "tiers", "groups", "all"])
def test_a_policy_may_be_exchanged_at_any_point(setup):
    for seed in range(40):
        both = Both("vtc", **setup)
        for one in long_life(Random(seed), exchange=True):
            both.do(one)
        both.drain()


@pytest.mark.parametrize("name", NAMES)
@given(setup=setup, ops=st.lists(op, max_size=40))
def test_no_small_case_tells_a_policy_from_its_twin(name, setup, ops):
    both = Both(name, **setup)
    for one in ops:
        both.do(one)
    both.drain()


@pytest.mark.parametrize("name", NAMES)
def test_a_scan_reaches_everybody_who_waits(name):
    """Work-conserving: no policy holds back a request while others are merely passed by."""
    rig = Rig(name, tiers={"c": 1}, share_by={"b": "key"})
    asked = [rig.arrive("abc"[i % 3], 10 + i, 5, "xy"[i % 2]) for i in range(30)]
    scan, seen = rig.policy.scan(), []
    while (head := scan.head()) is not None:
        seen.append(head)
        scan.passed()
    scan.close()
    assert sorted(r.sequence for r in seen) == [r.sequence for r in asked]


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_scan_has_changed_nothing(name):
    rig = Rig(name, share_by={"b": "key"})
    for i in range(24):
        rig.arrive("abcd"[i % 4], 10 + i, 5, "xy"[i % 2])
    order = []
    for end in ("passed", "supposed", "passed"):
        scan, seen = rig.policy.scan(), []
        for _ in range(24):
            seen.append(scan.head().sequence)
            getattr(scan, end)()
        scan.close()
        scan.close()
        order.append(seen)
    assert order[0] == order[2]
    assert sorted(order[1]) == sorted(order[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_scan_left_open_is_closed_by_the_next(name):
    rig = Rig(name)
    for i in range(6):
        rig.arrive("abc"[i % 3])
    left = rig.policy.scan()
    first = left.head()
    left.passed()
    left.passed()
    again = rig.policy.scan()
    assert again.head() is first
    left.close()
    assert again.head() is first


@pytest.mark.parametrize("name", NAMES)
def test_a_lower_tier_goes_first_overtakes_and_gives_way_last(name):
    rig = Rig(name, tiers={"gold": -1, "free": 3})
    free = [rig.arrive("free", 20, 5) for _ in range(3)]
    plain = [rig.arrive("plain", 20, 5) for _ in range(3)]
    gold = [rig.arrive("gold", 500, 5) for _ in range(3)]
    scan, seen = rig.policy.scan(), []
    while (head := scan.head()) is not None:
        seen.append(head)
        rig.admit(head)
        scan.admitted()
    scan.close()
    assert seen == gold + plain + free
    assert rig.policy.passes(gold[0], rig.policy.bar([free[0], plain[0]]))
    assert not rig.policy.passes(free[0], rig.policy.bar([plain[0]]))
    assert rig.policy.victim(seen).tenant == "free"
    assert rig.policy.victim(gold + plain).tenant == "plain"
    assert rig.policy.victim([]) is None


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overtakes_its_own_tenants_prefill_and_all_go_ahead_of_nothing(name):
    rig = Rig(name)
    first, second = rig.arrive("a"), rig.arrive("a")
    rig.admit(first)
    assert not rig.policy.passes(second, rig.policy.bar([first]))
    assert rig.policy.passes(second, rig.policy.bar([]))


def test_the_victim_is_of_whom_had_most_or_the_latest_admitted():
    for name, expected in {
        "vtc": "heavy",
        "lcf": "heavy",
        "vtc-predicted": "heavy",
        "deficit-round-robin": "heavy",
        "fcfs": "light",
        "round-robin": "light",
    }.items():
        rig = Rig(name)
        running = [rig.arrive("heavy", 100, 50), rig.arrive("heavy", 90, 50), rig.arrive("light")]
        for request in running:
            rig.admit(request)
        rig.compute(running[0], 80)
        rig.compute(running[1], 20)
        victim = rig.policy.victim(running)
        assert victim.tenant == expected, name
        if expected == "heavy":
            assert victim is running[1], "of its sequences the one with least to compute again"


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    counters = Counters({})
    with pytest.raises(EngineError, match=r"'lifo' is not known; there are vtc, vtc-predicted"):
        make_policy("lifo", Queues(counters.steps), counters, {})
