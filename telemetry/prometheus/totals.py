"""Deliveries of buckets, folded into running totals: once, however often they come. Pure.

A bucket comes many times: open, open again, sealed; late, doubled or in parts. Its newest state is
kept until it is sealed and settled, and only what a delivery changes is credited. The order is the
store's: a sealed state beats an open one, then the higher seq wins, present columns overwrite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter, Kind, prometheus_type
from telemetry.prometheus.running import Labels, Matrix, Running
from telemetry.records import Batch
from telemetry.store import sql
from telemetry.tables import TABLES

HORIZON_S = 3600.0  # a bucket further away than this is not counted: it could not be told from new
SETTLED_S = 120.0  # a bucket sealed for so long keeps only the names of its rows
BUCKETS = len(LATENCY_BOUNDS_S) + 1
_NO_COUNTS = (None,) * BUCKETS
LARGEST = 1e18  # sums of these stay finite; no pool computes as many tokens
UNKNOWN_MARK = -1  # of a row read back from a store: any delivery is newer

Place = tuple[str, str, str]  # engine, run, pool
Key = tuple[Place, float, float, Emitter]  # ..., start and length of the bucket, who wrote it


class State:
    """One bucket of one emitter: its rows' newest values (NaN = absent) and their marks. Settled,
    it has no values any more and a row that it names is final."""

    __slots__ = ("at", "marks", "names", "settled", "values")

    def __init__(self, width: int) -> None:
        self.names: list[str] = []
        self.at: dict[str, int] = {}
        self.values: Matrix = np.empty((0, width))
        self.marks: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.settled: frozenset[str] | None = None

    def places(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Indices of the rows, new ones made."""
        new = [n for n in names if n not in self.at]
        for name in new:
            self.at[sys.intern(name)] = len(self.names)
            self.names.append(name)
        if new:
            empty = np.full((len(new), self.values.shape[1]), np.nan)
            self.values = np.concatenate([self.values, empty])
            lowest = np.full(len(new), np.iinfo(np.int64).min)
            self.marks = np.concatenate([self.marks, lowest])
        return np.array([self.at[n] for n in names], np.int64)

    def settle(self) -> None:
        self.settled = frozenset(self.at)
        self.names, self.at = [], {}
        self.values, self.marks = self.values[:0].copy(), self.marks[:0].copy()


