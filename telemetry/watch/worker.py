"""What a worker knows of its tenants now, kept only while somebody watches. Owns that memory.

The first look reads what the exporter has kept; from then on batches are heard as they are made,
which costs the exporter's thread an append. When nobody has looked for a while, all is let go:
an unwatched worker pays nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from telemetry.otlp.decode import decode_metrics
from telemetry.records import Batch
from telemetry.watch.frame import Totals
from telemetry.watch.state import WatchState

UNWATCHED_S = 60.0
_BUCKET_S = 120.0  # the bucket that a window begins in, and the open one


class History(Protocol):
    """Whoever keeps the last hour (`telemetry.pipeline.exporter.Exporter`)."""

    def recent(self, start: float, end: float) -> tuple[list[bytes], list[bytes]]: ...

    def listen(self, heard: Callable[[Batch], object] | None) -> None: ...


class WorkerWatch:
    """`look` as `telemetry.watch.service` wants it. Thread-safe; `wall` is unix seconds."""

    def __init__(self, history: History, wall: Callable[[], float] = time.time) -> None:
        self._history = history
        self._wall = wall
        self._lock = threading.Lock()  # of who begins and ends; never held while heard
        self._state: WatchState | None = None
        self._window_s = 0.0
        self._looked_at = 0.0

    def look(self, now: float, window_s: float) -> Totals:
        with self._lock:
            self._looked_at = now
            state = self._state
            if state is None:
                state = self._state = WatchState()
                # First this: what comes twice counts once, what is missed is missed.
                self._history.listen(self._hear)
                self._window_s = 0.0
            if window_s > self._window_s:
                self._window_s = window_s
                self._recall(state, now - window_s - _BUCKET_S)
        return state.look(now, window_s)

    @property
    def is_watched(self) -> bool:
        return self._state is not None

    def _recall(self, state: WatchState, start: float) -> None:
        metrics, _ = self._history.recent(start, float("inf"))
        for data in metrics:
            decoded = decode_metrics(data)
            state.hear(decoded.packed, self._wall())

    def _hear(self, batch: Batch) -> None:
        """On the exporter's thread, under its lock."""
        state, now = self._state, self._wall()
        if state is None:
            return
        if now - self._looked_at > UNWATCHED_S:
            self._state = None
            self._history.listen(None)
            return
        state.hear((batch,), now)
