"""How instants are rounded, and which instant places a row in time. Owns no clock.

Inside Python an instant is unix seconds as float; stored and on the wire it is whole microseconds
UTC. Microseconds of any date before 2255 are exact in a float, so the way there and back is too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1)
DAY_S = 86_400.0
# Instants outside these bounds come from a broken sender; nanoseconds end in 2554.
FIRST_US, LAST_US = 0, 9_000_000_000_000_000

# The column that places a log row in time. `adapter` has none: it belongs to its run.
INSTANT_OF_LOG: dict[str, str] = {
    "request": "arrived",
    "event": "at",
    "policy": "at",
    "step_sample": "at",
    "engine_run": "started",
    "foreign_metric": "at",
    "series_state": "at",
}


def micros(unix_s: float) -> int:
    """Whole microseconds of an instant."""
    return round(unix_s * 1e6)


def unix_seconds(us: int) -> float:
    """The inverse of `micros`."""
    return us / 1e6


def naive_utc(unix_s: float) -> datetime:
    """The naive UTC datetime that the store keeps as TIMESTAMP."""
    return EPOCH + timedelta(microseconds=micros(unix_s))


def day_of(unix_s: float) -> str:
    """The UTC day, `YYYY-MM-DD`, an instant falls in."""
    return naive_utc(unix_s).date().isoformat()


def day_start(day: str) -> float:
    """Unix seconds of the first instant of a UTC day. Raises ValueError for no date."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
