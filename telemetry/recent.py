"""The last hour of one process's telemetry, encoded, for live answers. Owns a bound; sends nothing.

Every bucket stands here in its newest state only, so that a dead store never blanks the console.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from telemetry.conventions import Emitter
from telemetry.instants import INSTANT_OF_LOG
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

    data: bytes
    first_s: float
    last_s: float


class Recent:
    """Within `keep_s` of the newest bucket and within `limit_bytes`; not thread-safe."""

    def __init__(self, keep_s: float, limit_bytes: int) -> None:
        self._keep_s = keep_s
        self._limit_bytes = limit_bytes
        self._metrics: dict[Place, tuple[tuple[bool, int], _Kept]] = {}
        self._logs: deque[_Kept] = deque()
        self._of_run: list[bytes] = []  # what the run is; said once, true as long as it lasts
        self._bytes = 0
        self._newest_s = float("-inf")

    def add_metrics(self, place: Place, batch: Batch, data: bytes) -> None:
        mark = (batch.sealed, batch.seq)
        held = self._metrics.get(place)
        if held is not None:
            if held[0] > mark:
                return
            self._bytes -= len(held[1].data)
        first = min(r.bucket_start for r in batch.minutes)
        last = max(r.bucket_start + r.bucket_s for r in batch.minutes)
        self._metrics[place] = (mark, _Kept(data, first, last))
        self._added(data, last)

    def add_logs(self, batch: Batch, data: bytes) -> None:
        if any(isinstance(row, EngineRun | AdapterRecord) for row in batch.logs):
            self._of_run.append(data)
            self._bytes += len(data)
            return
        instants = [getattr(row, INSTANT_OF_LOG[TABLE_OF[type(row)].name]) for row in batch.logs]
        self._logs.append(_Kept(data, min(instants), max(instants)))
        self._added(data, max(instants))

    def _added(self, data: bytes, last_s: float) -> None:
        self._bytes += len(data)
        self._newest_s = max(self._newest_s, last_s)
        horizon = self._newest_s - self._keep_s
        for place in [p for p, (_, kept) in self._metrics.items() if kept.last_s <= horizon]:
            self._bytes -= len(self._metrics.pop(place)[1].data)
        while self._logs and self._logs[0].last_s < horizon:
            self._bytes -= len(self._logs.popleft().data)
        while self._bytes > self._limit_bytes and (self._logs or self._metrics):
            oldest = min(self._metrics, key=lambda p: p[4], default=None)
            if oldest is None or (self._logs and self._logs[0].first_s <= oldest[4]):
                self._bytes -= len(self._logs.popleft().data)
            else:
                self._bytes -= len(self._metrics.pop(oldest)[1].data)

    def between(self, start: float, end: float) -> tuple[list[bytes], list[bytes]]:
        """(metrics requests, logs requests) that touch [start, end), oldest first."""
        held = sorted(self._metrics.items(), key=lambda entry: entry[0][4])
        metrics = [k.data for _, (_, k) in held if k.first_s < end and k.last_s > start]
        logs = [k.data for k in self._logs if k.first_s < end and k.last_s >= start]
        return metrics, self._of_run + logs
