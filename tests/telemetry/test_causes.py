"""Each cause holds on its own scene with its number, and is excluded with its number on others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.case import open_case
from telemetry.conventions import WAIT_REASONS
from telemetry.findings import examine
from telemetry.findings.causes import shares
from telemetry.findings.finding import Holds, Strength
from telemetry.verdict import judge
from tests.telemetry.synthetic_rows import CAPACITY, SELF, Pool


def found(pool: Pool, first: int = 10, last: int = 16):
    return examine(open_case(pool.window(first, last)))


def flooded(reason: str = "slot", **kw) -> Pool:
    return Pool(60.0).calm(0, 10).flood(10, 16, reason=reason, **kw)


def change(pool: Pool, table: str, **values) -> Pool:
    """The rows of the incident with other numbers."""
    pool.rows[table] = [
        replace(r, **{k: v(r) if callable(v) else v for k, v in values.items()})
        if r.bucket_start >= pool.at(10)
        else r
        for r in pool.rows[table]
    ]
    return pool


def only(pool: Pool, tenant: str, **values) -> Pool:
    pool.rows["tenant_minute"] = [
        replace(r, **values) if r.tenant == tenant and r.bucket_start >= pool.at(10) else r
        for r in pool.rows["tenant_minute"]
    ]
    return pool


# ---------------------------------------------------------------- shares


@pytest.mark.parametrize(
    ("reason", "name", "share"),
    [
        ("slot", "slot_queueing", 0.95),
        ("budget", "budget_queueing", 0.95),
        ("kv", "kv_pressure", 1.0),  # with the pages that nobody holds
    ],
)
def test_what_was_waited_for_is_the_cause_with_its_share(reason: str, name: str, share: float):
    findings = found(flooded(reason))
    assert findings[name].holds is Holds.YES
    assert findings[name].strength is Strength.CHARGED
    assert findings[name].value("share of the excess") == pytest.approx(share, abs=0.01)
    for other in {"slot_queueing", "budget_queueing", "kv_pressure"} - {name}:
        assert findings[other].holds is Holds.NO
        assert "0% of the excess" in findings[other].sentence


def test_causes_are_ranked_and_close_with_the_engine_among_them():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i, busy_s=9.5, predicted_s=7.0)
        pool.tenant(i, "x", offered=60, service=6000.0)
        held = {"slot": {"x": 12.0, CAPACITY: 4.0}, "kv": {"x": 3.0, CAPACITY: 1.0}}
        pool.tenant(i, "y", missed=5, waits=held)
    verdict = judge(pool.window(10, 16))
    ranked = [(c.name, c.share) for c in verdict.causes if c.share is not None]
    assert [n for n, _ in ranked] == ["slot_queueing", "engine", "kv_pressure"]
    assert sum(s for _, s in ranked) == pytest.approx(1.0)
    assert dict(ranked)["engine"] == pytest.approx(0.25, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(WAIT_REASONS),
        st.dictionaries(
            st.sampled_from(["x", "z", SELF, CAPACITY]), st.floats(0.1, 1e4), min_size=1
        ),
        min_size=1,
    ),
    st.floats(1.0, 3.0),
)
def test_the_shares_of_causes_close_whatever_was_waited_for(held: dict, slow: float):
    pool = Pool().calm(0, 6)
    for i in range(6, 9):
        pool.engine(i, busy_s=4.0 * slow, predicted_s=4.0)
        pool.tenant(i, "y", missed=9, waits=held)
    case = open_case(pool.window(6, 9))
    parts = shares(case)
    assert not parts or sum(parts.values()) == pytest.approx(1.0)
    assert all(s >= 0 for s in parts.values())


def test_free_pages_are_no_slow_engine_unless_the_steps_are_slow():
    for slow in (False, True):
        pool = Pool().calm(0, 10)
        for i in range(10, 16):
            pool.engine(i, busy_s=8.0 if slow else 4.0, predicted_s=4.0)
            pool.tenant(i, "x", offered=60, service=6000.0)
            pool.tenant(i, "y", missed=5, waits={"kv": {"x": 12.0, CAPACITY: 8.0}})
        engine = shares(open_case(pool.window(10, 16)))["engine"]
        assert engine == pytest.approx(0.4 * slow, abs=0.01)


def test_a_holder_of_all_that_anybody_holds_is_named_beside_free_pages():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, service=6000.0)
        pool.tenant(i, "y", missed=5, waits={"adapter": {"x": 9.0, CAPACITY: 8.0, SELF: 3.0}})
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant, verdict.confidence) == ("tenant", "x", "medium")
    assert verdict.culprit is None


# ---------------------------------------------------------------- one by one


def test_a_full_pool_that_some_waited_for_is_kv_pressure_and_an_empty_one_is_not():
    for used, holds in ((900.0, Holds.YES), (300.0, Holds.NO)):
        pool = Pool().calm(0, 10)
        for i in range(10, 16):
            pool.engine(i, kv_bytes_avg=used + i)
            pool.tenant(i, "x", offered=60, service=6000.0)
            pool.tenant(i, "y", missed=5, waits={"slot": {"x": 18.0}, "kv": {"x": 2.0}})
        assert found(pool)["kv_pressure"].holds is holds


def test_stalls_without_waits_are_long_prefills_and_beside_waits_they_are_not():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, service=6000.0)
        pool.tenant(i, "y", missed=5, waits={"stall": {"x": 5.0}})
    stalled = found(pool)["long_prefill"]
    assert (stalled.holds, stalled.tenant) == (Holds.YES, "x")
    assert stalled.value("excess stall") == pytest.approx(30.0)
    waited = found(only(flooded(), "y", stall_s=5.0))["long_prefill"]
    assert waited.holds is Holds.NO
    assert "stalls 30.0s beyond usual" in waited.sentence


def test_preemptions_over_and_over_are_a_storm_and_the_usual_ones_are_none():
    storm = change(flooded(), "engine_minute", preemptions=4)
    storm = only(storm, "x", preemptions_caused=4.0, recomputed_tokens=1000)
    for r in range(len(storm.rows["engine_minute"])):
        row = storm.rows["engine_minute"][r]
        storm.rows["engine_minute"][r] = replace(row, preemptions=row.preemptions or 0)
    finding = found(storm)["preemption_storm"]
    assert (finding.holds, finding.tenant) == (Holds.YES, "x")
    assert finding.value("preemptions a minute") == pytest.approx(4.0)
    calm = flooded()
    calm.rows["engine_minute"] = [replace(r, preemptions=4) for r in calm.rows["engine_minute"]]
    assert found(calm)["preemption_storm"].holds is Holds.NO
    assert "4.0 a minute, usual 4.0" in found(calm)["preemption_storm"].sentence


def test_a_tenants_own_refusals_are_its_own_and_name_nobody_else():
    pool = only(flooded(), "y", rejected_rpm_requests=4, offered_requests=14)
    finding = found(pool)["own_limits"]
    assert (finding.holds, finding.tenant) == (Holds.YES, "y")
    assert "(rpm): 24 of 84 refused" in finding.sentence
    assert judge(pool.window(10, 16)).tenant == "x"


def test_refusals_by_concurrency_follow_from_waiting_where_it_sends_no_more():
    pool = only(flooded(), "y", rejected_concurrency_requests=4, offered_requests=14)
    assert "as its requests stayed longer" in found(pool)["own_limits"].sentence
    assert found(flooded())["own_limits"].holds is Holds.NO


def test_uncounted_refusals_are_unknown():
    pool = flooded()
    pool.rows["tenant_minute"] = [
        replace(r, admitted_requests=None) for r in pool.rows["tenant_minute"]
    ]
    assert found(pool)["own_limits"].holds is Holds.UNKNOWN


def test_retries_are_a_storm_where_they_are_new_and_unknown_where_they_are_not_counted():
    assert found(flooded())["retry_storm"].holds is Holds.UNKNOWN
    counted = flooded()
    counted.rows["tenant_minute"] = [
        replace(r, offered_retries=0) for r in counted.rows["tenant_minute"]
    ]
    assert found(counted)["retry_storm"].holds is Holds.NO
    storm = found(only(counted, "x", offered_retries=40))["retry_storm"]
    assert (storm.holds, storm.tenant, storm.strength) == (Holds.YES, "x", Strength.ASSOCIATED)
    assert storm.value("part of what the tenant offered") == pytest.approx(40 / 60)
    always = flooded()
    always.rows["tenant_minute"] = [
        replace(r, offered_retries=2 * (r.offered_requests or 0) // 3)
        for r in always.rows["tenant_minute"]
    ]
    assert found(always)["retry_storm"].holds is Holds.NO


@pytest.mark.parametrize(
    ("offset_s", "holds"), [((56.0, 3.0), Holds.YES), ((20.0, 40.0), Holds.NO)]
)
def test_arrivals_on_both_sides_of_the_minute_are_a_fixed_window(offset_s, holds: Holds):
    pool = flooded()
    for i in range(10, 16):
        for n in range(20):
            at = pool.at(i) + offset_s[n % 2]
            pool.request(at, "x", 100 * i + n, 1.0)
    finding = found(pool)["fixed_window"]
    assert finding.holds is holds
    assert finding.value("arrivals within 5 s of a minute's edge") == (holds is Holds.YES)


def test_without_rows_of_requests_a_fixed_window_is_unknown():
    assert found(flooded())["fixed_window"].holds is Holds.UNKNOWN


def test_a_worker_that_falls_silent_is_lost_capacity_and_names_nobody():
    pool = Pool()
    other = Pool(run="r2", rows=pool.rows)
    for i in range(16):
        pool.engine(i)
        if i < 10:
            other.engine(i)
        for t in ("x", "y", "z"):
            held = {SELF: 8.0, "x": 8.0, "z": 8.0} if i >= 10 else {SELF: 0.1}
            pool.tenant(i, t, kv=200.0 if i >= 10 else 100.0, missed=5 if i >= 10 else 0,
                        waits={"slot": held})  # fmt: skip
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant, verdict.confidence) == ("capacity", None, "high")
    assert any("1 of 2 workers not heard" in s for s in verdict.sentences)
    assert not [r for r in open_case(pool.window(10, 16)).rises if r.rose]


def test_a_worker_whose_newest_bucket_is_late_is_not_lost():
    pool = Pool()
    other = Pool(run="r2", rows=pool.rows)
    for i in range(16):
        pool.engine(i)
        if i < 15:
            other.engine(i)
        pool.tenant(i, "y", missed=5 if i >= 10 else 0, waits={"slot": {SELF: 0.1}})
    lost = found(pool)["lost_engine"]
    assert lost.holds is Holds.NO
    assert "the newest bucket: that may be late" in lost.sentence


def test_one_worker_that_is_replaced_by_another_is_not_lost():
    pool = Pool().calm(0, 10)
    late = Pool(run="r2", rows=pool.rows)
    pool.engine(10, observed_seconds=5.0)
    late.engine(10, observed_seconds=5.0)
    pool.tenant(10, "y", missed=5, waits={"slot": {"x": 20.0}})
    for i in range(11, 16):
        late.engine(i)
        late.tenant(i, "y", missed=5, waits={"slot": {"x": 20.0}})
    assert found(pool)["lost_engine"].holds is Holds.NO


def test_waits_before_the_pool_are_the_front_end():
    pool = Pool().calm(0, 10)
    for i in range(16):
        if i >= 10:
            pool.engine(i)
        pool.tenant(i, "y", missed=5 if i >= 10 else 0, wait_front_s=8.0 if i >= 10 else 0.0)
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("outside", None)
    assert any(s.startswith("FRONT END: 48.0s waited before the pool") for s in verdict.sentences)


def test_misses_without_any_wait_are_outside_where_the_front_was_counted():
    pool = Pool().calm(0, 10)
    for i in range(16):
        if i >= 10:
            pool.engine(i)
        pool.tenant(i, "y", missed=5 if i >= 10 else 0, wait_front_s=0.01)
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.strength) == ("outside", Strength.ASSOCIATED)
    assert found(flooded())["outside"].holds is Holds.NO


def test_large_requests_under_a_limit_of_requests_are_said():
    pool = only(flooded(), "x", offered_requests=12, offered_tokens=6000, quota_rpm_level=20.0)
    gaming = found(pool)["rpm_gaming"]
    assert (gaming.holds, gaming.tenant) == (Holds.YES, "x")
    assert gaming.value("tokens a request") == pytest.approx(500.0)
    for values in ({"rejected_rpm_requests": 1}, {"offered_tokens": 1200}):
        assert found(only(pool, "x", **values))["rpm_gaming"].holds is Holds.NO
    unlimited = only(pool, "x", offered_tokens=6000, rejected_rpm_requests=0, quota_rpm_level=None)
    assert "no limit of requests" in found(unlimited)["rpm_gaming"].sentence


def test_a_tenant_that_waits_behind_itself_grew_on_its_own():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, service=6000.0, missed=20, waits={"slot": {SELF: 90.0}})
    growth = found(pool)["own_growth"]
    assert (growth.holds, growth.tenant) == (Holds.YES, "x")
    assert found(Pool().calm(0, 16))["own_growth"].holds is Holds.NO


def test_the_cliff_is_a_working_set_over_the_room_beside_the_kv():
    for room, what in ((500.0, "ADAPTER cliff"), (20_000.0, "ADAPTERS thrash")):
        pool = Pool().calm(0, 10)
        for i in range(10, 14):
            pool.engine(i, loads=20, kv_bytes_avg=1000.0 + i, pool_bytes=room + 1000.0)
            pool.tenant(i, "y", missed=5, waits={"adapter": {"x": 15.0}})
            pool.tenant(i, "x", offered=60, service=6000.0, swap_in_bytes=2000)
            for n in range(8):
                pool.request(pool.at(i) + n, "x", 10 * i + n, 1.0, adapter=f"a{n}")
        thrash = found(pool, 10, 14)["adapter_thrash"]
        assert thrash.holds is Holds.YES
        assert thrash.sentence.startswith(what)
        assert thrash.value("adapters asked for") == pytest.approx(800.0)


def test_every_finding_excludes_itself_or_says_what_is_missing_on_a_plain_flood():
    for finding in found(flooded()).values():
        assert finding.sentence
        assert finding.holds is Holds.UNKNOWN or finding.evidence or finding.name == "hurt"
