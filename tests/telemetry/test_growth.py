"""What all ask for more: each tenant that can be asked alone, and the small ones in groups."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.baseline import choose_baseline
from telemetry.case import open_case
from telemetry.findings.everyone import everyone
from telemetry.findings.finding import Holds
from telemetry.growth import BUNCHES, GROUPED, Demand, demands, growth_of, own_growth, typical
from telemetry.verdict import judge
from telemetry.window import part_of
from tests.telemetry.synthetic_rows import SELF, Pool

BEFORE, SPAN = 8, 2  # buckets


def counted(before: dict[str, list[int]], now: dict[str, list[int]]) -> Pool:
    """Requests by bucket and tenant; without one, the tenant has no row."""
    pool = Pool()
    for i in range(BEFORE + SPAN):
        pool.engine(i)
        of, at = (before, i) if i < BEFORE else (now, i - BEFORE)
        for tenant, requests in of.items():
            if requests[at]:
                pool.tenant(i, tenant, offered=requests[at])
    return pool


def asked(pool: Pool):
    window = pool.window(BEFORE, BEFORE + SPAN)
    return window.asked, choose_baseline(window)


def drawn(rng: random.Random, rate: float, buckets: int) -> list[int]:
    """Poisson counts by bucket."""
    out = [0] * buckets
    at = rng.expovariate(rate)
    while at < buckets:
        out[int(at)] += 1
        at += rng.expovariate(rate)
    return out


def crowd(factor: float, seed: int = 1) -> Pool:
    """A hundred and fifty tenants that ask for something once in twelve buckets, and then `factor`
    times as often."""
    rng = random.Random(seed)
    names = [f"t{i:03d}" for i in range(150)]
    before = {n: drawn(rng, 1 / 12, BEFORE) for n in names}
    return counted(before, {n: drawn(rng, factor / 12, SPAN) for n in names})


def test_a_crowd_that_asks_for_what_it_always_did_has_not_grown_though_whoever_is_seen_has():
    buckets, base = asked(crowd(1.0))
    seen_now = [t for t in base.part.active() if buckets[0].tenants.get(t)]
    alone = [own_growth(t, buckets, base, part_of(buckets)) for t in seen_now]
    assert median(alone) >= 2.0
    growth = growth_of(buckets, base, ())
    assert growth.basis == "tenants"
    assert growth.factor == pytest.approx(1.0, abs=0.35)


def test_a_crowd_that_asks_for_three_times_as_much_has_grown_by_that():
    assert growth_of(*asked(crowd(3.0)), ()).factor == pytest.approx(3.0, rel=0.35)


def test_whoever_is_large_enough_stands_alone_and_whoever_has_gone_is_not_asked():
    steady = {"a": [5] * BEFORE, "gone": [5] * BEFORE, "rare": [0] * 7 + [1]}
    found = demands(*asked(counted(steady, {"a": [10] * SPAN, "new": [3] * SPAN})))
    assert [(d.tenants, d.growth) for d in found] == [(("a",), 2.0)]


counts = st.lists(st.integers(0, 3), min_size=BEFORE, max_size=BEFORE)
later = st.lists(st.integers(0, 3), min_size=SPAN, max_size=SPAN)


@given(st.lists(st.tuples(counts, later), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_each_tenant_counts_once_at_most_and_every_group_has_something_usual(drawn_counts):
    before = {f"t{i:02d}": b for i, (b, _) in enumerate(drawn_counts)}
    now = {f"t{i:02d}": n for i, (_, n) in enumerate(drawn_counts)}
    buckets, base = asked(counted(before, now))
    found = demands(buckets, base)
    names = [t for d in found for t in d.tenants]
    assert len(names) == len(set(names))
    for d in found:
        assert d.usual > 0
        assert d.now >= 0
        assert len(d.tenants) == 1 or d.requests >= GROUPED


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=60), st.floats(0.0, 9.0))
def test_what_all_grew_by_is_typical_of_a_few_and_of_a_crowd(usual: list[float], factor: float):
    asked = [Demand((f"t{i}",), u, factor * u, None) for i, u in enumerate(usual)]
    assert typical(asked) == pytest.approx(factor)


def test_a_flood_or_seven_in_a_crowd_are_not_typical():
    asked = [Demand((f"t{i}",), 1.0, 2.0, None) for i in range(10 * BUNCHES)]
    flooded = [Demand(d.tenants, 1.0, 500.0, None) for d in asked[: BUNCHES // 2]]
    assert typical([*flooded, *asked[BUNCHES // 2 :]]) == pytest.approx(2.0)


def test_of_what_asks_for_little_the_median_is_not_what_all_grew_by():
    rng = random.Random(3)
    asked = [Demand((f"t{i}",), 3.0, float(sum(drawn(rng, 0.5, 6))), None) for i in range(300)]
    skewed = [Demand(d.tenants, d.usual, d.now * rng.choice((0.2, 0.2, 2.6)), None) for d in asked]
    assert median(d.growth for d in skewed) < 0.6
    assert typical(skewed) == pytest.approx(1.0, abs=0.2)


def test_a_newcomer_is_measured_by_what_the_others_usually_ask_for():
    steady = {"a": [4] * BEFORE, "b": [8] * BEFORE}
    pool = counted(steady, {"a": [4] * SPAN, "b": [8] * SPAN, "new": [12] * SPAN})
    buckets, base = asked(pool)
    part = part_of(buckets)
    assert own_growth("new", buckets, base, part) == pytest.approx(2.0)
    assert own_growth("a", buckets, base, part) == pytest.approx(1.0)


# -- the finding


def grown_then_drained(drain: int) -> Pool:
    """Five tenants ask for about twice their usual over four buckets, one by chance for hardly any
    more; then for their usual, while what has piled up drains."""
    pool = Pool()
    more = {"a": 22, "b": 25, "c": 14, "d": 18, "e": 11}
    for i in range(10 + 4 + drain):
        hot, after = 10 <= i < 14, i >= 14
        pool.engine(i, busy_s=9.5, predicted_s=9.4)
        for t, n in more.items():
            left = 40.0 * (i - 9) if hot else 160.0 * (1 - (i - 13) / (drain + 1))
            waits = {"slot": {o: left / 5 for o in more if o != t} | {SELF: left / 5}}
            late = 4 if hot or after else 0
            pool.tenant(i, t, offered=n if hot else 10, service=1000.0, missed=late,
                        waits=waits if hot or after else {})  # fmt: skip
    return pool


@pytest.mark.parametrize("drain", [1, 8])
def test_everyone_grew_however_long_it_takes_to_drain(drain):
    window = grown_then_drained(drain).window(10, 14 + drain)
    verdict = judge(window)
    assert (verdict.kind, verdict.tenant) == ("everyone", None)
    found = everyone(open_case(window))
    assert found.holds is Holds.YES
    assert "5 of 5 tenants ask more; together 1.62x the usual" in found.sentence


def test_two_that_grow_while_the_others_do_not_are_not_everyone():
    pool = Pool()
    for i in range(14):
        hot = i >= 10
        pool.engine(i)
        for t in ("a", "b", "c", "d", "e"):
            n = 60 if hot and t in ("a", "b") else 10 + (1 if hot and t == "c" else 0)
            pool.tenant(i, t, offered=n, missed=4 if hot else 0,
                        waits={"slot": {"a": 9.0}} if hot and t != "a" else {})  # fmt: skip
    assert everyone(open_case(pool.window(10, 14))).holds is Holds.NO


def newcomer_among_all_that_doubled(requests: int) -> Pool:
    """Four tenants ask for twice their usual from bucket 10 on; one that was never there comes with
    so many, and half of what all wait for is its."""
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        for t in ("a", "b", "c", "d"):
            held = {"new": 11.0} | {o: 3.0 for o in ("a", "b", "c", "d") if o != t}
            pool.tenant(i, t, offered=20 if hot else 10, service=2000.0 if hot else 1000.0,
                        missed=4 if hot else 0, waits={"slot": held} if hot else {})  # fmt: skip
        if hot:
            pool.tenant(i, "new", offered=requests, service=100.0 * requests)
    return pool


def test_a_newcomer_while_everyone_grew_is_named_only_where_it_outgrew_them():
    some = judge(newcomer_among_all_that_doubled(45).window(10, 16))
    assert (some.kind, some.tenant) == ("everyone", None)
    most = judge(newcomer_among_all_that_doubled(150).window(10, 16))
    assert (most.kind, most.tenant) == ("tenant", "new")


@pytest.mark.parametrize("small", [5, 3])
def test_two_floods_while_chance_lifts_the_others_are_two_and_not_everyone(small):
    """Two ask for eight times their usual, and the others for a third more, or half as much again
    in a pool so small that three quarters do."""
    names = [f"s{i}" for i in range(small)]
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        for t in ("x", "y"):
            n = 120 if hot else 15
            pool.tenant(i, t, offered=n, service=100.0 * n)
        for t in names:
            n = (20 if small > 3 else 23) if hot else 15
            held = {"slot": {"x": 12.0, "y": 11.0}} if hot else {}
            pool.tenant(i, t, offered=n, service=100.0 * n, missed=4 if hot else 0, waits=held)
    verdict = judge(pool.window(10, 16))
    assert verdict.kind == "no_single"
    assert {n.tenant for n in verdict.culprits} == {"x", "y"}
