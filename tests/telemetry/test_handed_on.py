"""What is handed on reaches whoever made the line; nothing is lost and nothing is invented."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.attribution import attribute, capacity_missing
from telemetry.baseline import choose_baseline
from telemetry.conventions import TENANT, WAIT_REASONS
from telemetry.handed_on import handed_on
from telemetry.held import (
    CAPACITY_HELD,
    OTHERS_HELD,
    POLICY_HELD,
    SELF_HELD,
    Cells,
    Holder,
    lines_of,
)
from tests.telemetry.synthetic_rows import CAPACITY, SELF, Pool

VICTIMS = ["a", "b", "c"]
HOLDERS = [*(Holder(TENANT, t) for t in VICTIMS), SELF_HELD, CAPACITY_HELD, POLICY_HELD]

matrices = st.dictionaries(
    st.tuples(st.sampled_from(VICTIMS), st.sampled_from(WAIT_REASONS), st.sampled_from(HOLDERS)),
    st.floats(1e-3, 1e6),
    max_size=20,
)
somebody = st.sets(st.sampled_from(VICTIMS))
# Who rose, and who of them can have made the line.
rose = somebody.flatmap(
    lambda risen: st.tuples(
        st.just(risen), st.sets(st.sampled_from(sorted(risen))) if risen else st.just(set())
    )
)
parts = st.sampled_from([0.0, 0.25, 0.5, 0.9])


def cells_of(matrix: dict[tuple[str, str, Holder], float]) -> Cells:
    at = [(VICTIMS.index(v), WAIT_REASONS.index(r), HOLDERS.index(h)) for v, r, h in matrix]
    victim, reason, holder = np.array(at, dtype=np.intp).reshape(-1, 3).T
    seconds = np.array(list(matrix.values()), dtype=np.float64)
    none = np.zeros(len(seconds))
    return Cells(victim, reason, holder, seconds, seconds, none, VICTIMS, WAIT_REASONS, HOLDERS)


def sums(cells: Cells) -> dict[tuple[str, str], float]:
    out: dict[tuple[str, str], float] = {}
    for v, r, s in zip(cells.victim, cells.reason, cells.excess, strict=True):
        key = cells.victims[v], cells.reasons[r]
        out[key] = out.get(key, 0.0) + float(s)
    return out


def by_hand(
    matrix: dict[tuple[str, str, Holder], float],
    victim: str,
    risen: set[str],
    makers: set[str],
    missing: float,
) -> dict[Holder, float]:
    """One victim's excess by holder, written down as one would explain it."""
    kept: dict[Holder, float] = {}
    stays: dict[Holder, float] = {}
    free = 0.0
    for (v, _, holder), s in matrix.items():
        if v != victim:
            continue
        taker = holder == CAPACITY_HELD or (holder.is_tenant and holder.name in makers)
        if taker or (holder == SELF_HELD and victim in risen):
            kept[holder] = kept.get(holder, 0.0) + s
        elif holder == POLICY_HELD or (holder.is_tenant and holder.name in risen):
            stays[holder] = stays.get(holder, 0.0) + s
        else:
            free += s
    if missing and free:
        kept[CAPACITY_HELD] = kept.get(CAPACITY_HELD, 0.0) + missing * free
    whole = sum(kept.values())
    rest = (1.0 - missing) * free
    out = {h: s + rest * s / whole for h, s in kept.items()} if whole else {OTHERS_HELD: free}
    return {h: s for h, s in {**out, **stays}.items() if s}


@given(matrix=matrices, rose=rose, missing=parts)
def test_every_victims_excess_stays_whole_reason_by_reason(matrix, rose, missing):
    before, after = cells_of(matrix), handed_on(cells_of(matrix), *rose, missing)
    assert sums(after) == pytest.approx(sums(before))
    assert float(after.charged.sum()) == pytest.approx(float(before.charged.sum()))
    assert (after.excess >= 0).all()


@given(matrix=matrices, rose=rose, missing=parts)
def test_it_is_what_one_would_work_out_by_hand(matrix, rose, missing):
    cells = handed_on(cells_of(matrix), *rose, missing)
    for victim in VICTIMS:
        mine = np.array([cells.victims[v] == victim for v in cells.victim], dtype=bool)
        found: dict[Holder, float] = {}
        for h, s in zip(cells.holder[mine], cells.excess[mine], strict=True):
            found[cells.holders[h]] = found.get(cells.holders[h], 0.0) + float(s)
        expected = by_hand(matrix, victim, *rose, missing)
        assert {h: s for h, s in found.items() if s} == pytest.approx(expected)


@given(matrix=matrices, rose=rose, missing=parts)
def test_a_tenant_that_did_not_rise_holds_nothing(matrix, rose, missing):
    lines = lines_of(handed_on(cells_of(matrix), *rose, missing))
    assert {x.holder.name for x in lines if x.holder.is_tenant and x.excess_s} <= rose[0]
    for x in lines:
        assert not x.handed_s or not x.holder.is_tenant or x.holder.name in rose[1]
    whole = sum(x.excess_s for x in lines)
    assert whole == 0.0 or sum(x.share for x in lines) == pytest.approx(1.0)
    assert all(0.0 <= x.handed_s <= x.excess_s * (1 + 1e-9) for x in lines)


