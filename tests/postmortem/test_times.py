"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postmortem.times import TimeError, outside, read_bounds, read_time
from telemetry.verdict import when

ZONE = timezone(timedelta(hours=1), "CET")
NOW = datetime(2026, 11, 29, 18, 30, tzinfo=ZONE).timestamp()
SPAN = (NOW - 7200, NOW - 60)


def at(hour: int, minute: int, second: float = 0, day: int = 29) -> float:
    return datetime(2026, 11, day, hour, minute, tzinfo=ZONE).timestamp() + second


def bounds(begin: str, end: str, now: float = NOW) -> tuple[float, float]:
    return read_bounds(begin, end, now=now, span=SPAN, zone=ZONE)


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
        ("2026-11-29T16:00:00z", at(17, 0)),
        ("2026-11-29 16:00 UTC", at(17, 0)),
        ("2026-11-29 17:00:00 CET", at(17, 0)),
        ("16:00Z", at(17, 0)),
        ("16:00 utc", at(17, 0)),
        ("18:00+02:00", at(17, 0)),
        ("11:00-0500", at(17, 0)),
        ("17:00 CET", at(17, 0)),
        ("2026-11-29", at(0, 0)),
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


@pytest.mark.parametrize(
    "text",
    ["", "noon", "25:00", "24:01", "17:61", "17:00:60", "2026-13-01", "1", "-5m ago", "5:00 pm",
     "17:00 XYZ", "17:00+99:00", "nan", "inf", "0001-01-01", "１７:００", "99999999999d ago"],
)  # fmt: skip
def test_what_is_no_time_says_what_would_be(text: str):
    with pytest.raises(TimeError, match="expected 17:00"):
        read_time(text, now=NOW, span=SPAN, zone=ZONE)
    with pytest.raises(TimeError, match="expected 17:00"):
        bounds("start", text)


def test_a_zone_that_is_not_the_readers_is_named_not_guessed():
    with pytest.raises(TimeError, match="the zone EST is not this one, CET: give an offset"):
        read_time("17:00 EST", now=NOW, span=SPAN, zone=ZONE)


def test_the_next_morning_five_oclock_is_yesterdays():
    morning = at(9, 0, day=30)
    assert bounds("17:00", "17:30", now=morning) == (at(17, 0), at(17, 30))
    assert bounds("17:00", "end", now=morning)[0] == at(17, 0)
    assert bounds("start", "17:30", now=morning)[1] == at(17, 30)


def test_while_it_goes_on_the_end_may_lie_ahead():
    assert bounds("18:00", "19:00") == (at(18, 0), at(19, 0))


def test_two_times_of_day_may_lie_on_either_side_of_midnight():
    morning = at(9, 0, day=30)
    assert bounds("23:50", "00:10", now=morning) == (at(23, 50), at(0, 10, day=30))
    assert bounds("23:00", "24:00", now=morning) == (at(23, 0), at(0, 0, day=30))
    assert bounds("0:00", "24:00") == (at(0, 0), at(0, 0, day=30))


def test_a_time_of_day_belongs_to_the_date_given_on_the_other_side():
    assert bounds("2026-11-27T17:00", "17:30") == (at(17, 0, day=27), at(17, 30, day=27))
    assert bounds("17:00", "2026-11-27T17:30") == (at(17, 0, day=27), at(17, 30, day=27))


def test_the_last_half_hour_counts_back_from_the_end():
    assert bounds("last 30m", "end") == (SPAN[1] - 1800, SPAN[1])
    assert bounds("last 30m", "17:30") == (at(17, 0), at(17, 30))
    with pytest.raises(TimeError, match="--from"):
        bounds("start", "last 30m")
    with pytest.raises(TimeError, match="before 1970"):
        bounds("last 999999999d", "end")


@pytest.mark.parametrize(
    ("begin", "end"),
    [("17:30", "17:00"), ("17:00", "17:00"), ("end", "start"), ("now", "end"), ("18:29:30", "end")],
)
def test_an_empty_or_reversed_window_is_refused_and_the_data_named(begin: str, end: str):
    with pytest.raises(TimeError, match=r"the window is empty.*the store covers 2026-11-29 16:30"):
        bounds(begin, end)


def test_a_window_outside_the_data_says_what_the_store_covers():
    said = outside((NOW + 60, NOW + 120), SPAN, UTC)
    assert said is not None
    assert "the store covers 2026-11-29 15:30:00 UTC to 2026-11-29 17:29:00 UTC" in said
    assert outside((SPAN[0] - 60, SPAN[0] + 1), SPAN, UTC) is None


@given(
    at_s=st.integers(1_700_000_000, 1_900_000_000),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
def test_every_instant_the_report_prints_can_be_given_back_to_it(at_s: int, zone: str):
    """The hour that comes twice in autumn too: the short name of the zone tells it apart."""
    tz = ZoneInfo(zone)
    printed = when(float(at_s), tz)
    if printed.rsplit(" ", 1)[1].isalpha():
        assert read_time(printed, now=NOW, span=SPAN, zone=tz) == at_s
    else:
        near = read_time(printed, now=NOW, span=SPAN, zone=tz)
        assert datetime.fromtimestamp(near, UTC) == datetime.fromtimestamp(at_s, UTC)
