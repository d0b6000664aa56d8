"""What leaves the store's process, as rows for who asks it. A pure function of the counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from telemetry.ask.reading import Result

if TYPE_CHECKING:
    from telemetry.outbound.outbound import OutboundStats

COLUMNS = (
    "endpoint", "signal", "sent", "waiting", "dropped", "why", "retries", "last_ok_unix_s",
    "last_error",
)  # fmt: skip


def told(stats: OutboundStats | None) -> Result:
    """A row an endpoint and signal, of points or spans since the start; `why` names what was
    dropped, most first. Rows that never came as far as an endpoint stand in one of their own.
    None: nothing is sent."""
    if stats is None:
        return Result(COLUMNS, ())
    rows: list[tuple[object, ...]] = [
        (
            lane.endpoint,
            lane.signal,
            lane.sent,
            lane.waiting,
            sum(lane.dropped.values()),
            _why(lane.dropped.items()),
            lane.retries,
            lane.last_ok_unix_s,
            lane.last_error or None,
        )
        for lane in stats.lanes
    ]
    lost = {"more came than could be looked at": stats.overrun, "too old or too new": stats.late}
    if any(lost.values()):
        why = _why(lost.items())
        rows.append(
            (None, "rows, before any endpoint", 0, 0, sum(lost.values()), why, 0, None, None)
        )
    return Result(COLUMNS, tuple(rows))


def _why(counts: Iterable[tuple[str, int]]) -> str | None:
    ordered = sorted((item for item in counts if item[1]), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{why} {count}" for why, count in ordered) or None
