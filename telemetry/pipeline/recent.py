"""The last hour of one process's telemetry, encoded, for live answers. Owns a bound; sends nothing.

Every bucket stands here in its newest state only, with all its parts, so that a dead store never
blanks the console.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from telemetry.conventions import Emitter
from telemetry.instants import INSTANT_OF_LOG
from telemetry.pipeline.packed import Packed
from telemetry.records import AdapterRecord, Batch, EngineRun
from telemetry.tables import TABLE_OF

# engine, run_id, pool, emitter, start of the bucket: what a newer state replaces.
Place = tuple[str, str, str, Emitter, float]


def place_of(batch: Batch) -> Place:
    """Where a batch with minute rows stands. Raises ValueError without any."""
    first = min(row.bucket_start for row in batch.minutes)
    return (batch.engine, batch.run_id, batch.pool, batch.emitter, first)


@dataclass(frozen=True, slots=True)
class _Kept:
    """One encoded request for live answers, and the instants it spans."""

    data: Packed
    first_s: float
    last_s: float
    number: int  # counts up as they come


class Recent:
    """Within `keep_s` of the newest bucket and within `limit_bytes`; not thread-safe."""

    def __init__(self, keep_s: float, limit_bytes: int) -> None:
        self._keep_s = keep_s
        self._limit_bytes = limit_bytes
        self._metrics: dict[Place, tuple[tuple[bool, int], list[_Kept]]] = {}
        self._logs: deque[_Kept] = deque()
        self._of_run: list[_Kept] = []  # what the run is; said once, true as long as it lasts
        self._bytes = 0
        self._newest_s = float("-inf")
        self._number = 0

    def add_metrics(
        self, place: Place, batch: Batch, data: Packed, *, is_first: bool = True
    ) -> None:
        """Keep a state of a bucket, or a further part of it. An older state goes; a part of one
        that was too large to keep is not kept either."""
        mark = (batch.sealed, batch.seq)
        held = self._metrics.get(place)
        if held is not None and held[0] > mark:
            return
        if is_first:
            if held is not None:
                self._forget(place)
            self._metrics[place] = (mark, [])
        elif held is None or held[0] != mark:
            return
        first = min(r.bucket_start for r in batch.minutes)
        last = max(r.bucket_start + r.bucket_s for r in batch.minutes)
        self._metrics[place][1].append(_Kept(data, first, last, self._next()))
        self._added(data, last)

    def add_logs(self, batch: Batch, data: Packed) -> None:
        if any(isinstance(row, EngineRun | AdapterRecord) for row in batch.logs):
            self._of_run.append(_Kept(data, 0.0, 0.0, self._next()))
            self._bytes += data.size_bytes
            return
        instants = [getattr(row, INSTANT_OF_LOG[TABLE_OF[type(row)].name]) for row in batch.logs]
        self._logs.append(_Kept(data, min(instants), max(instants), self._next()))
        self._added(data, max(instants))

    def _added(self, data: Packed, last_s: float) -> None:
        self._bytes += data.size_bytes
        self._newest_s = max(self._newest_s, last_s)
        horizon = self._newest_s - self._keep_s
        for place in [p for p, (_, kept) in self._metrics.items() if _end(kept) <= horizon]:
            self._forget(place)
        while self._logs and self._logs[0].last_s < horizon:
            self._bytes -= self._logs.popleft().data.size_bytes
        while self._bytes > self._limit_bytes and (self._logs or self._metrics):
            oldest = min(self._metrics, key=lambda p: p[4], default=None)
            if oldest is None or (self._logs and self._logs[0].first_s <= oldest[4]):
                self._bytes -= self._logs.popleft().data.size_bytes
            else:
                self._forget(oldest)

    def _forget(self, place: Place) -> None:
        self._bytes -= sum(kept.data.size_bytes for kept in self._metrics.pop(place)[1])

    def between(self, start: float, end: float) -> tuple[list[bytes], list[bytes]]:
        """(metrics requests, logs requests) that touch [start, end), oldest first."""
        held = sorted(self._metrics.items(), key=lambda entry: entry[0][4])
        metrics = [k for _, (_, parts) in held for k in parts if k.first_s < end]
        logs = [k for k in self._logs if k.first_s < end and k.last_s >= start]
        return (
            [k.data.plain() for k in metrics if k.last_s > start],
            [k.data.plain() for k in (*self._of_run, *logs)],
        )

    def newer(self, after: int, most_bytes: int) -> tuple[list[bytes], list[bytes], int, bool]:
        """What has come since the cursor `after` (0: all there is), in the order it came and of
        `most_bytes` or one request: (metrics requests, logs requests, the new cursor, whether
        there is more)."""
        metrics = [
            (k, True) for _, parts in self._metrics.values() for k in parts if k.number > after
        ]
        logs = [(k, False) for k in (*self._of_run, *self._logs) if k.number > after]
        found: tuple[list[bytes], list[bytes]] = ([], [])
        size, cursor = 0, after
        for kept, is_metrics in sorted([*metrics, *logs], key=lambda one: one[0].number):
            size += kept.data.sent_bytes
            if cursor > after and size > most_bytes:
                return *found, cursor, True
            found[0 if is_metrics else 1].append(kept.data.plain())
            cursor = kept.number
        return *found, max(cursor, self._number), False

    def _next(self) -> int:
        self._number += 1
        return self._number


def _end(parts: list[_Kept]) -> float:
    return max((kept.last_s for kept in parts), default=float("inf"))
