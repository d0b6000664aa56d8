"""The matrix by index: its closures in a crowd of holders, and what it says of wrong events."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.conventions import CAPACITY, OTHERS, SELF, TENANT
from telemetry.ledger import interference, matrix, sums
from telemetry.ledger.interference import SHARED, STALL, Interference

N = 12
NAMES = [f"t{i}" for i in range(N)]
LIMITS = {"room for all": (1024, 256), "a crowd": (4, 2)}

index = st.integers(0, N - 1)
happening = st.one_of(
    st.tuples(st.just("runs"), index, st.integers(1, 4)),
    st.tuples(st.just("waits"), index, st.sampled_from([SHARED, "kv", "slot"]), st.integers(1, 3)),
    st.tuples(st.just("holds"), index, st.sampled_from([1.0, 100.0])),
    st.tuples(st.just("costs"), st.lists(st.sampled_from([0.0, 1.0, 3.0]), max_size=N)),
    st.tuples(st.just("prefills"), st.dictionaries(index, st.floats(0.01, 0.2), max_size=N)),
    st.tuples(st.just("flips"), st.sampled_from(["slot", "budget", "kv"])),
    st.tuples(st.just("advance"), st.floats(0.01, 2), st.floats(0, 1)),
    st.tuples(st.just("advance"), st.floats(0.01, 2), st.just(0.0)),
)


class World:
    """An `Interference` and the same by victims times holders."""

    def __init__(self) -> None:
        self.running, self.held = np.zeros(64), np.zeros(64)
        self.matrix = Interference(64, self.running, self.held)
        self.matrix.used = N
        self.reason = "budget"
        self.costs_s = np.zeros(N)
        self.rates: dict[int, float] = {}
        self.counts: dict[tuple[int, str], int] = defaultdict(int)
        self.expected: dict[tuple[str, str, str, str], float] = defaultdict(float)
        for i in range(N):
            self.matrix.change(i, NAMES[i], STALL, 1 + i % 2)

    def runs(self, i, by):
        by = -int(self.running[i]) if by == 4 else by
        self.running[i] += by
        self.matrix.runs(i, by)

    def waits(self, i, group, by):
        by = -self.counts[i, group] if by == 3 else by
        self.counts[i, group] += by
        self.matrix.change(i, NAMES[i], group, by)

    def holds(self, i, size):
        self.held[i] = 0.0 if self.held[i] else size
        self.matrix.held_changed = True

    def costs(self, costs):
        self.costs_s = np.array([*costs, *[0.0] * (N - len(costs))])
        self.matrix.use_costs(np.array(costs, dtype=float), {})

    def prefills(self, rates):
        self.rates = rates
        self.matrix.stall(rates)

    def flips(self, reason):
        self.reason = reason
        self.matrix.shared_reason(reason)

    def advance(self, table_s, lost_s):
        self.matrix.advance(table_s, lost_s)
        for (i, group), n in self.counts.items():
            reason = self.reason if group == SHARED else group
            vector = {"slot": self.running, "kv": self.held}.get(reason, self.costs_s)
            if reason == "budget" and not self.costs_s.any():
                vector = self.running
            whole = vector.sum()
            self._charge(i, reason, CAPACITY, "", n * (lost_s if whole else lost_s + table_s))
            for j in np.flatnonzero(vector):
                self._charge(i, reason, TENANT, NAMES[j], n * table_s * vector[j] / whole)
        for i in range(N):
            for j, rate in self.rates.items():
                rows = 1 + i % 2
                self._charge(i, STALL, TENANT, NAMES[j], (rows - (i == j)) * table_s * rate)

    def _charge(self, i, reason, kind, holder, seconds):
        if (kind, holder) == (TENANT, NAMES[i]):
            kind, holder = SELF, ""
        self.expected[NAMES[i], reason, kind, holder] += seconds

    def result(self):
        self.matrix.close()
        reading = self.matrix.window.reading(NAMES, self.matrix.owns.copy(), self.matrix.awaited())
        return reading.result(top=None)


@pytest.fixture(params=LIMITS)
def crowd(request, monkeypatch):
    exact, kept = LIMITS[request.param]
    for room in (sums, matrix):
        monkeypatch.setattr(room, "EXACT_HOLDERS", exact)
        monkeypatch.setattr(room, "CROWDED_HOLDERS", kept)
    monkeypatch.setattr(interference, "_MOST_ROWS", 3)
    return request.param == "a crowd"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=st.lists(happening, min_size=10, max_size=60))
def test_rows_are_victims_times_holders_and_in_a_crowd_only_others_hide_them(crowd, life):
    world = World()
    for what, *how in life:
        getattr(world, what)(*how)
    got = {(c.victim, c.reason, c.kind, c.holder): c.seconds for c in world.result().charges}
    if not crowd:
        for key in {*got, *world.expected}:
            want = world.expected.get(key, 0.0)
            assert got.get(key, 0.0) == pytest.approx(want, rel=1e-9, abs=1e-9)
        return
    for key, seconds in got.items():
        if key[2] != OTHERS:  # nobody is charged more than he held
            assert seconds <= world.expected.get(key, 0.0) * (1 + 1e-9) + 1e-9
    closed, whole = _by_reason(got), _by_reason(world.expected)
    for key in {*closed, *whole}:
        assert closed.get(key, 0.0) == pytest.approx(whole.get(key, 0.0), rel=1e-9, abs=1e-9)


def _by_reason(charges):
    out: dict[tuple[str, str], float] = defaultdict(float)
    for (victim, reason, _, _), seconds in charges.items():
        out[victim, reason] += seconds
    return out


def test_waits_by_clock_and_charges_by_holder_are_one_sum():
    world = World()
    for i in range(40):
        world.runs(i % N, 1)
        world.waits((5 * i) % N, SHARED, 1)
        world.flips(("slot", "kv", "budget")[i % 3])
        world.advance(0.1 + i / 100, 0.02 * (i % 4))
    result = world.result()
    charged = _by_reason({c[:4]: c.seconds for c in result.charges})
    for reason in ("slot", "kv", "budget"):
        for i, name in enumerate(NAMES):
            assert charged[name, reason] == pytest.approx(result.waits[reason][i], rel=1e-9)


def test_a_tenant_called_capacity_does_not_meet_the_line_of_that_name():
    running = np.zeros(64)
    tenants = Interference(64, running, np.zeros(64))
    tenants.used = 2
    running[1] += 1
    tenants.runs(1, 1)
    tenants.shared_reason("slot")
    tenants.change(0, "v", SHARED, 1)
    tenants.advance(2.0, 3.0)
    tenants.close()
    names = ["v", "capacity"]
    rows = tenants.window.reading(names, tenants.owns, {}).result().charges
    assert [(c.kind, c.holder, c.seconds) for c in rows] == [
        (CAPACITY, "", 3.0),
        (TENANT, "capacity", 2.0),
    ]


def test_a_count_never_goes_below_zero():
    empty = Interference(64, np.zeros(64), np.zeros(64))
    with pytest.raises(ValueError, match=r"'a': -1 requests in group slot"):
        empty.change(0, "a", "slot", -1)
    with pytest.raises(ValueError, match=r"'a': -1 requests in group adapter:k"):
        empty.change(0, "a", "adapter:k", -1)
