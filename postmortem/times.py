"""Reads the instants a person types, against now and what the store covers. Reads no store."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo

from telemetry.verdict import when

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)(?:ec|in|inutes?|ours?|ays?|econds?)?"
_LAST = re.compile(rf"last\s+{_DURATION}")
_AGO = re.compile(rf"{_DURATION}\s+ago")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]+)?))?")
_EPOCH = re.compile(r"[0-9]{9,11}(?:\.[0-9]+)?")
# After a time of day: an offset, Z, or a zone's short name as the reports print it.
_ZONE = re.compile(r"(?<=[0-9])(?:\s*([+-][0-9]{2}(?::?[0-9]{2})?)|\s*(z)|\s+([a-z]{2,5}))$", re.I)
_DAY_S = 86400.0
_CHANGE_S = 0.5  # clocks change on whole seconds
_LATEST = datetime(9990, 1, 1, tzinfo=UTC).timestamp()  # beyond it no zone can be worked out
_REVERSED_S = 12 * 3600.0  # a window over midnight is shorter than this, else it is back to front

_NAMED = ("start", "end", "now")

FORMS = "17:00, 2026-11-29T17:00, 2026-11-29T17:00+01:00, unix seconds, 30m ago, start or end"


class TimeError(Exception):
    """A time that cannot be read; says which forms can."""


def read_last(text: str) -> float | None:
    """Seconds of `last 30m`; None where the text is not of that form."""
    found = _LAST.fullmatch(text.strip().lower())
    return _seconds(found) if found else None


def read_time(
    text: str,
    *,
    now: float,
    span: tuple[float, float],
    zone: tzinfo | None,
    after: float | None = None,
) -> float:
    """Unix seconds. One without a zone is in `zone` (None = the machine's). A time of day is the
    last one up to `now`, or the first one after `after`: what is asked about has happened. `start`
    and `end` are those of the store's span. Raises TimeError."""
    plain = text.strip().lower()
    if plain in _NAMED:
        return {"start": span[0], "end": span[1], "now": now}[plain]
    if ago := _AGO.fullmatch(plain):
        return _possible(now - _seconds(ago), text)
    if _EPOCH.fullmatch(plain):
        return _possible(float(plain), text)
    try:
        body, own = _split_zone(text.strip())
        if found := _CLOCK.fullmatch(body):
            return _occurrence(found, own, now, zone, after)
        return _possible(_instant(datetime.fromisoformat(body), own, zone), text)
    except (ValueError, OverflowError, OSError) as e:
        why = f" ({e})" if isinstance(e, _UnknownZone) else ""
        raise TimeError(f"{text!r} is no time{why}: expected {FORMS}") from e


class _UnknownZone(ValueError):
    """The short name is not that of the zone at hand."""


def _seconds(found: re.Match[str]) -> float:
    return float(found[1]) * _UNITS_S[found[2]]


def _possible(instant: float, text: str) -> float:
    """Refuse what lies where no calendar reaches."""
    if not (math.isfinite(instant) and 0.0 <= instant <= _LATEST):
        raise TimeError(f"{text!r} lies before 1970 or after 9990: expected {FORMS}")
    return instant


def _split_zone(text: str) -> tuple[str, tzinfo | str | None]:
    """The text without its zone, and that: a zone, a short name to compare, or None."""
    found = _ZONE.search(text)
    if found is None or ":" not in text[: found.start()]:
        return text, None
    offset, zulu, short = found.groups()
    body = text[: found.start()]
    if short and short.lower() in ("am", "pm"):
        return text, None
    if zulu or (short and short.upper() in ("UTC", "GMT")):
        return body, UTC
    if offset:
        digits = offset[1:].replace(":", "").ljust(4, "0")
        ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return body, timezone(-ahead if offset[0] == "-" else ahead)
    return body, short


def _occurrence(
    found: re.Match[str],
    own: tzinfo | str | None,
    now: float,
    zone: tzinfo | None,
    after: float | None,
) -> float:
    """The time of day on the day that is meant."""
    today = datetime.fromtimestamp(now if after is None else after, _zone_of(own, zone)).date()
    into = timedelta(seconds=_of_day_s(found))
    for day in (1, 0, -1) if after is None else (-1, 0, 1):
        at = _instant(datetime.combine(today + timedelta(days=day), time(0)) + into, own, zone)
        if at <= now if after is None else at > after:
            return at
    return at


def _of_day_s(found: re.Match[str]) -> float:
    """Seconds into the day; 24:00 is the midnight that ends it. Raises ValueError."""
    hour, minute, second = int(found[1]), int(found[2]), float(found[3] or 0)
    into = 3600.0 * hour + 60.0 * minute + second
    if minute > 59 or second >= 60 or into > _DAY_S:
        raise ValueError("no time of day")
    return into


def _zone_of(own: tzinfo | str | None, zone: tzinfo | None) -> tzinfo | None:
    return own if isinstance(own, tzinfo) else zone


def _instant(moment: datetime, own: tzinfo | str | None, zone: tzinfo | None) -> float:
    """A short name must be the zone's own at that moment; it also tells a repeated hour apart."""
    chosen = _zone_of(own, zone)
    if moment.tzinfo is None and chosen is not None:
        moment = moment.replace(tzinfo=chosen)
    if not isinstance(own, str):
        return _that_comes(moment, chosen)
    names = []
    for fold in (0, 1):
        at = moment.replace(fold=fold).timestamp()
        local = (
            datetime.fromtimestamp(at, zone) if zone else datetime.fromtimestamp(at).astimezone()
        )
        names.append(local.tzname() or "")
        if names[-1].upper() == own.upper():
            return at
    raise _UnknownZone(f"the zone {own} is not this one, {names[0]}: give an offset like +01:00")


def _that_comes(moment: datetime, zone: tzinfo | None) -> float:
    """Unix seconds. A time that a change of clocks leaves out is the instant of the change: read
    as an hour later it could lie after the end of the window that it begins."""
    later = moment.timestamp()
    earlier = moment.replace(fold=1).timestamp()
    if earlier >= later:  # it comes once; or twice, and the first is meant
        return later

    def offset(at: float) -> timedelta | None:
        there = datetime.fromtimestamp(at, zone) if zone else datetime.fromtimestamp(at)
        return (there if zone else there.astimezone()).utcoffset()

    before = offset(earlier)
    while later - earlier > _CHANGE_S:
        middle = (earlier + later) / 2
        if offset(middle) == before:
            earlier = middle
        else:
            later = middle
    return round(later / _CHANGE_S / 2) * _CHANGE_S * 2


def read_bounds(
    begin: str, end: str, *, now: float, span: tuple[float, float], zone: tzinfo | None
) -> tuple[float, float]:
    """`--from` and `--to`. `--from "last 30m"` counts back from `--to`; of two times of day the
    second is the next one after the first, over midnight if need be. Raises TimeError."""
    if read_last(end) is not None:
        raise TimeError(f'{end!r} says how long, not until when: give it as --from "{end}"')
    length = read_last(begin)
    if length is not None:
        last = read_time(end, now=now, span=span, zone=zone)
        first = _possible(last - length, begin)
    elif is_clock(end) and begin.strip().lower() not in _NAMED:
        first = read_time(begin, now=now, span=span, zone=zone)
        last = read_time(end, now=now, span=span, zone=zone, after=first)
        if last - first > _REVERSED_S and is_clock(begin) and _not_later(end, begin):
            last -= _DAY_S
    else:
        last = read_time(end, now=now, span=span, zone=zone)
        until = now if end.strip().lower() in _NAMED else min(now, last)
        first = read_time(begin, now=until if is_clock(begin) else now, span=span, zone=zone)
    if first >= last:
        raise TimeError(
            f"the window is empty: it begins {when(first, zone)} and ends {when(last, zone)}; "
            f"the store covers {when(span[0], zone)} to {when(span[1], zone)}"
        )
    return first, last


def is_clock(text: str) -> bool:
    """Whether the text is a time of day, without a date."""
    return _CLOCK.match(text.strip()) is not None


def _not_later(one: str, other: str) -> bool:
    """Whether a time of day is no later in the day than another."""
    a, b = _CLOCK.match(one.strip()), _CLOCK.match(other.strip())
    return a is not None and b is not None and _of_day_s(a) <= _of_day_s(b)


def outside(
    bounds: tuple[float, float], span: tuple[float, float], zone: tzinfo | None
) -> str | None:
    """A sentence where the window lies outside the data altogether; None where it touches it."""
    if bounds[1] > span[0] and bounds[0] < span[1]:
        return None
    days = timedelta(seconds=span[1] - span[0])
    return (
        f"nothing is stored between {when(bounds[0], zone)} and {when(bounds[1], zone)}: "
        f"the store covers {when(span[0], zone)} to {when(span[1], zone)} "
        f"({str(days).split('.')[0]}); --from start --to end takes all of it"
    )
