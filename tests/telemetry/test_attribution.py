"""The accounts close, and excess is what the baseline and the pool's growth do not explain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.attribution import (
    CAPACITY_HELD,
    NOT_TENANTS,
    SELF_HELD,
    Holder,
    attribute,
    rises,
)
from telemetry.baseline import choose_baseline, pace_of
from telemetry.conventions import TENANT, WAIT_REASONS
from telemetry.growth import growth_of
from tests.telemetry.synthetic_rows import CAPACITY, OTHERS, POLICY, SELF, Pool

HOLDERS = ["a", "b", "capacity", "self", SELF, CAPACITY, POLICY, OTHERS]


def tenant_line(account, tenant: str):
    return next(x for x in account.lines if x.holder == Holder(TENANT, tenant))


def judged(pool: Pool, first: int, last: int, **kw):
    window = pool.window(first, last)
    return attribute(window.asked, choose_baseline(window), **kw)


charges = st.dictionaries(
    st.sampled_from(WAIT_REASONS),
    st.dictionaries(st.sampled_from(HOLDERS), st.floats(0, 1e6), max_size=5),
    max_size=4,
)


@given(
    before=st.lists(charges, min_size=3, max_size=5), now=st.lists(charges, min_size=1, max_size=3)
)
def test_shares_and_reasons_close_for_any_matrix(before: list, now: list):
    pool = Pool()
    for i, held in enumerate([*before, *now]):
        pool.engine(i)
        for victim in ("a", "v"):
            pool.tenant(i, victim, waits=held)
    window = pool.window(len(before), len(before) + len(now))
    made = attribute(window.asked, choose_baseline(window))
    for account in made.accounts.values():
        whole = sum(x.excess_s for x in account.lines)
        assert account.excess_s == pytest.approx(whole)
        assert set(NOT_TENANTS) <= {x.holder for x in account.lines}
        assert all(x.excess_s >= 0 for x in account.lines)
        if account.excess_s > 0:
            assert sum(x.share for x in account.lines) == pytest.approx(1.0)
        for x in account.lines:
            assert sum(s for _, s in x.reasons) == pytest.approx(x.excess_s)
    lines = made.pool(["a", "v"])
    assert sum(x.excess_s for x in lines) == pytest.approx(
        sum(a.excess_s for a in made.accounts.values())
    )
    assert sum(x.share for x in lines) == pytest.approx(1.0) or not any(x.excess_s for x in lines)


def test_excess_is_charged_minus_the_usual_rate_over_the_same_time():
    pool = Pool()
    for i in range(10):
        pool.engine(i)
        pool.tenant(i, "y", waits={"slot": {"x": 2.0}, "kv": {"x": 1.0}})
    for i in range(10, 14):
        pool.engine(i)
        pool.tenant(i, "y", waits={"slot": {"x": 7.0, SELF: 1.0}, "kv": {"x": 3.0}})
    account = judged(pool, 10, 14).accounts["y"]
    line = tenant_line(account, "x")
    assert line.charged_s == pytest.approx(40.0)
    assert line.excess_s == pytest.approx(40.0 - 4 * 3.0)
    assert dict(line.reasons) == pytest.approx({"slot": 20.0, "kv": 8.0})
    assert account.share(SELF_HELD) == pytest.approx(4.0 / 32.0)
    assert account.waited_s == pytest.approx(account.charged_s)


def test_an_open_bucket_counts_for_the_time_it_was_observed():
    pool = Pool()
    for i in range(10):
        pool.engine(i)
        pool.tenant(i, "y", waits={"slot": {"x": 2.0}})
    pool.engine(10, observed_seconds=5.0)
    pool.tenant(10, "y", observed_seconds=5.0, waits={"slot": {"x": 3.0}})
    made = judged(pool, 10, 11)
    assert made.observed_s == 5.0
    assert tenant_line(made.accounts["y"], "x").excess_s == pytest.approx(3.0 - 1.0)


def test_stall_is_no_wait():
    pool = Pool().calm(0, 5)
    pool.engine(5)
    pool.tenant(5, "y", waits={"slot": {"x": 4.0}, "stall": {"x": 9.0}})
    assert tenant_line(judged(pool, 5, 6).accounts["y"], "x").charged_s == pytest.approx(4.0)
    stalls = judged(pool, 5, 6, reasons=("stall",)).accounts["y"]
    assert tenant_line(stalls, "x").charged_s == pytest.approx(9.0)
    assert stalls.waited_s == pytest.approx(9.0)


def test_a_tenant_called_capacity_is_not_lost_capacity():
    pool = Pool().calm(0, 5)
    pool.engine(5)
    pool.tenant(5, "y", waits={"slot": {"capacity": 4.0, CAPACITY: 1.0}})
    account = judged(pool, 5, 6).accounts["y"]
    assert tenant_line(account, "capacity").excess_s == pytest.approx(4.0)
    assert account.share(CAPACITY_HELD) == pytest.approx(0.2)


def test_charges_of_two_runs_and_engines_add():
    pool = Pool().calm(0, 5)
    for engine, run in (("e1", "r1"), ("e1", "r2"), ("e2", "r9")):
        part = Pool(engine_name=engine, run=run, rows=pool.rows)
        part.engine(5, observed_seconds=5.0)
        part.tenant(5, "y", observed_seconds=5.0, waits={"slot": {"x": 2.0}})
    made = judged(pool, 5, 6)
    assert tenant_line(made.accounts["y"], "x").charged_s == pytest.approx(6.0)
    assert made.observed_s == 10.0


def test_common_growth_comes_from_eight_tenants_that_are_no_candidates():
    names = [f"t{i}" for i in range(9)]
    pool = Pool()
    for i in range(12):
        pool.engine(i)
        pool.tenant(i, "x", offered=60 if i >= 8 else 10)
        for t in names:
            pool.tenant(i, t, offered=30 if i >= 8 else 10, waits={"slot": {"x": 1.0}})
    window = pool.window(8, 12)
    growth = growth_of(window.asked, choose_baseline(window), {"x"})
    assert (growth.basis, growth.peers) == ("tenants", 9)
    assert growth.factor == pytest.approx(3.0)


def test_with_fewer_peers_growth_is_step_time_at_equal_batch():
    pool = Pool().calm(0, 8)
    for i in range(8, 12):
        pool.engine(i, busy_s=6.0, predicted_s=4.0)
        pool.tenant(i, "y", waits={"slot": {"x": 1.0}})
    window = pool.window(8, 12)
    base = choose_baseline(window)
    assert pace_of(base.buckets) == pytest.approx(1.0)
    growth = growth_of(window.asked, base, ())
    assert (growth.basis, growth.factor) == ("steps", pytest.approx(1.5))


def test_a_calmer_pool_is_no_growth_below_one():
    pool = Pool().calm(0, 8)
    for i in range(8, 12):
        pool.engine(i, busy_s=2.0, predicted_s=4.0)
    window = pool.window(8, 12)
    assert growth_of(window.asked, choose_baseline(window), ()).factor == 1.0


def test_a_rise_is_against_the_tenants_own_baseline():
    pool = Pool().calm(0, 8).flood(8, 12)
    window = pool.window(8, 12)
    base = choose_baseline(window)
    found = rises(window.asked, base, growth_of(window.asked, base, {"x"}))
    rose = {(r.tenant, r.resource) for r in found if r.rose}
    assert {t for t, _ in rose} == {"x"}
    assert ("x", "tokens offered") in rose
    assert ("x", "KV bytes") in rose
    by_resource = {r.resource: r.ratio for r in found if r.tenant == "x"}
    assert by_resource["tokens offered"] == pytest.approx(6.0)
    assert by_resource["KV bytes"] == pytest.approx(12.0 / (9.5 / 4.0))
    assert found[0].tenant == "x"


def test_a_rise_from_nothing_counts_once_it_matters():
    pool = Pool().calm(0, 8)
    for i in range(8, 12):
        pool.engine(i)
        pool.tenant(i, "new", offered=60)
        pool.tenant(i, "tiny", offered=1, service=1.0, kv=0.1, adapter_bytes_avg=0.0)
        pool.tenant(i, "y", offered=30)
    window = pool.window(8, 12)
    base = choose_baseline(window)
    found = rises(window.asked, base, growth_of(window.asked, base, ()))
    rose = {(r.tenant, r.resource) for r in found if r.rose}
    assert ("new", "requests offered") in rose
    assert not [r for r in rose if r[0] == "tiny"]


def test_slower_steps_explain_pages_held_longer():
    pool = Pool()
    for i in range(12):
        slow = i >= 8
        pool.engine(i, steps=50 if slow else 100, busy_s=8.0 if slow else 6.0, predicted_s=6.0)
        pool.tenant(i, "y", kv=130.0 if slow else 50.0)
    window = pool.window(8, 12)
    base = choose_baseline(window)
    found = rises(window.asked, base, growth_of(window.asked, base, ()))
    kv = next(r for r in found if r.resource == "KV bytes")
    assert kv.ratio == pytest.approx(2.6 / (8 / 50 / (6 / 100)))
    assert not kv.rose


def test_slowness_that_calm_buckets_have_too_is_no_lost_capacity():
    """A model that reads 1.5x low all day: the capacity it booked goes back to the holders; what
    is slower than that stays."""
    from types import SimpleNamespace

    from telemetry.charged import Catalogue, Cell
    from telemetry.held import with_usual_pace

    cells = {
        Cell("v", "slot", "tenant", "x"): 6.0,
        Cell("v", "slot", "self", ""): 2.0,
        Cell("v", "slot", "capacity", ""): 8.0,
        Cell("v", "kv", "capacity", ""): 3.0,
    }
    charges = Catalogue().encode(cells)
    bucket = SimpleNamespace(engine=SimpleNamespace(busy_s=10.0, predicted_s=5.0))
    same = with_usual_pace(bucket, charges, 2.0)
    assert same[Cell("v", "slot", "capacity", "")] == 0
    assert same[Cell("v", "slot", "tenant", "x")] == pytest.approx(12.0)
    assert same[Cell("v", "kv", "capacity", "")] == 3.0, "free pages are no matter of pace"
    half = with_usual_pace(bucket, charges, 1.5)
    assert half[Cell("v", "slot", "capacity", "")] == pytest.approx(4.0)
    assert sum(half.values()) == pytest.approx(sum(cells.values()))
    assert with_usual_pace(bucket, charges, 1.0) is charges
