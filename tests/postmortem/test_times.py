"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from postmortem.times import TimeError, outside, read_bounds, read_time

ZONE = timezone(timedelta(hours=1), "CET")
NOW = datetime(2026, 11, 29, 18, 30, tzinfo=ZONE).timestamp()
SPAN = (NOW - 7200, NOW - 60)


def at(hour: int, minute: int, second: float = 0) -> float:
    return datetime(2026, 11, 29, hour, minute, tzinfo=ZONE).timestamp() + second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17:00", at(17, 0)),
        ("7:05", at(7, 5)),
        ("17:00:30", at(17, 0, 30)),
        ("2026-11-29T17:00", at(17, 0)),
        ("2026-11-29 17:00", at(17, 0)),
        ("2026-11-29T17:00+01:00", at(17, 0)),
        ("2026-11-29T16:00Z", at(17, 0)),
        (f"{at(17, 0):.0f}", at(17, 0)),
        (f"{at(17, 0):.3f}", at(17, 0)),
        ("30m ago", NOW - 1800),
        ("1.5h ago", NOW - 5400),
        ("2 hours ago", NOW - 7200),
        ("start", SPAN[0]),
        ("END", SPAN[1]),
    ],
)
def test_a_time_is_read(text: str, expected: float):
    assert read_time(text, now=NOW, span=SPAN, zone=ZONE) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "noon", "25:00", "17:61", "2026-13-01", "1", "-5m ago"])
def test_what_is_no_time_says_what_would_be(text: str):
    with pytest.raises(TimeError, match="expected 17:00"):
        read_time(text, now=NOW, span=SPAN, zone=ZONE)


def test_the_last_half_hour_counts_back_from_the_end():
    bounds = read_bounds("last 30m", "end", now=NOW, span=SPAN, zone=ZONE)
    assert bounds == (SPAN[1] - 1800, SPAN[1])
    with pytest.raises(TimeError, match="--from"):
        read_bounds("start", "last 30m", now=NOW, span=SPAN, zone=ZONE)


def test_an_empty_window_is_refused():
    with pytest.raises(TimeError, match="the window is empty"):
        read_bounds("17:30", "17:00", now=NOW, span=SPAN, zone=ZONE)


def test_a_window_outside_the_data_says_what_the_store_covers():
    said = outside((NOW + 60, NOW + 120), SPAN, UTC)
    assert said is not None
    assert "the store covers 2026-11-29 15:30:00 UTC to 2026-11-29 17:29:00 UTC" in said
    assert outside((SPAN[0] - 60, SPAN[0] + 1), SPAN, UTC) is None
