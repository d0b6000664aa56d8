"""The matrix against a brute-force oracle: every victim times every holder, every interval."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.conventions import CAPACITY, OTHERS, SELF, TENANT
from telemetry.interference import SHARED, STALL, Interference

TENANTS = ["a", "b", "c", "self", "capacity"]
REASONS = ["slot", "budget", "kv"]

shares = st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 9), min_size=1, max_size=4)
change = st.tuples(
    st.just("change"), st.sampled_from(TENANTS), st.sampled_from([SHARED, "kv"]), st.integers(1, 3)
)
hold = st.tuples(st.just("hold"), st.sampled_from(REASONS), shares)
advance = st.tuples(st.just("advance"), st.floats(0, 2), st.floats(0, 1))
drain = st.tuples(st.just("drain"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(change, hold, advance, advance, drain), max_size=60))
def test_cumulative_vectors_equal_victims_times_holders(ops):
    matrix = Interference()
    counts: dict[tuple[str, str], int] = {}
    holders = {SHARED: ("budget", {}), "kv": ("kv", {})}
    expected: dict[tuple[str, str, str, str], float] = {}

    def check():
        got = {(c.victim, c.reason, c.kind, c.holder): c.seconds for c in matrix.charges(top=None)}
        want = {k: v for k, v in expected.items() if v > 1e-12}
        assert {k for k, v in got.items() if abs(v) > 1e-12} == set(want)
        for k, v in want.items():
            assert got[k] == pytest.approx(v, rel=1e-9)

    for op in ops:
        if op[0] == "change":
            _, victim, group, by = op
            now = counts.get((victim, group), 0)
            by = -now if now and by == 3 else by
            matrix.change(victim, group, by)
            counts[(victim, group)] = now + by
        elif op[0] == "hold":
            _, reason, weights = op
            whole = sum(weights.values())
            spread = {(TENANT, t): w / whole for t, w in weights.items()}
            matrix.hold(SHARED, spread, reason=reason)
            matrix.hold("kv", spread)
            holders = {SHARED: (reason, spread), "kv": ("kv", spread)}
        elif op[0] == "advance":
            _, table_s, capacity_s = op
            matrix.advance(table_s, capacity_s)
            for (victim, group), n in counts.items():
                reason, spread = holders[group]
                for (kind, holder), share in spread.items():
                    own = (SELF, "") if holder == victim else (kind, holder)
                    key = (victim, reason, *own)
                    expected[key] = expected.get(key, 0) + n * table_s * share
                key = (victim, reason, CAPACITY, "")
                expected[key] = expected.get(key, 0) + n * capacity_s
        else:
            check()
            matrix.drain()
            expected.clear()
    check()


def test_beyond_the_top_holders_the_rest_is_others_and_the_sum_closes():
    matrix = Interference()
    matrix.change("v", "slot", 2)
    matrix.hold("slot", {(TENANT, f"t{i}"): (i + 1) / 210 for i in range(20)})
    matrix.advance(10.0, 0.0)
    rows = matrix.charges(top=8)
    assert sum(r.kind == TENANT for r in rows) == 8
    assert [r.holder for r in rows][:2] == ["t19", "t18"]
    assert [r.kind for r in rows if r.kind == OTHERS] == [OTHERS]
    assert sum(r.seconds for r in rows) == pytest.approx(20.0)
    assert matrix.waits() == {("v", "slot"): pytest.approx(20.0)}


def test_a_tenant_called_capacity_does_not_meet_the_line_of_that_name():
    matrix = Interference()
    matrix.change("v", "slot", 1)
    matrix.hold("slot", {(TENANT, "capacity"): 1.0})
    matrix.advance(2.0, 3.0)
    rows = {(r.kind, r.holder): r.seconds for r in matrix.charges()}
    assert rows == {(TENANT, "capacity"): 2.0, (CAPACITY, ""): 3.0}


def test_a_sequence_is_not_stalled_by_its_own_prefill():
    matrix = Interference()
    matrix.change("a", STALL, 3)
    matrix.change("b", STALL, 1)
    matrix.hold_stall({"a": 0.5, "b": 0.2})
    matrix.advance(10.0, 5.0)
    rows = {(r.victim, r.kind, r.holder): r.seconds for r in matrix.charges()}
    assert rows == {
        ("a", SELF, ""): pytest.approx(2 * 5.0),
        ("a", TENANT, "b"): pytest.approx(3 * 2.0),
        ("b", TENANT, "a"): pytest.approx(1 * 5.0),
    }


def test_a_count_never_goes_below_zero():
    with pytest.raises(ValueError, match="-1 requests in group slot"):
        Interference().change("a", "slot", -1)
