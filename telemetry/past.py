"""Which hours of days before belong to what is usual. Instants only; reads no rows."""

from __future__ import annotations

PAST_DAYS = 3
PAST_BUCKETS = 20  # of each day: 60 together, as many as are used of today
DAY_S = 86_400.0


def past_days(
    recorded: tuple[float, float] | None, start: float, end: float, first: float, bucket_s: float
) -> list[tuple[float, float]]:
    """The window's own hour on days before, oldest first, where the record reaches back so far: at
    most three days, and of each as many buckets as may be used. `first`: from here on the rows are
    today's. Days are 24 h long: across a change of the clocks the hour is off by one."""
    if recorded is None:
        return []
    length_s = min(end - start, PAST_BUCKETS * bucket_s)
    days = [(start - d * DAY_S, start - d * DAY_S + length_s) for d in range(PAST_DAYS, 0, -1)]
    return [(a, b) for a, b in days if a >= recorded[0] and b <= first]