class TableTotals:
    """The running totals of one minute table whose rows are named by one key column, or by none.

    `take` must be called in an order of non-decreasing `now` (unix seconds).
    """

    def __init__(self, table: str, name: str | None) -> None:
        """`name`: the key column that tells the rows of a bucket apart."""
        columns = [c for c in TABLES[table].columns if prometheus_type(c.kind) is not None]
        plain = [c for c in columns if c.kind is not Kind.HIST]
        self.histograms = [c.name for c in columns if c.kind is Kind.HIST]
        self.gauges = [c for c in plain if c.kind is not Kind.SUM]
        # Where each column's numbers lie in a row: one place, or one a histogram bucket.
        self.at: dict[str, slice] = {c.name: slice(i, i + 1) for i, c in enumerate(plain)}
        for i, column in enumerate(self.histograms):
            first = len(plain) + i * BUCKETS
            self.at[column] = slice(first, first + BUCKETS)
        self.width = len(plain) + BUCKETS * len(self.histograms)
        self._adds = np.zeros(self.width, bool)
        for c in columns:
            self._adds[self.at[c.name]] = c.kind in (Kind.SUM, Kind.HIST)
        self._writer = {e: np.zeros(self.width, bool) for e in (Emitter.FRONT, Emitter.WORKER)}
        for c in columns:
            self._writer[c.emitter][self.at[c.name]] = True
        self._plain: Callable[[Any], tuple[Any, ...]] = attrgetter(*(c.name for c in plain))
        self._name = name
        self._states: dict[Key, State] = {}
        self._newest: dict[tuple[str, str, Emitter], Key] = {}
        self.running = Running(self.width)

    def take(
        self,
        batch: Batch,
        rows: Sequence[Any],
        now: float,
        label: Callable[[str], Labels],
        heard: Callable[[Key, State], None] | None = None,
    ) -> int:
        """Credit what `rows` of the batch change; returns how many could not be counted.

        `heard` gets each bucket that changed, before the credit: it may change what `label` says.
        """
        self._sweep(now)
        place = (batch.engine, batch.run_id, batch.pool)
        groups: dict[Key, dict[str, Any]] = {}
        for start, length, some in by_bucket(rows):
            key = (place, start, length, batch.emitter)
            groups.setdefault(key, {}).update((self._name_of(row), row) for row in some)
        uncounted = 0
        for key, group in groups.items():
            if not within(key, now):
                uncounted += len(group)
                continue
            self._fold(key, group, sql.mark(batch.sealed, batch.seq), label, heard)
        return uncounted

    def remember(self, rows: Iterable[Any], now: float) -> None:
        """Take rows of a store as known already: a delivery of theirs credits only what is new."""
        groups: dict[tuple[Place, float, float], dict[str, Any]] = {}
        for row in rows:
            place = (row.engine, row.run_id, row.pool)
            at = groups.setdefault((place, row.bucket_start, row.bucket_s), {})
            at[self._name_of(row)] = row
        for (place, start, length), group in groups.items():
            values = self._matrix(list(group.values()))
            for emitter, own in self._writer.items():
                there = np.logical_not(np.isnan(values[:, own]).all(axis=1))
                names = [n for n, has in zip(group, there.tolist(), strict=True) if has]
                key = (place, start, length, emitter)
                if not names or not within(key, now):
                    continue
                state = self._states.setdefault(key, State(self.width))
                index = state.places(names)
                state.values[index] = np.where(own, values[there], np.nan)
                state.marks[index] = UNKNOWN_MARK
                self._follow(key)

    def newest(self, engine: str, pool: str, emitter: Emitter) -> State | None:
        """The bucket that was last begun there."""
        key = self._newest.get((engine, pool, emitter))
        return None if key is None else self._states.get(key)

    def pools(self) -> list[tuple[str, str, Emitter]]:
        """(engine, pool, emitter) of all that were heard within the horizon."""
        return list(self._newest)

    def _fold(
        self,
        key: Key,
        group: dict[str, Any],
        mark: int,
        label: Callable[[str], Labels],
        heard: Callable[[Key, State], None] | None,
    ) -> None:
        state = self._states.setdefault(key, State(self.width))
        if state.settled is not None:
            # A part of the sealed bucket that was never here may still come. An open state is of
            # rows whose sealed ones have been here, or will be.
            if mark < sql.SEALED_MARK:
                return
            group = {n: r for n, r in group.items() if n not in state.settled}
            if not group:
                return
            state = State(self.width)
        names = list(group)
        new = self._matrix(list(group.values()))
        index = state.places(names)
        old, marks = state.values[index], state.marks[index]
        newer = (mark >= marks)[:, None]
        first, second = np.where(newer, new, old), np.where(newer, old, new)
        merged = np.where(np.isnan(first), second, first)
        state.values[index] = merged
        state.marks[index] = np.maximum(marks, mark)
        kept = self._states[key]
        if kept.settled is not None:
            kept.settled |= frozenset(names)
        else:
            self._follow(key)
            if heard is not None:
                heard(key, state)
        changes = np.where(self._adds, np.nan_to_num(merged) - np.nan_to_num(old), 0.0)
        self.running.credit([label(n) for n in names], changes)

    def _follow(self, key: Key) -> None:
        (engine, _, pool), start, _, emitter = key
        newest = self._newest.get((engine, pool, emitter))
        if newest is None or start >= newest[1]:
            self._newest[engine, pool, emitter] = key

    def _sweep(self, now: float) -> None:
        for key, state in list(self._states.items()):
            end = key[1] + key[2]
            if not within(key, now):
                del self._states[key]
                where = (key[0][0], key[0][2], key[3])
                if self._newest.get(where) == key:
                    del self._newest[where]
            elif (
                state.settled is None
                and end + SETTLED_S < now
                and key not in self._newest.values()
                and bool((state.marks >= sql.SEALED_MARK).all())
            ):
                state.settle()

    def _name_of(self, row: Any) -> str:
        return "" if self._name is None else getattr(row, self._name)

    def _matrix(self, rows: Sequence[Any]) -> Matrix:
        """(rows, width); None is NaN."""
        parts = [np.array([self._plain(r) for r in rows], float)]
        for name in self.histograms:
            listed = [getattr(r, name) or _NO_COUNTS for r in rows]
            parts.append(np.array(listed, float))
        values = np.concatenate(parts, axis=1)
        return np.where(self._adds, np.clip(values, 0.0, LARGEST), values)


def by_bucket(rows: Sequence[Any]) -> Iterator[tuple[float, float, Iterable[Any]]]:
    """Rows in stretches of one bucket: (its start, its length, rows)."""
    for (start, length), some in groupby(rows, attrgetter("bucket_start", "bucket_s")):
        yield start, length, some


def within(key: Key, now: float) -> bool:
    """Whether a bucket is near enough to be told from one that was counted long ago."""
    return key[1] + key[2] >= now - HORIZON_S and key[1] <= now + HORIZON_S
