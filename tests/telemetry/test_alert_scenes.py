"""Every finding fires on its own incident; none on a quiet day or for a steady heavy tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from telemetry.alerts.settings import AlertSettings
from telemetry.findings.lately import lately_of
from telemetry.findings.limits import Limits
from telemetry.window import window_of
from tests.telemetry.alert_bench import LOOK_S, Bench
from tests.telemetry.synthetic_rows import SELF, Pool

DAY = 100  # buckets of a minute before anything happens
Start = Callable[..., Bench]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A bench that has lived through the pool's first DAY buckets."""
    benches: list[Bench] = []

    def begin(pool: Pool, now: int = DAY, **limits: float) -> Bench:
        settings = AlertSettings(every_s=LOOK_S, limits=Limits(**limits))
        bench = Bench(tmp_path / f"s{len(benches)}", pool.at(now), settings)
        benches.append(bench)
        bench.deliver(pool, pool.at(0), pool.at(now))
        bench.look()
        return bench

    yield begin
    for bench in benches:
        bench.close()


def surge(pool: Pool, first: int, last: int, *, waiting: bool) -> Pool:
    """x takes most of the pool and keeps its targets; the others wait, or do not."""
    for i in range(first, last):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, service=60_000.0, backlogged_s=60.0)
        for t in ("y", "z", "w"):
            held = {"x": 100.0} if waiting else {SELF: 0.08}
            pool.tenant(i, t, waits={"slot": held})
    return pool


def test_a_quiet_day_says_nothing(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY + 5)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 5)
    assert bench.alerts_seen() == set()
    assert bench.books[0].parcels == []
    assert bench.evaluator.stats().failures == 0


def test_a_steady_heavy_tenant_says_nothing(start: Start) -> None:
    pool = Pool(60.0)
    for i in range(DAY + 5):
        pool.engine(i)
        pool.tenant(i, "heavy", offered=60, service=60_000.0, waits={"slot": {SELF: 40.0}})
        for t in ("y", "z", "w", "v"):
            pool.tenant(i, t, service=500.0, waits={"slot": {"heavy": 30.0}})
    bench = start(pool)
    bench.play(pool, DAY, DAY + 5)
    assert bench.alerts_seen() == set()


def test_an_idle_pool_says_nothing(start: Start) -> None:
    pool = Pool(60.0)
    for i in range(DAY + 5):
        pool.engine(i, steps=0, busy_s=0.0, predicted_s=0.0)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 5)
    assert bench.alerts_seen() == set()


def test_a_tenant_that_misses_everything_pages_and_the_incident_ends(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY).flood(DAY, DAY + 6, missed=10).calm(DAY + 6, DAY + 16)
    bench = start(pool, burn_slow_misses=1e6)
    bench.play(pool, DAY, DAY + 16)
    assert "TenantscopeGoodputBurnFast" in bench.alerts_seen()
    assert len(bench.incidents()) == 1
    incident = bench.incident
    assert incident is not None
    assert (incident.severity, incident.state.value) == ("page", "resolved")
    assert [h.tenant for h in incident.holders] == ["x"]
    assert set(incident.hurt) == {"y", "z", "w"}


def test_one_miss_of_two_requests_pages_nobody(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY)
    for i in range(DAY, DAY + 8):
        pool.engine(i)
        pool.tenant(i, "rare", offered=1, missed=1)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 8)
    assert "TenantscopeGoodputBurnFast" not in bench.alerts_seen()


def test_a_tenth_missed_for_hours_warns_and_does_not_page(start: Start) -> None:
    pool = Pool(60.0)
    for i in range(DAY + 3):
        pool.engine(i)
        pool.tenant(i, "y", missed=1)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 3)
    assert bench.alerts_seen() == {"TenantscopeGoodputBurnSlow"}
    assert bench.incident is not None
    assert bench.incident.severity == "warn"


def test_a_surge_while_others_wait_warns(start: Start) -> None:
    pool = surge(Pool(60.0).calm(0, DAY), DAY, DAY + 6, waiting=True)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 6)
    assert bench.alerts_seen() == {"TenantscopeShareSurge"}
    assert bench.incident is not None
    assert bench.incident.severity == "warn"
    assert bench.incident.alerts[0].tenant == "x"


def test_a_surge_that_nobody_feels_is_a_note_and_is_told_to_nobody(start: Start) -> None:
    pool = surge(Pool(60.0).calm(0, DAY), DAY, DAY + 6, waiting=False)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 6)
    assert bench.incident is not None
    assert bench.incident.severity == "info"
    assert bench.books[0].parcels == []


def test_adapters_that_come_back_at_once_warn(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY)
    for i in range(DAY, DAY + 8):
        pool.engine(i, loads=60, evictions=60)
        pool.tenant(i, "y", waits={"adapter": {"x": 50.0}})
        for n in range(60):
            pool.event(pool.at(i) + n, "evict", adapter=f"h{n % 6}")
    bench = start(pool)
    bench.play(pool, DAY, DAY + 8)
    assert "TenantscopeAdapterThrash" in bench.alerts_seen()


