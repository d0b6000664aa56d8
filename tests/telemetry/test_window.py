"""Rows become buckets: absent is not zero, and gaps are said."""

from __future__ import annotations

import pytest

from telemetry.baseline import MAX_BUCKETS, choose_baseline
from telemetry.incidents import episodes
from telemetry.records import TenantMinute
from telemetry.window import combine, mean, observed_s, total, value_in
from tests.telemetry.synthetic_rows import Pool


def test_no_tenant_row_beside_an_engine_row_is_idle_and_without_one_unknown():
    pool = Pool().calm(0, 4)
    pool.engine(4)
    pool.tenant(5, "front-only", observed_seconds=None)
    window = pool.window(3, 6)
    _, idle, unknown = window.asked
    assert value_in(idle, "x", "service") == 0.0
    assert value_in(unknown, "x", "service") is None
    assert value_in(unknown, "front-only", "offered_requests") == 10.0
    assert not unknown.known


def test_a_row_of_the_front_alone_says_the_worker_did_nothing():
    pool = Pool()
    pool.engine(0)
    row = dict.fromkeys(("kv_bytes_avg", "observed_seconds", "slo_missed"))
    pool.tenant(0, "refused", **row)
    (bucket,) = pool.window(0, 1).asked
    assert value_in(bucket, "refused", "slo_missed") == 0.0
    assert value_in(bucket, "refused", "quota_rpm_level") is None


def test_a_column_nobody_wrote_has_no_total():
    pool = Pool()
    pool.engine(0)
    pool.tenant(0, "y", offered_requests=None)
    window = pool.window(0, 1)
    assert total(window.asked, "y", "offered_requests") is None
    assert total(window.asked, "y", "service") == 1000.0


def test_gaps_are_counted_in_buckets():
    pool = Pool().calm(0, 3).calm(5, 6)
    gaps = pool.window(0, 8).gaps()
    assert [(g.start, g.end, g.buckets) for g in gaps] == [
        (pool.at(3), pool.at(5), 2),
        (pool.at(6), pool.at(8), 2),
    ]


def test_the_bucket_the_window_begins_in_belongs_to_it():
    window = Pool().calm(0, 6).window(2.5, 4.5)
    assert [b.start for b in window.asked] == [Pool().at(i) for i in (2, 3, 4)]
    assert [b.start for b in window.before] == [Pool().at(i) for i in (0, 1)]


def test_runs_of_one_engine_add_their_time_and_engines_do_not():
    pool = Pool().calm(0, 1)
    pool.rows["engine_minute"] = []
    for engine, run, seen in (("e1", "r1", 4.0), ("e1", "r2", 5.0), ("e2", "r1", 10.0)):
        Pool(engine_name=engine, run=run, rows=pool.rows).engine(0, observed_seconds=seen)
    window = pool.window(0, 1)
    assert observed_s(window.asked) == 10.0
    assert window.asked[0].engine.steps == 300
    assert window.engines == {"e1", "e2"}


def test_averages_weigh_by_time_and_idle_time_is_zero():
    pool = Pool()
    pool.engine(0)
    pool.engine(1)
    pool.tenant(0, "y", kv=60.0)
    assert mean(pool.window(0, 2).asked, "y", "kv_bytes_avg") == pytest.approx(30.0)
    pool.tenant(1, "z", kv=90.0, observed_seconds=2.0)
    Pool(run="r2", rows=pool.rows).tenant(1, "z", kv=30.0, observed_seconds=4.0)
    rows = [r for r in pool.rows["tenant_minute"] if r.tenant == "z"]
    merged: TenantMinute = combine(rows)
    assert merged.kv_bytes_avg == pytest.approx((90 * 2 + 30 * 4) / 6)
    assert merged.service == 2000.0
    assert merged.ttft is None


def test_histograms_add_bin_by_bin():
    pool = Pool()
    for run in ("r1", "r2"):
        Pool(run=run, rows=pool.rows).tenant(0, "y", ttft=(1, 2, *[0] * 19))
    assert combine(pool.rows["tenant_minute"]).ttft == (2, 4, *[0] * 19)


