"""Where a screen's snapshots come from: a source of rows, read again and again. Draws nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from console.panels import Snapshot, VerdictLines
from console.rows import Rows, Source, read_rows
from console.snapshot import WINDOW_S, build_snapshot

HISTORY_S = 900.0
WHOLE_EVERY_S = 10.0  # old rows hardly change: they are read again so often
SETTLED_S = 90.0  # beyond the window, what is older than this waits for the next whole reading
AHEAD_S = 2.0  # clocks of the engine and of this machine may differ by a little


class Feed(Protocol):
    """Anything that gives the picture of now. Called from one thread; may raise anything."""

    def snapshot(self) -> Snapshot: ...


class Judge(Protocol):
    """Says what rows mean at an instant, in the words every face uses."""

    def __call__(self, rows: Rows, now: float) -> VerdictLines: ...


class SourceFeed:
    """Live: reads the last minutes of a source and builds the picture of now.

    `clock` gives unix seconds; `phase` what a demo is doing, None where nobody says. `source` is
    used only from the thread that calls `snapshot`.
    """

    def __init__(
        self,
        source: Source,
        *,
        clock: Callable[[], float] = time.time,
        window_s: float = WINDOW_S,
        history_s: float = HISTORY_S,
        judge: Judge | None = None,
        phase: Callable[[], str | None] = lambda: None,
        pool: str | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._window_s = window_s
        self._history_s = max(history_s, window_s)
        self._judge = judge
        self._phase = phase
        self._pool = pool
        self._whole: Rows | None = None
        self._whole_at = 0.0

    def snapshot(self) -> Snapshot:
        """Raises whatever the source raises: the screen says so and keeps its last picture."""
        now = self._clock()
        rows = self._read(now)
        return build_snapshot(
            rows,
            now,
            window_s=self._window_s,
            pool=self._pool,
            phase=self._phase(),
            verdict=self._judge(rows, now) if self._judge else None,
        )

    def _read(self, now: float) -> Rows:
        """All of the history now and then; in between only what may still change."""
        start, end = now - self._history_s, now + AHEAD_S
        if self._whole is None or not 0.0 <= now - self._whole_at < WHOLE_EVERY_S:
            self._whole = read_rows(self._source, start, end)
            self._whole_at = now
            return self._whole
        cut = now - self._window_s - SETTLED_S
        recent = read_rows(self._source, cut, end, arrived_since=cut)
        return self._whole.before(cut).then(recent)
