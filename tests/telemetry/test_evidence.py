"""Evidence that misleads counts as missing, and is said so."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.baseline import MAX_BUCKETS, choose_baseline
from telemetry.case import open_case
from telemetry.evidence import doubts, stuck
from telemetry.findings import examine
from telemetry.findings.finding import Holds
from telemetry.incidents import episodes
from telemetry.past import DAY_S
from telemetry.verdict import judge
from telemetry.window import mean, part_of, total, value_in
from tests.telemetry.synthetic_rows import SELF, Pool


def moving(pool: Pool) -> Pool:
    """Steps that differ from bucket to bucket, as real ones do."""
    pool.rows["engine_minute"] = [
        replace(r, steps=100 + n) for n, r in enumerate(pool.rows["engine_minute"])
    ]
    return pool


def kinds(pool: Pool, first: int, last: int) -> set[str]:
    window = pool.window(first, last)
    return {d.kind for d in doubts(window, window.asked)}


def test_a_level_that_never_moves_is_not_measured():
    pool = moving(Pool().calm(0, 10).flood(10, 16, reason="slot"))
    assert not stuck(pool.window(10, 16), "kv_bytes_avg")
    pool.rows["engine_minute"] = [
        replace(r, kv_bytes_avg=900.0) for r in pool.rows["engine_minute"]
    ]
    window = pool.window(10, 16)
    assert stuck(window, "kv_bytes_avg")
    pressure = examine(open_case(window))["kv_pressure"]
    assert pressure.value("pool in use") is None
    assert "level not known" in pressure.sentence
    assert any("kv_bytes_avg" in s and "MISSING" in s for s in judge(window, zone=UTC).sentences)


def test_a_level_that_never_moves_while_nothing_is_done_is_a_fact():
    assert not stuck(Pool().calm(0, 16).window(10, 16), "kv_bytes_avg")
    assert not stuck(moving(Pool().calm(0, 4)).window(0, 4), "kv_bytes_avg")


def test_an_age_that_never_moves_is_no_freeze():
    pool = moving(Pool().calm(0, 10).flood(10, 16))
    pool.rows["engine_minute"] = [
        replace(r, last_token_age_max_s=9.0, last_token_age_s=9.0, capacity_s=9.0)
        for r in pool.rows["engine_minute"]
    ]
    frozen = examine(open_case(pool.window(10, 16)))["frozen"]
    assert frozen.holds is Holds.UNKNOWN
    assert "9.0s in every bucket" in frozen.sentence


def test_numbers_below_zero_count_as_not_there_and_are_said():
    pool = Pool().calm(0, 10).flood(10, 16)
    pool.rows["tenant_minute"] = [
        replace(r, wait_kv_s=-1.0) if r.tenant == "y" else r for r in pool.rows["tenant_minute"]
    ]
    window = pool.window(10, 16)
    assert value_in(window.asked[0], "y", "wait_kv_s") is None
    assert total(window.asked, "y", "wait_kv_s") is None
    verdict = judge(window)
    assert verdict.tenant == "x"
    assert any("6 numbers are below zero" in s for s in verdict.sentences)


def test_clocks_that_disagree_are_said():
    pool = Pool().calm(0, 10).flood(10, 16)
    assert kinds(pool, 10, 16) == set()
    pool.event(pool.at(12), "clock", "the wall clock jumped", value=-40.0)
    pool.request(pool.at(11), "y", 1, 1.0, ended=pool.at(11) - 30)
    assert kinds(pool, 10, 16) == {"clocks"}
    said = judge(pool.window(10, 16)).sentences
    assert any("CLOCK jumped by 40.0s" in s for s in said)
    assert any("1 requests end before they arrive" in s for s in said)


def test_buckets_that_overlap_are_mixed_clocks():
    pool = Pool().calm(0, 10).flood(10, 16)
    Pool(engine_name="e2", rows=pool.rows).engine(12.5)
    window = pool.window(10, 16)
    assert any("overlap" in d.sentence for d in doubts(window, window.asked))


def test_an_open_bucket_is_provisional():
    pool = Pool().calm(0, 10).flood(10, 12)
    pool.engine(12, observed_seconds=2.0)
    assert kinds(pool, 10, 13) == {"open"}


# ---------------------------------------------------------------- adding up for all at once


columns = st.sampled_from(["stall_s", "slo_missed", "wait_kv_s", "offered_requests"])
values = st.one_of(st.none(), st.floats(-1.0, 1e6))


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 4), st.sampled_from(["a", "b", "c"]), columns, values, st.booleans()
        ),
        max_size=12,
    ),
    heard=st.sets(st.integers(0, 4)),
)
def test_sums_for_all_tenants_at_once_are_those_of_each(rows: list, heard: set):
    pool = Pool()
    for i in heard:
        pool.engine(i)
    met = set()
    for i, tenant, column, value, worker in rows:
        if (i, tenant) not in met:
            met.add((i, tenant))
            seen = {} if worker else {"observed_seconds": None}
            pool.tenant(i, tenant, **{column: value}, **seen)
    buckets = pool.window(0, 5).asked
    part = part_of(buckets)
    for tenant in ("a", "b", "c", "never"):
        for column in ("stall_s", "slo_missed", "wait_kv_s", "offered_requests"):
            assert part.total(tenant, column) == pytest.approx(total(buckets, tenant, column))
        at = part.grid.place.get(tenant)
        if at is not None:
            each = mean(buckets, tenant, "kv_bytes_avg")
            made = float(part.means("kv_bytes_avg")[at])
            assert (each is None and made != made) or made == pytest.approx(each)


# ---------------------------------------------------------------- past days


def test_the_same_hour_of_past_days_is_part_of_what_is_usual():
    day = int(DAY_S / 60)
    pool = Pool(60.0)
    for back in (3, 2, 1):
        pool.calm(10 - back * day, 16 - back * day)
    pool.calm(0, 10).flood(10, 16)
    base = choose_baseline(pool.window(10, 16))
    assert base.past == 18
    assert len(base.buckets) == 18 + 9
    assert judge(pool.window(10, 16)).tenant == "x"


def test_past_days_stand_in_where_today_has_nothing_calm():
    day = int(DAY_S / 60)
    pool = Pool(60.0).calm(2 - day, 8 - day).flood(2, 8)
    verdict = judge(pool.window(2, 8))
    assert (verdict.kind, verdict.tenant) == ("tenant", "x")
    assert (verdict.heard, verdict.engines) == (1, 1)


def test_an_incident_of_yesterday_is_not_usual():
    day = int(DAY_S / 60)
    pool = Pool(60.0).calm(8 - day, 13 - day).flood(13 - day, 16 - day)
    pool.calm(0, 8).flood(8, 16)
    base = choose_baseline(pool.window(8, 16))
    assert 0 < base.past <= 5
    assert max(b.start for b in base.buckets[: base.past]) < pool.at(13 - day)


def test_today_gives_at_most_an_hour_and_past_days_as_much_again():
    day = int(DAY_S / 60)
    pool = Pool(60.0)
    for back in (5, 4, 3, 2, 1):
        pool.calm(100 - back * day, 140 - back * day)
    pool.calm(0, 140)
    base = choose_baseline(pool.window(100, 140))
    assert base.past == MAX_BUCKETS
    assert len(base.buckets) == 2 * MAX_BUCKETS


# ---------------------------------------------------------------- the onset


def test_a_flicker_long_before_does_not_set_the_onset():
    """Four misses, four quiet buckets, and then a hundred times as much: two episodes."""
    pool = Pool().calm(0, 10)
    pool.engine(10)
    pool.tenant(10, "y", missed=3)
    for i in range(11, 14):
        pool.engine(i)
        pool.tenant(i, "z", missed=2 if i == 12 else 1)
    pool.flood(14, 20, wait_s=400.0)
    window = pool.window(8, 20)
    onsets = [e.onset for e in episodes(window, choose_baseline(window))]
    assert onsets[-1] == pool.at(14)
    assert judge(window).onset == pool.at(14)


def test_waves_with_calm_between_them_are_one_incident():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        hot = i % 2 == 0
        pool.engine(i)
        pool.tenant(i, "x", offered=60 if hot else 10, service=6000.0)
        pool.tenant(i, "y", missed=5 if hot else 0, waits={"slot": {"x": 30.0 if hot else 0.1}})
    assert judge(pool.window(8, 16)).onset == pool.at(10)
    assert judge(pool.window(8, 16)).tenant == "x"


def test_who_waits_behind_itself_most_is_no_victim_of_free_pages():
    """Its adapters do not fit: free pages and pins are charged beside itself, and no tenant."""
    from tests.telemetry.synthetic_rows import CAPACITY, POLICY

    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        own = {SELF: 40.0, CAPACITY: 42.0, POLICY: 10.0, "y": 2.0}
        pool.tenant(i, "x", offered=60, service=6000.0, missed=30, waits={"adapter": own})
        pool.tenant(i, "y", missed=5, waits={"adapter": {"x": 9.0, CAPACITY: 1.0}})
    verdict = judge(pool.window(10, 16))
    assert {v.tenant for v in verdict.victims} == {"y"}
    assert verdict.tenant == "x"
