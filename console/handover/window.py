"""The stretch of time that is handed over: from an onset to now, or as it is typed. Pure."""

from __future__ import annotations

from datetime import tzinfo

from console.handover.copied import instant
from console.panels import ReadTime, Snapshot

BEFORE_S = 120.0  # shown before an onset
USUAL_S = 1800.0
LONGEST_S = 86_400.0
BETWEEN = " to "


def usual(picture: Snapshot) -> tuple[float, float]:
    """The incident with what led to it; without one the last half hour."""
    end = picture.now if picture.data_at is None else picture.data_at
    since = picture.verdict.since
    return (min(since, end) - BEFORE_S if since is not None else end - USUAL_S), end


def told(window: tuple[float, float], tz: tzinfo | None = None) -> str:
    """As it stands in the prompt, to be changed."""
    return BETWEEN.join(instant(float(round(t)), tz) for t in window)


def read(text: str, picture: Snapshot, read_time: ReadTime) -> tuple[float, float]:
    """Two instants with `to` between them. Raises ValueError."""
    first, between, last = text.strip().partition(BETWEEN)
    if not between:
        raise ValueError(f"{text.strip()!r}: expected two times, as 17:00 to 17:30")
    start, end = read_time(first.strip(), picture), read_time(last.strip(), picture)
    if not start < end:
        raise ValueError(f"{text.strip()!r} ends before it begins")
    if end - start > LONGEST_S:
        raise ValueError(f"{text.strip()!r} is longer than a day: give a shorter time")
    return start, end
