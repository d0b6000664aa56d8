"""A recording plays as if it were live: same picture, nothing from the future, any speed."""

from __future__ import annotations

from datetime import UTC

import pytest

from console.replay import ReplayError, ReplayFeed, open_recording
from console.rows import Rows
from console.snapshot import build_snapshot
from console.text import render_text
from sample_incidents import IncidentError, incident_path, list_incidents
from tests.console import rows as made


class Turned:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def feed(rows=None, speed=1.0, **kwargs):
    clock = Turned()
    source = made.FakeSource(made.incident() if rows is None else rows)
    return ReplayFeed(source, speed, clock, tz=UTC, **kwargs), clock, source


def test_the_first_picture_already_has_rows():
    f, _, _ = feed()
    s = f.snapshot()
    assert s.now == made.T0 + 10
    assert len(s.tenants) == 4
    assert s.strip.slots == 8.0


def test_time_runs_with_the_speed_and_stops_at_the_end():
    f, clock, _ = feed(speed=4.0)
    f.snapshot()
    clock.now += 10.0
    assert f.snapshot().now == made.T0 + 50
    assert not f.finished
    clock.now += 1000.0
    s = f.snapshot()
    assert s.now == made.T0 + 180
    assert f.finished
    assert s.ticker[-1].text.startswith("the recording ends here")
    assert s.phase == "acme fans out long contexts"


def test_nothing_from_the_future_is_shown():
    f, clock, _ = feed()
    f.snapshot()
    clock.now += 105.0  # 115 s into the recording: the fan-out begins at 120
    s = f.snapshot()
    assert all(not t.slo_missed for t in s.tenants)
    assert s.phase is None
    assert [t.kind for t in s.ticker] == ["start"]
    clock.now += 20.0  # 135: one bad bucket has closed
    s = f.snapshot()
    assert sum(t.slo_missed for t in s.tenants) == 12
    assert s.phase == "acme fans out long contexts"


def test_the_picture_is_the_one_a_live_console_would_have_shown():
    f, clock, _ = feed()
    f.snapshot()
    clock.now += 160.0
    played = f.snapshot()
    at = made.T0 + 170
    live = build_snapshot(made.incident().as_of(at), at)
    assert played.tenants == live.tenants
    assert played.strip == live.strip
    assert played.holders == live.holders


def test_it_says_what_it_is_and_of_which_day():
    f, _, _ = feed(speed=4.0)
    text = render_text(f.snapshot(), 80, tz=UTC)
    assert "REPLAY of a recorded run, 2027-01-15, ×4" in text


def test_the_recording_is_read_once():
    f, clock, source = feed()
    for _ in range(5):
        f.snapshot()
        clock.now += 1.0
    assert len(source.reads) == 7


def test_a_request_still_running_then_is_not_counted_yet():
    rows = made.incident()
    late = made.request("globex", made.T0 + 12, 0.2, ended=made.T0 + 90)
    f, _, _ = feed(Rows(engines=rows.engines, tenants=rows.tenants, requests=(late,)))
    assert next(t for t in f.snapshot().tenants if t.name == "globex").ttft.n == 0


def test_the_judge_sees_only_what_had_happened():
    seen = []

    def judge(rows, now):
        seen.append((now, max(r.bucket_start + r.bucket_s for r in rows.engines)))
        return made.verdict()

    f, clock, _ = feed(judge=judge)
    f.snapshot()
    clock.now += 61.0
    f.snapshot()
    assert seen == [(made.T0 + 10, made.T0 + 10), (made.T0 + 71, made.T0 + 70)]


def test_an_empty_recording_and_a_speed_of_nothing_are_refused():
    f, _, _ = feed(Rows())
    with pytest.raises(ReplayError, match="no buckets"):
        f.snapshot()
    with pytest.raises(ReplayError, match="above 0, got 0"):
        feed(speed=0.0)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ReplayError, match="no such folder"):
        open_recording(tmp_path / "gone")


def test_an_unknown_incident_is_answered_with_those_there_are():
    with pytest.raises(IncidentError, match="no incident is called 'nope'"):
        incident_path("nope")
    assert all((incident_path(n) / "workload.toml").is_file() for n in list_incidents())
