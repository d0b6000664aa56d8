"""A frame of rows that are read, not heard: of a closed store, of any source."""

from __future__ import annotations

import time

from telemetry.source import Source
from telemetry.watch.frame import Asked, Frame, frame
from telemetry.watch.name_filter import NameFilter
from telemetry.watch.state import KEEP_S, WatchState


def recall(state: WatchState, source: Source, until: float | None = None) -> None:
    """Tell a new state what a source holds of its last minutes, or of those before `until`."""
    span = source.span()
    if span is None:
        return
    end = span[1] if until is None else min(span[1], until)
    start = end - KEEP_S - _longest_bucket_s(source)
    state.remember(
        source.read("tenant_minute", start, end), source.read("engine_minute", start, end)
    )


def _longest_bucket_s(source: Source) -> float:
    runs = source.read("engine_run", float("-inf"), float("inf"))
    return max((min(r.bucket_s or 60.0, 3600.0) for r in runs), default=60.0)


def watch_once(source: Source, asked: Asked, at: float | None = None) -> Frame:
    """One frame of any source's last minutes, by its rows: as of `at` (unix seconds), or of the
    newest one it has. Raises QueryError, StoreError."""
    state = WatchState()
    recall(state, source, at)
    span = source.span()
    now = at if at is not None else (span[1] if span is not None else 0.0)
    totals = state.look(now, asked.window_s)
    kept = NameFilter(asked.filter, time.monotonic).keeps(totals.names) if asked.filter else None
    return frame(totals, asked, kept, now)