def test_a_short_bucket_is_marked():
    pool = Pool().calm(0, 3)
    pool.engine(3, observed_seconds=3.0)
    assert [b.short for b in pool.window(0, 4).asked] == [False, False, False, True]


def test_the_baseline_is_the_last_sixty_calm_buckets():
    base = choose_baseline(Pool().calm(0, 100).window(90, 100))
    assert len(base.buckets) == MAX_BUCKETS
    assert (base.start, base.end) == (Pool().at(30), Pool().at(90))
    assert not base.inside


def test_another_incident_is_left_out_of_the_baseline():
    pool = Pool().calm(0, 20).flood(20, 25).calm(25, 40)
    base = choose_baseline(pool.window(35, 40))
    assert base.left_out == 7
    assert not {b.start for b in base.buckets} & {pool.at(i) for i in range(19, 26)}


def test_the_bucket_beside_the_incident_is_not_usual_wherever_the_window_begins():
    """An onset falls inside a bucket: one that is half calm would make a flood look usual."""
    pool = Pool().calm(0, 12)
    pool.engine(12)
    pool.tenant(12, "x", offered=40, waits={"slot": {"x": 4.0}})
    pool.flood(13, 19)
    for first in (13, 15):
        assert choose_baseline(pool.window(first, 19)).end == pool.at(12)


def test_a_bucket_of_slow_steps_is_not_usual_though_nobody_is_hurt_in_it():
    pool = Pool().calm(0, 20)
    for i in range(20, 26):
        pool.engine(i, busy_s=5.6, predicted_s=4.0)
    pool.calm(26, 40)
    base = choose_baseline(pool.window(35, 40))
    assert not {b.start for b in base.buckets} & {pool.at(i) for i in range(20, 26)}
    assert len(base.buckets) == 29


def test_an_engine_that_is_always_slower_than_modelled_is_usual_all_the_same():
    pool = Pool()
    for i in range(12):
        pool.engine(i, busy_s=8.0, predicted_s=4.0)
        pool.tenant(i, "y")
    assert len(choose_baseline(pool.window(10, 12)).buckets) == 10


def test_too_few_calm_buckets_are_no_baseline_at_all():
    base = choose_baseline(Pool().calm(0, 2).flood(2, 8).window(2, 8))
    assert (base.usable, base.buckets, base.rate("x", "service")) == (False, (), None)
    assert base.problem == "only 2 calm closed buckets to compare with, 3 are needed"


def test_a_lone_burst_of_waiting_is_usual():
    pool = Pool()
    for i in range(20):
        pool.engine(i)
        pool.tenant(i, "y", waits={"slot": {"x": 20.0 if i % 5 == 0 else 0.1}})
    window = pool.window(15, 20)
    base = choose_baseline(window)
    assert base.left_out == 0
    assert episodes(window, base) == ()


def test_the_open_bucket_is_never_usual():
    pool = Pool().calm(0, 3)
    pool.engine(3, observed_seconds=6.0)
    assert len(choose_baseline(pool.window(0, 4)).buckets) == 3


def test_the_onset_is_the_first_bucket_outside_the_baseline():
    pool = Pool().calm(0, 10).flood(12, 16).calm(10, 12)
    window = pool.window(8, 16)
    (found,) = episodes(window, choose_baseline(window))
    assert (found.onset, found.end, found.bucket_s) == (pool.at(12), pool.at(16), 10.0)


def test_one_miss_is_no_onset_but_two_buckets_of_misses_are():
    pool = Pool().calm(0, 10)
    for i, missed in enumerate((1, 0, 0, 1, 1, 0), start=10):
        pool.engine(i)
        pool.tenant(i, "y", missed=missed)
    window = pool.window(10, 16)
    (found,) = episodes(window, choose_baseline(window))
    assert (found.onset, found.end) == (pool.at(13), pool.at(15))


def test_two_incidents_far_apart_are_two_episodes():
    pool = Pool().calm(0, 10).flood(10, 13).calm(13, 20).flood(20, 24)
    window = pool.window(8, 24)
    assert [e.onset for e in episodes(window, choose_baseline(window))] == [
        pool.at(10),
        pool.at(20),
    ]
