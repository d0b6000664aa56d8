"""What a frame is, and how tenants are ranked in it. Pure: owns no state, no clock, no socket.

`Totals` are what is known of the window; `frame` ranks them for one watcher. The rows of a frame
and its `others` row add up to the pools' whole, whatever was filtered or cut off.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.errors import QueryError
from telemetry.watch.columns import AT, COLUMNS, LEVELS_ADD_UP, POOL_COLUMNS, WatchColumn

__all__ = ["COLUMNS", "POOL_COLUMNS", "Frame", "PoolNow", "Row", "Totals", "WatchColumn", "frame"]

Matrix = npt.NDArray[np.float64]

DEFAULT_SORT, DEFAULT_N, DEFAULT_EVERY_S, DEFAULT_WINDOW_S = "service", 20, 1.0, 60.0
TENANT = "tenant"
MOST_ROWS = 1000
SHORTEST_EVERY_S, LONGEST_EVERY_S = 0.2, 3600.0
SHORTEST_WINDOW_S, LONGEST_WINDOW_S = 1.0, 300.0
FEW = 20  # below this many samples a p99 says nothing: the largest is shown instead
_UPPER = np.array([*LATENCY_BOUNDS_S, LATENCY_BOUNDS_S[-1]])  # nothing bounds the overflow bucket
_LOWER = np.array([0.0, *LATENCY_BOUNDS_S])
_MOST = [
    i
    for i, c in enumerate(COLUMNS)
    if c.kind == "max" or (c.kind == "last" and c.name not in LEVELS_ADD_UP)
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one watcher wants to see. `filter` as in `telemetry.watch.name_filter`."""

    sort: str = DEFAULT_SORT
    descending: bool = True
    filter: str = ""
    n: int = DEFAULT_N
    every_s: float = DEFAULT_EVERY_S
    window_s: float = DEFAULT_WINDOW_S

    def __post_init__(self) -> None:
        """Raises QueryError naming the value and what is allowed."""
        if self.sort != TENANT and self.sort not in AT:
            near = difflib.get_close_matches(self.sort, AT, 1)
            hint = f", perhaps {near[0]}" if near else ""
            raise QueryError(
                f"sort {self.sort!r} is no column{hint}: use {TENANT}, {', '.join(AT)}"
            )
        if not 1 <= self.n <= MOST_ROWS:
            raise QueryError(f"n = {self.n}: expected 1 to {MOST_ROWS} rows")
        _within("every_s", self.every_s, SHORTEST_EVERY_S, LONGEST_EVERY_S)
        _within("window_s", self.window_s, SHORTEST_WINDOW_S, LONGEST_WINDOW_S)


@dataclass(frozen=True, slots=True)
class PoolNow:
    """One pool's strip. `values`: its newest bucket, in the order of `POOL_COLUMNS`. A pool that
    was silent for too long is shown and not `counted`: its tenants are in no row."""

    engine: str
    pool: str
    heard_age_s: float
    observed_s: float
    counted: bool
    provisional: bool
    tenants: int
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant, or what all others add up to. Values in the order of the frame's columns."""

    tenant: str
    values: tuple[float | None, ...]

    def __getitem__(self, column: str) -> float | None:
        return self.values[AT[column]]


@dataclass(frozen=True, slots=True)
class Frame:
    """The tenants at one instant, ranked. Instants are unix seconds.

    Sums are over [start, end), which ends at what was heard last, not at `at`; a rate is a sum
    over the pool's `observed_s`. `others` adds up every tenant without a row: those beyond the
    first n and those that the filter left out.
    """

    at: float
    start: float
    end: float
    rows: tuple[Row, ...]
    others: Row
    others_tenants: int
    tenants: int
    matched: int
    pools: tuple[PoolNow, ...]
    provisional: bool
    partial: tuple[str, ...] = ()
    dropped: int = 0
    columns: tuple[WatchColumn, ...] = COLUMNS

    def dicts(self) -> list[dict[str, Any]]:
        """The ranked rows, by column name."""
        names = [c.name for c in self.columns]
        return [{TENANT: r.tenant, **dict(zip(names, r.values, strict=True))} for r in self.rows]


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """What the window adds up to: a row a tenant of `values` (NaN = absent) and of TTFT counts.
    `by_name` is the tenants' places in the order of their names."""

    names: tuple[str, ...]
    values: Matrix
    ttft: Matrix
    by_name: npt.NDArray[np.int64]
    start: float
    end: float
    pools: tuple[PoolNow, ...]
    provisional: bool
    partial: tuple[str, ...] = ()


