"""Windows over rows that hardly change: buckets and their columns are made once and used again.

Owns what is kept from one window to the next; a bucket is the same as long as its rows are equal,
which of the very same objects is known at once. What a window means, `telemetry.window` says;
judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from telemetry.charged import Catalogue
from telemetry.grid import Floats, Grid
from telemetry.records import EngineMinute, InterferenceMinute, TenantMinute
from telemetry.window import WORKER_COLUMNS, Bucket, Window, buckets_of, window_of

_START = attrgetter("bucket_start")
_CELLS_A_LIVE_ONE = 3  # a catalogue never forgets: it is made anew when so many are of the past
_FEWEST_CELLS = 50_000


@dataclass(frozen=True, slots=True)
class _Kept:
    rows: tuple[list[Any], list[Any], list[Any]]
    bucket: Bucket
    arrays: dict[str, Floats]


class KeptBuckets:
    """Makes windows of one pool's rows, again and again. For one thread."""

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, pool: str | None) -> None:
        self._pool = pool
        self._kept: dict[float, _Kept] = {}
        self._catalogue = Catalogue()
        self._grid: Grid | None = None

    def window(
        self,
        pool: str,
        start: float,
        end: float,
        *,
        engine_rows: Iterable[EngineMinute] = (),
        tenant_rows: Iterable[TenantMinute] = (),
        matrix_rows: Iterable[InterferenceMinute] = (),
        **more: Any,
    ) -> Window:
        """The same as `window_of`."""
        if pool != self._pool:
            self._begin(pool)
        made = self._buckets(pool, engine_rows, tenant_rows, matrix_rows)
        window = window_of(pool, start, end, buckets=made, **more)
        window.use(self._grid_of(window.buckets))
        return window

    def _buckets(
        self,
        pool: str,
        engine_rows: Iterable[EngineMinute],
        tenant_rows: Iterable[TenantMinute],
        matrix_rows: Iterable[InterferenceMinute],
    ) -> tuple[Bucket, ...]:
        tables = [_by_bucket(x) for x in (engine_rows, tenant_rows, matrix_rows)]
        starts = sorted({s for t in tables for s in t})
        kept: dict[float, _Kept] = {}
        for s in starts:
            engines, tenants, matrix = (t.get(s, []) for t in tables)
            before = self._kept.get(s)
            rows = (engines, tenants, matrix)
            if before is not None and before.rows == rows:
                # Rows read again and found equal stand for the old ones: the very same objects are
                # compared in no time, a crowd's values are not.
                kept[s] = replace(before, rows=rows)
                continue
            for bucket in buckets_of(pool, engines, tenants, matrix, self._catalogue):
                kept[s] = _Kept(rows, bucket, {})
        self._kept = {**self._kept, **kept}
        return tuple(k.bucket for s, k in sorted(kept.items()))

    def forget(self, before: float) -> None:
        """Let go of buckets that began before an instant (unix seconds)."""
        self._kept = {s: k for s, k in self._kept.items() if s >= before}
        live = sum(len(k.bucket.matrix) for k in self._kept.values())
        if len(self._catalogue.cells) > max(_FEWEST_CELLS, _CELLS_A_LIVE_ONE * live):
            self._kept, self._catalogue, self._grid = {}, Catalogue(), None

    def _grid_of(self, buckets: Sequence[Bucket]) -> Grid:
        grid = self._grid
        same = grid is not None and len(grid.buckets) == len(buckets)
        if grid is None or not same or not grid.holds(buckets):
            grid = self._grid = Grid(buckets, WORKER_COLUMNS, self._arrays)
        return grid

    def _arrays(self, bucket: Bucket) -> dict[str, Floats]:
        kept = self._kept.get(bucket.start)
        return kept.arrays if kept is not None and kept.bucket is bucket else {}


def _by_bucket(rows: Iterable[Any]) -> dict[float, list[Any]]:
    """Rows by where their bucket starts; rows come in order of time, mostly."""
    found: dict[float, list[Any]] = {}
    for start, some in groupby(rows, key=_START):
        found.setdefault(start, []).extend(some)
    return found
