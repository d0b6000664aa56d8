"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
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


BERLIN = ZoneInfo("Europe/Berlin")


class Changing(tzinfo):
    """A zone that changes by half an hour at an odd hour, as no shipped one does: forward on 10
    June at 02:00, back on 20 October at 03:15 (of summer)."""

    def _summer(self, moment: datetime) -> bool | None:
        """None in the half hour that comes twice."""
        first = datetime(moment.year, 6, 10, 2)
        last = datetime(moment.year, 10, 20, 2, 45)
        bare = moment.replace(tzinfo=None)
        if last <= bare < last + timedelta(minutes=30):
            return None
        return first <= bare < last

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1) + self.dst(moment)

    def dst(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        summer = self._summer(moment)
        on = moment.fold == 0 if summer is None else summer
        return timedelta(minutes=30 if on else 0)

    def tzname(self, moment: datetime | None) -> str:
        return "SUM" if self.dst(moment) else "WIN"

    def fromutc(self, moment: datetime) -> datetime:
        for fold, hours in ((0, 1.5), (1, 1.0)):
            local = (moment + timedelta(hours=hours)).replace(fold=fold)
            if self.utcoffset(local) == timedelta(hours=hours):
                return local
        return moment + timedelta(hours=1)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        (BERLIN, (2026, 3, 29), 23.0),
        (BERLIN, (2026, 10, 25), 25.0),
        (Changing(), (2026, 6, 10), 23.5),
        (Changing(), (2026, 10, 20), 24.5),
    ],
)
def test_a_day_on_which_clocks_change_is_as_long_as_it_is(zone, day, hours):
    now = datetime(*day, tzinfo=zone).timestamp() + 3 * 86400
    date = f"{day[0]}-{day[1]:02}-{day[2]:02}"
    first, last = read_bounds(f"{date}T00:00", "24:00", now=now, span=(0, now), zone=zone)
    assert (last - first) / 3600 == hours


def test_the_hour_that_comes_twice_is_told_apart_by_the_zones_name():
    now = datetime(2026, 10, 25, 12, tzinfo=BERLIN).timestamp()
    asked = [
        read_time(f"2026-10-25 02:30 {name}", now=now, span=(0, now), zone=BERLIN)
        for name in ("CEST", "CET")
    ]
    assert asked[1] - asked[0] == 3600
    assert [when(t, BERLIN) for t in asked] == [
        "2026-10-25 02:30:00 CEST", "2026-10-25 02:30:00 CET",
    ]  # fmt: skip


@pytest.mark.parametrize("zone", [BERLIN, Changing()])
@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 6, 10), (2026, 10, 20), (2026, 10, 25)])
def test_a_window_over_a_change_of_clocks_is_never_back_to_front(zone, day):
    morning = datetime(*day, 9, tzinfo=zone).timestamp()
    span = (morning - 86400, morning)
    for begin, end in (("23:30", "03:30"), ("01:30", "03:30"), ("02:50", "03:10")):
        first, last = read_bounds(begin, end, now=morning, span=span, zone=zone)
        assert first < last <= morning
        assert last - first < 6 * 3600


def test_a_time_that_a_change_of_clocks_leaves_out_is_the_instant_of_the_change():
    """02:30 does not come on that day."""
    now = datetime(2026, 3, 29, 12, tzinfo=BERLIN).timestamp()
    read = read_time("2026-03-29T02:30", now=now, span=(0, now), zone=BERLIN)
    assert when(read, BERLIN) == "2026-03-29 03:00:00 CEST"


def test_the_last_half_hour_is_half_an_hour_over_a_change_of_clocks():
    end = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1).timestamp()
    now = end + 3600
    first, last = read_bounds("last 30m", "end", now=now, span=(0, end), zone=BERLIN)
    assert last - first == 1800
    assert when(first, BERLIN) == "2026-10-25 02:40:00 CEST"
