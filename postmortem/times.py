"""Reads the instants a person types, against what the store covers. Reads no store."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta, tzinfo

from telemetry.verdict import when

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = r"(\d+(?:\.\d+)?)\s*(s|m|h|d)(?:ec|in|inutes?|ours?|ays?|econds?)?"
_LAST = re.compile(rf"last\s+{_DURATION}")
_AGO = re.compile(rf"{_DURATION}\s+ago")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?")
_EPOCH = re.compile(r"\d{9,11}(?:\.\d+)?")

FORMS = "17:00, 2026-11-29T17:00, 2026-11-29T17:00+01:00, unix seconds, 30m ago, start or end"


class TimeError(Exception):
    """A time that cannot be read; says which forms can."""


def read_last(text: str) -> float | None:
    """Seconds of `last 30m`; None where the text is not of that form."""
    found = _LAST.fullmatch(text.strip().lower())
    return _seconds(found) if found else None


def read_time(text: str, *, now: float, span: tuple[float, float], zone: tzinfo | None) -> float:
    """Unix seconds. A time of day is today's, and one without a zone is in `zone` (None = the
    machine's). `start` and `end` are those of the store's span. Raises TimeError."""
    plain = text.strip().lower()
    if plain in ("start", "end", "now"):
        return {"start": span[0], "end": span[1], "now": now}[plain]
    if ago := _AGO.fullmatch(plain):
        return now - _seconds(ago)
    if _EPOCH.fullmatch(plain):
        return float(plain)
    try:
        if _CLOCK.fullmatch(plain):
            padded = plain if plain.index(":") == 2 else "0" + plain
            today = datetime.fromtimestamp(now, zone).date()
            return _instant(datetime.combine(today, time.fromisoformat(padded)), zone)
        return _instant(datetime.fromisoformat(text.strip()), zone)
    except (ValueError, OverflowError) as e:
        raise TimeError(f"{text!r} is no time: expected {FORMS}") from e


def _seconds(found: re.Match[str]) -> float:
    return float(found[1]) * _UNITS_S[found[2]]


def _instant(moment: datetime, zone: tzinfo | None) -> float:
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    return moment.timestamp()


def read_bounds(
    begin: str, end: str, *, now: float, span: tuple[float, float], zone: tzinfo | None
) -> tuple[float, float]:
    """`--from` and `--to`. `--from "last 30m"` counts back from `--to`. Raises TimeError."""
    if read_last(end) is not None:
        raise TimeError(f'{end!r} says how long, not until when: give it as --from "{end}"')
    last = read_time(end, now=now, span=span, zone=zone)
    length = read_last(begin)
    first = last - length if length is not None else read_time(begin, now=now, span=span, zone=zone)
    if first >= last:
        raise TimeError(
            f"the window is empty: it begins {when(first, zone)} and ends {when(last, zone)}"
        )
    return first, last


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