def test_a_large_step_of_loads_that_stay_is_no_thrash(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY)
    for i in range(DAY, DAY + 6):
        pool.engine(i, loads=60)
        pool.tenant(i, "y", waits={"adapter": {SELF: 50.0}})
    bench = start(pool)
    bench.play(pool, DAY, DAY + 6)
    assert "TenantscopeAdapterThrash" not in bench.alerts_seen()


def test_a_step_that_does_not_end_pages(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY)
    pool.engine(DAY, last_token_age_s=25.0, last_token_age_max_s=25.0)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 1)
    assert bench.alerts_seen() == {"TenantscopeEngineStalled"}
    assert bench.incident is not None
    assert bench.incident.severity == "page"


def test_an_engine_that_is_heard_no_more_pages_and_its_return_ends_it(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY + 12)
    bench = start(pool)
    bench.tick(1, 50.0)
    assert bench.alerts_seen() == set()
    bench.tick(1, 20.0)
    assert bench.alerts_seen() == {"TenantscopeEngineSilent"}
    assert bench.incident is not None
    assert bench.incident.severity == "page"
    bench.deliver(pool, pool.at(DAY), pool.at(DAY + 1))
    bench.clock.wall_s = pool.at(DAY + 1)
    bench.play(pool, DAY + 1, DAY + 5)
    assert not bench.incident.live


def test_an_engine_that_says_it_stops_is_not_silent(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY)
    bench = start(pool)
    pool.event(pool.at(DAY) + 1.0, "stop", "the worker stops")
    bench.deliver(pool, pool.at(DAY), pool.at(DAY) + 5.0)
    bench.tick(6, 30.0)
    assert bench.alerts_seen() == set()


def test_minutes_that_are_missing_warn_and_are_no_zero(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY - 5).calm(DAY, DAY + 2)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 2)
    assert bench.alerts_seen() == {"TenantscopeMinutesMissing"}


def test_batches_given_up_warn(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY + 1)
    pool.event(pool.at(DAY) + 1.0, "lost", "3 batches", value=3.0)
    bench = start(pool)
    bench.play(pool, DAY, DAY + 1)
    assert bench.alerts_seen() == {"TenantscopeMinutesMissing"}
    assert bench.incident is not None
    assert "gave up 3 batches" in bench.incident.headline


def test_refused_points_warn(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY + 1)
    bench = start(pool)
    bench.ears.hear((), bench.clock.wall(), refused=7)
    bench.play(pool, DAY, DAY + 1)
    assert bench.alerts_seen() == {"TenantscopeTelemetryRefused"}


def test_a_clock_that_stays_far_off_warns_after_five_minutes(start: Start) -> None:
    pool = Pool(60.0).calm(0, DAY + 12)
    bench = start(pool)
    bench.clock.wall_s += 45.0
    bench.play(pool, DAY, DAY + 4)
    assert bench.alerts_seen() == set()
    bench.play(pool, DAY + 4, DAY + 12)
    assert bench.alerts_seen() == {"TenantscopeClockSkew"}


def test_one_finding_that_fails_does_not_silence_the_others(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(60.0).calm(0, DAY)
    pool.engine(DAY, last_token_age_s=25.0)
    bench = start(pool)
    monkeypatch.setattr("telemetry.alerts.rules.goodput_burn.fast", lambda *_: 1 / 0)
    monkeypatch.setattr("telemetry.findings.share_surge._usual_share", lambda *_: 1 / 0)
    bench.play(pool, DAY, DAY + 1)
    assert "TenantscopeEngineStalled" in bench.alerts_seen()


def test_a_window_and_the_store_give_the_same_sums(start: Start) -> None:
    pool = Pool(60.0).calm(0, 100).flood(100, 110)
    bench = start(pool, 110)
    ears = bench.ears.pools()["main"]
    stored = bench.evaluator._reader.lately("main", ears, bench.clock.mono())
    seen = lately_of(
        window_of(
            "main",
            pool.at(105),
            pool.at(110),
            engine_rows=pool.rows["engine_minute"],
            tenant_rows=pool.rows["tenant_minute"],
        )
    )
    assert stored.at == seen.at
    for mine, theirs in zip(
        (stored.fast, stored.fast_long, stored.slow), (seen.fast, seen.fast_long, seen.slow),
        strict=True,
    ):  # fmt: skip
        assert mine.observed_s == pytest.approx(theirs.observed_s)
        assert mine.tenants.keys() == theirs.tenants.keys()
        for tenant, sums in mine.tenants.items():
            other = theirs.of(tenant)
            assert (sums.missed, sums.eligible) == (other.missed, other.eligible)
            assert sums.waited_s == pytest.approx(other.waited_s)
            assert sums.service == pytest.approx(other.service)
