"""The live feed: fresh figures at each call, the long history only now and then."""

from __future__ import annotations

import pytest

from console.feed import SourceFeed
from console.snapshot import build_snapshot
from tests.console import rows as made


def make(rows, at, **kwargs):
    clock = [at]
    source = made.FakeSource(rows)
    return SourceFeed(source, clock=lambda: clock[0], **kwargs), source, clock


def test_the_first_picture_is_that_of_all_rows():
    at = made.T0 + 181
    feed, _, _ = make(made.incident(), at)
    assert feed.snapshot() == build_snapshot(made.incident(), at)


def test_later_pictures_read_only_what_may_still_change_and_are_the_same():
    rows = made.incident(calm_buckets=40)
    feed, source, clock = make(rows, made.T0 + 460)
    feed.snapshot()
    source.reads.clear()
    clock[0] += 1.0
    assert feed.snapshot() == build_snapshot(rows, made.T0 + 461)
    starts = {table: start for table, start, _ in source.reads}
    assert starts["tenant_minute"] == starts["request"] == made.T0 + 461 - 150
    source.reads.clear()
    clock[0] += 10.0
    feed.snapshot()
    assert {t: s for t, s, _ in source.reads}["tenant_minute"] == made.T0 + 471 - 900


def test_rows_that_arrive_between_two_pictures_are_in_the_second():
    feed, source, clock = make(made.calm(), made.T0 + 121)
    feed.snapshot()
    source.rows = made.incident()
    clock[0] = made.T0 + 130.5
    assert sum(t.slo_missed or 0 for t in feed.snapshot().tenants) > 0


def test_phase_and_verdict_come_from_whoever_was_given():
    feed, _, _ = make(
        made.incident(),
        made.T0 + 181,
        phase=lambda: "2 of 3",
        judge=lambda rows, now: made.verdict(),
    )
    s = feed.snapshot()
    assert s.phase == "2 of 3"
    assert s.verdict.named == "acme"


def test_a_source_that_fails_is_not_hidden():
    feed, source, _ = make(made.calm(), made.T0)
    source.fault = ConnectionError("the store is gone")
    with pytest.raises(ConnectionError, match="the store is gone"):
        feed.snapshot()
