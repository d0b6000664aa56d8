"""Numbers as short text: at most five cells, None as a dash. Knows no rows."""

from __future__ import annotations

import math
from datetime import datetime, tzinfo

ABSENT = "-"
HALF_A_DAY_S = 43_200.0


def duration(seconds: float | None) -> str:
    """40ms, 9.4s, 41s, 12m, 3h."""
    if seconds is None:
        return ABSENT
    if seconds <= 0.0:
        return "0s"
    if seconds <= 0.0005:
        return "<1ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.95 and not float(seconds).is_integer():
        return f"{seconds:.1f}s"
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f}m"
    if seconds < 99.5 * 3600:
        return f"{seconds / 3600:.0f}h"
    return f"{seconds / 86400:.0f}d"


def whole(seconds: float | None) -> str:
    """An age, in whole seconds while it is short: 1s, 41s, 12m."""
    return duration(None if seconds is None else float(round(seconds)))


def span(seconds: float | None) -> str:
    """Sums of waiting, kept in seconds as long as they fit: 812s, 9.4s, 27m."""
    if seconds is not None and 99.5 <= seconds < 999.5:
        return f"{seconds:.0f}s"
    return duration(seconds)


def quantity(value: float | None) -> str:
    """7, 0.4, 212, 1.9k, 12k, 3.1M; a count that is whole stays whole."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    if value < 9.95 and not float(value).is_integer():
        return "<.1" if value < 0.05 else f"{value:.1f}"
    for limit, unit in ((999.5, ""), (999.5e3, "k"), (999.5e6, "M"), (999.5e9, "G")):
        if value < limit:
            scaled = value / (limit / 999.5)
            return f"{scaled:.1f}{unit}" if unit and scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0e}"


def percent(share: float | None) -> str:
    """0%, <1%, 71%, >99%, 100%: what is not nothing (or not all) does not read as if it were."""
    if share is None or math.isnan(share):
        return ABSENT
    if 0.0 < share < 0.005:
        return "<1%"
    if 0.995 <= share < 1.0:
        return ">99%"
    return f"{share * 100:.0f}%"


def clock(at: float, tz: tzinfo | None = None) -> str:
    """17:06:41, in the reader's zone unless another is given."""
    return datetime.fromtimestamp(at, tz).strftime("%H:%M:%S")


def zone(at: float, tz: tzinfo | None = None) -> str:
    return datetime.fromtimestamp(at, tz).astimezone(tz).tzname() or ""


def day(at: float, tz: tzinfo | None = None) -> str:
    return datetime.fromtimestamp(at, tz).strftime("%Y-%m-%d")


def when(at: float, now: float, tz: tzinfo | None = None) -> str:
    """The time of day, or the date (26-11-29) of what lies half a day back: both as wide."""
    return clock(at, tz) if now - at <= HALF_A_DAY_S else day(at, tz)[2:]