def frame(
    totals: Totals, asked: Asked, kept: list[bool] | None, at: float, dropped: int = 0
) -> Frame:
    """Rank `totals` for one watcher; `kept` says for each tenant whether the filter leaves it."""
    order = _ranked(totals, asked)
    if kept is not None:
        order = order[np.array(kept, bool)[order]] if len(order) else order
    first = order[: asked.n]
    rest = np.ones(len(totals.names), bool)
    rest[first] = False
    return Frame(
        at=at,
        start=totals.start,
        end=totals.end,
        rows=tuple(
            Row(totals.names[i], _plain(v))
            for i, v in zip(first.tolist(), totals.values[first], strict=True)
        ),
        others=Row("", _plain(_together(totals.values[rest], totals.ttft[rest]))),
        others_tenants=int(rest.sum()),
        tenants=len(totals.names),
        matched=len(order),
        pools=totals.pools,
        provisional=totals.provisional,
        partial=totals.partial,
        dropped=dropped,
    )


def percentiles(counts: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """(n, p50, p99) in seconds of each row of bucket counts over LATENCY_BOUNDS_S; NaN where n = 0.

    Inside a bucket the samples are taken as evenly spread, so each is right to a bucket's width.
    """
    n = counts.sum(axis=1)
    if not len(counts):
        return n, n.copy(), n.copy()
    upto = np.cumsum(counts, axis=1)
    p50 = _quantile(counts, upto, n, 0.5)
    p99 = _quantile(counts, upto, n, 0.99)
    highest = counts.shape[1] - 1 - np.argmax(counts[:, ::-1] > 0, axis=1)
    p99 = np.where((n > 0) & (n < FEW), _UPPER[highest], p99)
    return n, p50, p99


def _quantile(counts: Matrix, upto: Matrix, n: Matrix, q: float) -> Matrix:
    rank = q * n
    at = np.argmax(upto >= rank[:, None] - 1e-9, axis=1)
    rows = np.arange(len(counts))
    inside = counts[rows, at]
    before = upto[rows, at] - inside
    part = np.divide(rank - before, inside, out=np.ones_like(rank), where=inside > 0)
    value: Matrix = np.where(n > 0, _LOWER[at] + (_UPPER[at] - _LOWER[at]) * part, np.nan)
    return value


def _ranked(totals: Totals, asked: Asked) -> npt.NDArray[np.int64]:
    """All tenants in order; equal ones by name, absent values last whichever way."""
    if asked.sort == TENANT:
        return totals.by_name[::-1] if asked.descending else totals.by_name
    values = totals.values[totals.by_name, AT[asked.sort]]
    key = np.where(np.isnan(values), np.inf, -values if asked.descending else values)
    return totals.by_name[np.argsort(key, kind="stable")]


def _together(values: Matrix, ttft: Matrix) -> Matrix:
    """What several tenants add up to: sums, averages and shares add; of maxima, and of levels that
    say nothing about a crowd, the most; percentiles of all their first tokens."""
    if not len(values):
        return np.full(len(COLUMNS), np.nan)
    absent = np.isnan(values)
    total: Matrix = np.where(absent.all(axis=0), np.nan, np.where(absent, 0.0, values).sum(axis=0))
    most = np.where(absent, -np.inf, values)[:, _MOST].max(axis=0)
    total[_MOST] = np.where(np.isinf(most), np.nan, most)
    n, p50, p99 = percentiles(ttft.sum(axis=0)[None, :])
    for name, value in (("ttft_n", n), ("ttft_p50_s", p50), ("ttft_p99_s", p99)):
        total[AT[name]] = value[0]
    return total


def _plain(values: Matrix) -> tuple[float | None, ...]:
    return tuple(None if v != v else v for v in values.tolist())


def _within(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise QueryError(f"{name} = {value:g}: expected {low:g} to {high:g} seconds")
