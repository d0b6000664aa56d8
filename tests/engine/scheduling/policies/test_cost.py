"""What a scan costs, in ranks computed and comparisons made: never in time."""

from __future__ import annotations

from math import log2

import pytest

from engine.scheduling.policies import POLICIES
from tests.engine.scheduling.policies.rig import Rig

NAMES = sorted(POLICIES)


class Key(float):
    """A rank's key that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other):
        Key.compared += 1
        return float.__lt__(self, other)

    def __eq__(self, other):
        Key.compared += 1
        return float.__eq__(self, other)

    __hash__ = float.__hash__


class Counted:
    """A rig of n tenants with two requests each, whose policy counts what it does."""

    def __init__(self, name, n, monkeypatch):
        kind = POLICIES[name]
        rank = kind.rank
        self.ranked = 0

        def counted(policy, tenant, sequence, supposed):
            self.ranked += 1
            tier, key, second, who = rank(policy, tenant, sequence, supposed)
            return (tier, Key(key), second, who)

        monkeypatch.setattr(kind, "rank", counted)
        self.rig = Rig(name)
        for i in range(2 * n):
            self.rig.arrive(f"t{i % n}", 10 + i % 7, 5)
        scan = self.rig.policy.scan()
        scan.head()
        scan.close()
        self.clear()

    def clear(self):
        self.ranked, Key.compared = 0, 0


@pytest.mark.parametrize("name", NAMES)
def test_starting_and_closing_a_scan_cost_nothing_however_many_wait(name, monkeypatch):
    counted = Counted(name, 5000, monkeypatch)
    scan = counted.rig.policy.scan()
    scan.close()
    assert (counted.ranked, Key.compared) == (0, 0)
    scan = counted.rig.policy.scan()
    scan.head()
    scan.close()
    assert counted.ranked <= 2
    assert Key.compared <= 4


@pytest.mark.parametrize("end", ["admitted", "passed", "supposed"])
@pytest.mark.parametrize("name", NAMES)
def test_a_head_costs_no_more_than_the_logarithm_of_the_tenants(name, end, monkeypatch):
    heads = 100
    for n in (200, 2000, 10_000):
        counted = Counted(name, n, monkeypatch)
        scan = counted.rig.policy.scan()
        for _ in range(heads):
            head = scan.head()
            if end == "admitted":
                counted.rig.admit(head)
            getattr(scan, end)()
        scan.close()
        assert counted.ranked <= 8 * heads, "constant"
        assert Key.compared <= 12 * log2(n) * heads
        monkeypatch.undo()


@pytest.mark.parametrize("name", NAMES)
def test_a_step_in_which_nothing_is_asked_costs_nothing(name, monkeypatch):
    counted = Counted(name, 500, monkeypatch)
    rig = counted.rig
    scan = rig.policy.scan()
    for _ in range(64):
        head = scan.head()
        rig.admit(head)
        scan.admitted()
        rig.first_token(head)
    scan.close()
    counted.clear()
    rig.counters.stepped(3)
    rig.policy.stepped(3)
    assert (counted.ranked, Key.compared) == (0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_heap_does_not_grow_with_what_has_been(name):
    """Tenants come and go, heads change, counters fall: entries of the past are dropped."""
    rig = Rig(name, tiers={"z": 5})
    for _ in range(3):
        rig.arrive("z")
    for i in range(4000):
        request = rig.arrive("abc"[i % 3], 5, 1)
        again = rig.arrive("abc"[i % 3], 5, 3)
        scan = rig.policy.scan()
        head = scan.head()
        rig.admit(head)
        scan.admitted()
        scan.close()
        for left in (request, again):
            if left.sequence in rig.waiting or left.sequence in rig.running:
                rig.abort(left)
    assert len(rig.policy.heap) <= 2 * len(rig.policy.live) + 64
    assert sum(map(len, rig.counters._heaps.values())) < 200
