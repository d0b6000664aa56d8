"""Plays a recorded store as if it were live: the same rows, the same snapshot, at a turned time.

What is shown at a moment is what had been recorded for good by then: closed buckets, ended
requests, past events. Needs no engine, no model and no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import Protocol

from console.feed import HISTORY_S, Judge
from console.formats import day
from console.panels import Snapshot, Tick
from console.rows import Rows, Source, read_rows
from console.snapshot import WINDOW_S, build_snapshot

FOREVER_S = 4e9  # past any recording: policies and runs are read from the beginning
LATE_BUCKETS = 2.5  # a closed bucket may be so many buckets old before its picture counts as stale


class ReplayError(Exception):
    """A recording cannot be played; says why."""


class Recorded(Source, Protocol):
    """A source that knows from when to when it reaches (unix seconds), None when it is empty."""

    def span(self) -> tuple[float, float] | None: ...


class ReplayFeed:
    """A feed whose now runs from the recording's first closed bucket to its end, and stays there.

    `speed` seconds of the recording pass in one of `clock` (monotonic seconds). Nothing is read
    before the first `snapshot()`; the recording is then held in memory. `start_s` skips so far
    into it. Raises ReplayError from `snapshot` where the recording is empty.
    """

    def __init__(
        self,
        source: Recorded,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        window_s: float = WINDOW_S,
        history_s: float = HISTORY_S,
        judge: Judge | None = None,
        pool: str | None = None,
        start_s: float = 0.0,
        tz: tzinfo | None = None,
    ) -> None:
        if not speed > 0.0:
            raise ReplayError(f"a replay's speed must be above 0, got {speed:g}")
        self._source = source
        self._speed = speed
        self._clock = clock
        self._window_s = window_s
        self._history_s = max(history_s, window_s)
        self._judge = judge
        self._pool = pool
        self._skip_s = max(0.0, start_s)
        self._tz = tz
        self._began: float | None = None
        self._rows = Rows()
        self._first = self._last = 0.0
        self._bucket_s = 0.0

    @property
    def finished(self) -> bool:
        """The recording's end has been reached; the last picture is held."""
        return self._began is not None and self._at() >= self._last

    @property
    def span(self) -> tuple[float, float]:
        """From the first picture to the last, unix seconds; reads the recording if need be."""
        self._load()
        return self._first, self._last

    def snapshot(self) -> Snapshot:
        """The picture at the moment the replay has come to."""
        self._load()
        now = self._at()
        rows = self._rows.as_of(now).since(now - self._history_s)
        picture = build_snapshot(
            rows,
            now,
            window_s=self._window_s,
            pool=self._pool,
            mode=self._label(),
            verdict=self._judge(rows, now) if self._judge else None,
            stale_after_s=LATE_BUCKETS * self._bucket_s,
        )
        if now < self._last:
            return picture
        end = Tick(now, "end", "the recording ends here; its last picture stays")
        return replace(picture, ticker=(*picture.ticker, end))

    def _label(self) -> str:
        return f"REPLAY of a recorded run, {day(self._first, self._tz)}, ×{self._speed:g}"

    def _at(self) -> float:
        began = self._began if self._began is not None else self._clock()
        return min(self._last, self._first + self._speed * (self._clock() - began))

    def _load(self) -> None:
        if self._began is not None:
            return
        reach = self._source.span()
        if reach is None:
            raise ReplayError("the recording holds no buckets: nothing to play")
        rows = read_rows(self._source, reach[0], min(FOREVER_S, reach[1] + 1.0))
        if not rows.engines:
            raise ReplayError("the recording holds no engine's buckets: nothing to play")
        self._rows = rows
        ends = sorted(r.bucket_start + r.bucket_s for r in rows.engines)
        self._bucket_s = max(r.bucket_s for r in rows.engines)
        self._last = ends[-1]
        # Begin where the first bucket has just closed, so that the first picture has rows.
        self._first = min(self._last, ends[0] + self._skip_s)
        self._began = self._clock()


def open_recording(folder: Path) -> Recorded:
    """The recorded store in `folder`. Raises ReplayError where there is none."""
    if not folder.is_dir():
        raise ReplayError(f"{folder}: no such folder; a recording is a store's folder")
    from telemetry.source import open_source  # only here: it brings DuckDB

    source: Recorded = open_source(str(folder))
    return source


def replay_incident(
    name: str,
    speed: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    *,
    judge: Judge | None = None,
    tz: tzinfo | None = None,
) -> ReplayFeed:
    """The recorded run that ships with incident `name`. Raises IncidentError, ReplayError."""
    from sample_incidents import incident_path

    source = open_recording(incident_path(name) / "store")
    return ReplayFeed(source, speed, clock, judge=judge, tz=tz)