@given(matrix=matrices)
def test_where_everybody_rose_nothing_is_handed_on(matrix):
    lines = lines_of(handed_on(cells_of(matrix), VICTIMS, VICTIMS, 0.0))
    assert not any(x.handed_s for x in lines)
    was = {x.holder: x.excess_s for x in lines_of(cells_of(matrix)) if x.excess_s}
    assert {x.holder: x.excess_s for x in lines if x.excess_s} == pytest.approx(was)


def test_an_innocents_line_goes_to_the_flood_and_to_lost_capacity_in_proportion():
    pool = Pool().calm(0, 10)
    for i in range(10, 14):
        pool.engine(i)
        held = {"x": 6.0, "z": 8.0, CAPACITY: 2.0, SELF: 4.0}
        pool.tenant(i, "y", waits={"slot": held})
    window = pool.window(10, 14)
    made = attribute(window.asked, choose_baseline(window)).handed_on({"x"}, {"x"}, 0.0)
    shares = {x.holder: x.share for x in made.accounts["y"].lines if x.share}
    assert shares == {
        Holder(TENANT, "x"): pytest.approx(0.75, abs=0.01),
        CAPACITY_HELD: pytest.approx(0.25, abs=0.01),
    }
    top = made.accounts["y"].top
    assert top is not None
    assert top.holder.name == "x"
    charged = {x.holder.name: x.share for x in made.charged(["y"]) if x.holder.is_tenant}
    assert charged["z"] == pytest.approx(0.4, abs=0.02)


def test_a_riser_that_is_charged_too_little_keeps_that_and_takes_nothing():
    pool = Pool().calm(0, 10)
    for i in range(10, 14):
        pool.engine(i)
        pool.tenant(i, "y", waits={"slot": {"x": 5.0, "w": 1.0, "z": 14.0}})
    window = pool.window(10, 14)
    made = attribute(window.asked, choose_baseline(window)).handed_on({"x", "w"}, {"x"}, 0.0)
    shares = {x.holder.name: x.share for x in made.accounts["y"].lines if x.share}
    assert shares == {"x": pytest.approx(0.95, abs=0.01), "w": pytest.approx(0.05, abs=0.01)}


charges = st.dictionaries(
    st.sampled_from(WAIT_REASONS),
    st.dictionaries(
        st.sampled_from(["a", "v", "x", SELF, CAPACITY]), st.floats(0, 1e4), max_size=5
    ),
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(now=st.lists(charges, min_size=1, max_size=3), risen=st.sets(st.sampled_from("avx")))
def test_top_and_share_of_one_victim_are_those_of_its_lines(now, risen):
    pool = Pool().calm(0, 4, ("a", "v"))
    for i, held in enumerate(now, start=4):
        pool.engine(i)
        for victim in ("a", "v"):
            pool.tenant(i, victim, waits=held)
    window = pool.window(4, 4 + len(now))
    made = attribute(window.asked, choose_baseline(window)).handed_on(risen, risen, 0.0)
    for account in made.accounts.values():
        assert sum(x.excess_s for x in account.lines) == pytest.approx(account.excess_s)
        for x in account.lines:
            assert account.share(x.holder) == pytest.approx(x.share)
        top = account.top
        most = max(x.excess_s for x in account.lines)
        assert (top is None) == (most == 0.0)
        if top is not None:
            assert top.excess_s == pytest.approx(most)
            assert top.share == pytest.approx(account.share(top.holder))
            assert sum(s for _, s in top.reasons) == pytest.approx(top.excess_s)


def test_a_replica_that_is_not_heard_takes_its_part_of_what_is_handed_on():
    pool = Pool()
    for i in range(14):
        for run in ("r1", "r2") if i < 10 else ("r1",):
            pool.run = run
            pool.engine(i)
        pool.tenant(i, "y", waits={"slot": {"z": 8.0}} if i >= 10 else None)
    window = pool.window(10, 14)
    base = choose_baseline(window)
    missing = capacity_missing(window.asked, base)
    assert missing == pytest.approx(0.5)
    made = attribute(window.asked, base).handed_on((), (), missing)
    assert made.accounts["y"].share(CAPACITY_HELD) == pytest.approx(1.0)


def test_without_anybody_to_hand_it_on_to_it_is_nobodys():
    pool = Pool().calm(0, 10)
    for i in range(10, 14):
        pool.engine(i)
        pool.tenant(i, "y", waits={"slot": {"z": 8.0, SELF: 2.0}})
    window = pool.window(10, 14)
    made = attribute(window.asked, choose_baseline(window)).handed_on((), (), 0.0)
    assert made.accounts["y"].share(OTHERS_HELD) == pytest.approx(1.0)
