"""Charged seconds by holder, folded into running totals: once, however often a matrix comes. Pure.

Victims are summed over: a series a victim and holder would have no bound. The store has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from telemetry.conventions import Emitter
from telemetry.prometheus.running import Labels, Running
from telemetry.prometheus.totals import LARGEST, SETTLED_S, UNKNOWN_MARK, Key, by_bucket, within
from telemetry.records import Batch
from telemetry.store import sql

Holder = tuple[str, str, str]  # reason, kind, name


class ChargeTotals:
    """Charged seconds by (reason, kind of holder, holder), over all victims.

    A bucket's matrix is replaced as a whole by a newer one; parts of one delivery add up.
    """

    def __init__(self) -> None:
        self._states: dict[Key, _Charges] = {}
        self.running = Running(1)

    def take(
        self,
        batch: Batch,
        rows: Sequence[Any],
        starts: Iterable[tuple[float, float]],
        now: float,
        label: Callable[[Holder], Labels],
    ) -> int:
        """Credit what the matrix changes. `starts`: (start, length) of buckets that the delivery
        holds although their matrix may be empty. Returns how many rows could not be counted."""
        for key in [k for k in self._states if not within(k, now)]:
            del self._states[key]
        for key, state in self._states.items():
            if key[1] + key[2] + SETTLED_S < now and state.mark >= sql.SEALED_MARK:
                state.settle()
        place = (batch.engine, batch.run_id, batch.pool)
        mark = sql.mark(batch.sealed, batch.seq)
        groups: dict[Key, list[Any]] = {(place, s, n, batch.emitter): [] for s, n in starts}
        for start, length, some in by_bucket(rows):
            groups.setdefault((place, start, length, batch.emitter), []).extend(some)
        uncounted = 0
        for key, group in groups.items():
            if not within(key, now):
                uncounted += len(group)
                continue
            state = self._states.setdefault(key, _Charges())
            if state.settled:
                uncounted += 0 if mark <= state.mark else len(group)
                continue
            changes = state.replace(mark, group)
            self.running.credit(
                [label(holder) for holder in changes], np.array([[v] for v in changes.values()])
            )
        return uncounted

    def remember(self, rows: Iterable[Any], now: float) -> None:
        """See `TableTotals.remember`."""
        for row in rows:
            key = ((row.engine, row.run_id, row.pool), row.bucket_start, row.bucket_s,
                   Emitter.WORKER)  # fmt: skip
            if within(key, now):
                self._states.setdefault(key, _Charges()).add(row)


class _Charges:
    """One bucket's matrix: seconds by holder, and the cells that they are made of."""

    __slots__ = ("cells", "held", "mark", "settled")

    def __init__(self) -> None:
        self.mark = UNKNOWN_MARK
        self.cells: dict[tuple[str, str, str, str], float] = {}
        self.held: dict[Holder, float] = {}
        self.settled = False

    def add(self, row: Any) -> tuple[Holder, float]:
        """A cell's newest value; returns whose total changes by how much."""
        holder = (row.reason, row.holder_kind, row.holder)
        cell = (row.victim, *holder)
        seconds = min(max(row.charged_s or 0.0, 0.0), LARGEST)
        change = seconds - self.cells.get(cell, 0.0)
        self.cells[cell] = seconds
        self.held[holder] = self.held.get(holder, 0.0) + change
        return holder, change

    def replace(self, mark: int, rows: Iterable[Any]) -> dict[Holder, float]:
        """Changes of the totals by holder after a delivery under `mark`."""
        if mark < self.mark:
            return {}
        changes: dict[Holder, float] = {}
        if mark > self.mark:
            changes = {holder: -seconds for holder, seconds in self.held.items()}
            self.mark, self.cells, self.held = mark, {}, {}
        for row in rows:
            holder, change = self.add(row)
            changes[holder] = changes.get(holder, 0.0) + change
        return {holder: change for holder, change in changes.items() if change}

    def settle(self) -> None:
        self.settled = True
        self.cells, self.held = {}, {}
