"""A grid: one number a tenant and bucket, column by column, as arrays. Reads rows; judges nothing.

The same rules as `window.value_in`, for all tenants at once: absent is not zero (NaN), beside an
engine's row a tenant without one was idle (0), and below zero stands for nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from telemetry.conventions import WAIT_REASONS

if TYPE_CHECKING:
    from telemetry.window import Bucket

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
# Where the arrays of one bucket's rows are kept by column; they are of no use to another bucket.
Arrays = Callable[["Bucket"], dict[str, Floats]]


class Grid:
    """Buckets by tenants. Columns are read from the rows once, when they are first asked for.
    `arrays`: where those of single buckets outlive this grid."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        worker_columns: frozenset[str],
        arrays: Arrays = lambda bucket: {},
    ) -> None:
        self._arrays = arrays
        self.buckets = tuple(buckets)
        self.names = tuple(sorted(set().union(*(b.tenants for b in buckets))))
        self.place = {t: i for i, t in enumerate(self.names)}
        self.observed_s = np.array([b.observed_s for b in buckets], dtype=np.float64)
        self.known = np.array([b.known for b in buckets], dtype=bool)
        sizes = [len(b.tenants) for b in buckets]
        rows = sum(sizes)
        self.at = np.repeat(np.arange(len(sizes), dtype=np.intp), sizes)
        who = map(self.place.__getitem__, chain.from_iterable(b.tenants for b in buckets))
        self.who = np.fromiter(who, dtype=np.intp, count=rows)
        self._silent = np.isnan(self._values("observed_seconds"))
        self._worker_columns = worker_columns
        self._columns: dict[str, Floats] = {}
        self._below: dict[str, Ints] = {}
        self._starts = {b.start: i for i, b in enumerate(buckets)}

    def column(self, name: str) -> Floats:
        """(buckets, tenants); NaN where it is not known."""
        found = self._columns.get(name)
        if found is None:
            values = self._values(name)
            with np.errstate(invalid="ignore"):
                below = values < 0
            self._below[name] = np.bincount(self.at[below], minlength=len(self.buckets))
            values[below] = np.nan
            if name in self._worker_columns:
                idle = self._silent & self.known[self.at] if len(self.at) else self._silent
                values[np.isnan(values) & idle] = 0.0
            found = np.full((len(self.buckets), len(self.names)), np.nan)
            found[self.known, :] = 0.0
            found[self.at, self.who] = values
            self._columns[name] = found
        return found

    def _values(self, name: str) -> Floats:
        """The rows' numbers, one after the other; NaN where there is none. The caller's own."""
        get = attrgetter(name)
        parts = []
        for b in self.buckets:
            kept = self._arrays(b)
            part = kept.get(name)
            if part is None:
                part = kept[name] = np.array(list(map(get, b.tenants.values())), dtype=np.float64)
            parts.append(part)
        return np.concatenate(parts) if parts else np.zeros(0)

    def below_zero(self, name: str) -> Ints:
        """How many rows of each bucket carry a number below zero in this column."""
        self.column(name)
        return self._below[name]

    def waits(self) -> Floats:
        """Seconds waited in the pool, all reasons; NaN where none of them is known."""
        found = self._columns.get("waits")
        if found is None:
            parts = [self.column(f"wait_{r}_s") for r in WAIT_REASONS]
            found = np.nansum(parts, axis=0)
            found[np.all(np.isnan(parts), axis=0)] = np.nan
            self._columns["waits"] = found
        return found

    def places(self, buckets: Sequence[Bucket]) -> Ints:
        """Where these buckets stand in this grid."""
        return np.array([self._starts[b.start] for b in buckets], dtype=np.intp)

    def holds(self, buckets: Sequence[Bucket]) -> bool:
        return all(
            (i := self._starts.get(b.start)) is not None and self.buckets[i] is b for b in buckets
        )


class Part:
    """Some buckets of a grid, added up by tenant."""

    def __init__(self, grid: Grid, at: Ints) -> None:
        self.grid = grid
        self.at = at
        self.observed_s = float(grid.observed_s[at].sum())
        self._totals: dict[str, Floats] = {}
        self._told: dict[str, list[float | None]] = {}  # the same, to be asked one by one
        self._active: tuple[str, ...] | None = None

    def totals(self, column: str) -> Floats:
        """Every tenant's sum; NaN where no bucket carries it. `waits`: those of all reasons."""
        found = self._totals.get(column)
        if found is None:
            values = self.grid.waits() if column == "waits" else self.grid.column(column)
            found = _sum(values[self.at])
            self._totals[column] = found
        return found

    def means(self, column: str) -> Floats:
        """Every tenant's average over observed time; NaN where it is not known."""
        values = self.grid.column(column)[self.at]
        there = ~np.isnan(values)
        weights = np.where(there, self.grid.observed_s[self.at][:, None], 0.0)
        whole = weights.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(
                whole > 0, np.nansum(values * weights, axis=0) / np.maximum(whole, 1e-300), np.nan
            )

    def total(self, tenant: str, column: str) -> float | None:
        """One tenant's sum; as `window.total`."""
        i = self.grid.place.get(tenant)
        return self._idle() if i is None else self._listed_totals(column)[i]

    def totals_of(self, tenants: Iterable[str], column: str) -> list[float | None]:
        """The same of several tenants, in their order: a crowd is asked about column by column."""
        told, idle = self._listed_totals(column), self._idle()
        at = map(self.grid.place.get, tenants)
        return [idle if i is None else told[i] for i in at]

    def _idle(self) -> float | None:
        # A tenant without a row anywhere was idle wherever an engine was heard.
        return 0.0 if bool(self.grid.known[self.at].any()) else None

    def _listed_totals(self, column: str) -> list[float | None]:
        told = self._told.get(column)
        if told is None:
            values = self.totals(column).tolist()
            told = self._told[column] = [None if v != v else v for v in values]
        return told

    def active(self) -> tuple[str, ...]:
        """Tenants that have a row in one of the buckets."""
        if self._active is None:
            self._active = self._listed()
        return self._active

    def _listed(self) -> tuple[str, ...]:
        if not len(self.at):
            return ()
        wanted = np.zeros(len(self.grid.buckets), dtype=bool)
        wanted[self.at] = True
        rows = wanted[self.grid.at] if len(self.grid.at) else np.zeros(0, dtype=bool)
        return tuple(self.grid.names[i] for i in np.unique(self.grid.who[rows]))


def _sum(values: Floats) -> Floats:
    if not len(values):
        return np.full(values.shape[1], np.nan)
    out = np.nansum(values, axis=0)
    out[np.all(np.isnan(values), axis=0)] = np.nan
    return np.asarray(out, dtype=np.float64)
