"""M of one reason: seconds of waiting, victims by holders, multiplied out from stretches.

Owns the numbers and which holders have a column; knows neither names nor rows. Exact while at
most `EXACT_HOLDERS` tenants held anything in a stretch and in the bucket. Beyond that the
`CROWDED_HOLDERS` heaviest keep their columns, chosen anew as stretches come, and what the others
held is summed: rows still add up to the waits. At 10,000 victims x 10,000 holders: 20 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.conventions import CAPACITY, OTHERS, POLICY, SELF, TENANT
from telemetry.ledger.awaited import Holder
from telemetry.ledger.cumulative import (
    CAPACITY_AT,
    CROWDED_HOLDERS,
    EXACT_HOLDERS,
    FIRST_TENANT,
    POLICY_AT,
    Chunk,
    Cumulatives,
    Indices,
)
from telemetry.ledger.sums import work_out
from telemetry.ledger.vectors import Vector

OTHERS_AT = 0  # a column; nobody charges the waiter itself in dense vectors
_BLOCK_DOUBLES = 1 << 16  # stays in the cache
_LONG = 32


class Matrix:
    """A row a victim; columns: others, capacity, policy, then holders."""

    def __init__(self) -> None:
        self.cells = np.zeros((16, 16))
        self.row_of = np.full(64, -1, dtype=np.intp)
        self.victims: list[int] = []
        self.column_of = np.full(64 + FIRST_TENANT, -1, dtype=np.intp)
        self.column_of[:FIRST_TENANT] = range(FIRST_TENANT)
        self.positions: list[int] = list(range(FIRST_TENANT))  # column -> holder's position
        self.waited = np.zeros(64)
        self._crowded = False

    def fold(self, chunk: Chunk) -> None:
        width = len(chunk.standing)
        if len(self.row_of) < width:
            self.row_of = _padded(self.row_of, width, -1)
            self.column_of = _padded(self.column_of, width + FIRST_TENANT, -1)
            self.waited = np.concatenate([self.waited, np.zeros(width - len(self.waited))])
        last = chunk.rows - 1
        victims = np.array(chunk.victims, dtype=np.intp)
        rows = np.array(chunk.at, dtype=np.intp)
        standing = np.flatnonzero(chunk.standing)
        # Who still stands at the end does so up to the last row: one more change, to zero.
        victims = np.concatenate([victims, standing])
        rows = np.concatenate([rows, np.full(len(standing), last, dtype=np.intp)])
        changes = np.concatenate(
            [np.array(chunk.changes, dtype=np.float64), chunk.standing[standing]]
        )
        keys, where = np.unique(victims * (last + 1) + rows, return_inverse=True)
        weights = np.bincount(where, weights=changes, minlength=len(keys))
        keys, weights = keys[weights != 0], weights[weights != 0]
        victims, rows = keys // (last + 1), keys % (last + 1)
        if not len(victims):
            return
        vectors = work_out(chunk)
        self.waited += np.bincount(
            victims, weights=weights * vectors.clocks[rows], minlength=len(self.waited)
        )
        by_row = np.bincount(rows, weights=weights, minlength=last + 1)
        sums = self._widen(vectors, by_row)
        self._enter(victims)
        starts = np.flatnonzero(np.concatenate([[True], victims[1:] != victims[:-1]]))
        counts = np.diff(np.append(starts, len(victims)))
        order = np.argsort(-counts, kind="stable")
        starts, counts = starts[order], counts[order]
        places = self.row_of[victims[starts]]
        self._add_long(sums, rows, weights, starts, counts, places)
        first = int((counts > _LONG).sum())
        block = max(1, _BLOCK_DOUBLES // sums.shape[1])
        for at in range(first, len(starts), block):
            some = slice(at, at + block)
            self._add_short(sums, rows, weights, starts[some], counts[some], places[some])

    def _add_long(
        self,
        sums: npt.NDArray[np.float64],
        rows: Indices,
        weights: Vector,
        starts: Indices,
        counts: Indices,
        places: Indices,
    ) -> None:
        """Victims with many changes, the first ones: one product each."""
        width = sums.shape[1]
        for start, count, place in zip(
            starts.tolist(), counts.tolist(), places.tolist(), strict=True
        ):
            if count <= _LONG:
                break
            mine = slice(start, start + count)
            self.cells[place, :width] += weights[mine] @ sums[rows[mine]]

    def _add_short(
        self,
        sums: npt.NDArray[np.float64],
        rows: Indices,
        weights: Vector,
        starts: Indices,
        counts: Indices,
        places: Indices,
    ) -> None:
        """A block of victims, most changes first: the n-th change of all who have one at once."""
        total = np.take(sums, rows[starts], axis=0)
        total *= weights[starts, None]
        for n in range(1, int(counts[0])):
            these = starts[: int((counts > n).sum())] + n
            part = np.take(sums, rows[these], axis=0)
            part *= weights[these, None]
            total[: len(these)] += part
        self.cells[places, : sums.shape[1]] += total

    def _widen(self, chunk: Cumulatives, by_row: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The chunk's sums in the matrix's columns; makes or drops columns to that end."""
        columns, sums = chunk.columns, chunk.sums
        new = columns[self.column_of[columns] < 0]
        held = len(self.positions) - FIRST_TENANT
        most = CROWDED_HOLDERS if self._crowded else EXACT_HOLDERS
        if chunk.rest is not None or held + len(new) > most:
            self._crowded = True
            new = self._crowd(new, by_row @ sums, columns)
        self.column_of[new] = np.arange(len(self.positions), len(self.positions) + len(new))
        self.positions += new.tolist()
        count = len(self.positions)
        if count > self.cells.shape[1]:
            wider = np.zeros((self.cells.shape[0], max(count, 2 * self.cells.shape[1])))
            wider[:, : self.cells.shape[1]] = self.cells
            self.cells = wider
        out = np.zeros((len(sums), count))
        at = self.column_of[columns]
        kept = at >= 0
        if kept.all():
            out[:, at] = sums
        else:
            out[:, at[kept]] = sums[:, kept]
            out[:, OTHERS_AT] += sums[:, ~kept].sum(axis=1)
        if chunk.rest is not None:
            out[:, OTHERS_AT] += chunk.rest
        return out

    def _crowd(self, new: Indices, mass: Vector, columns: Indices) -> Indices:
        """Keep the heaviest holders of what is here and what comes; returns the new ones kept."""
        present = np.array(self.positions[FIRST_TENANT:], dtype=np.intp)
        weight = np.zeros(len(self.column_of))
        weight[columns] = mass
        weight[present] += self.cells[:, FIRST_TENANT : len(self.positions)].sum(axis=0)
        everyone = np.concatenate([present, new])
        if len(everyone) <= CROWDED_HOLDERS:
            return new
        order = np.argpartition(weight[everyone], -CROWDED_HOLDERS)[-CROWDED_HOLDERS:]
        kept = np.zeros(len(everyone), dtype=bool)
        kept[order] = True
        stay = kept[: len(present)]
        if not stay.all():
            old = self.cells[:, FIRST_TENANT : len(self.positions)]
            cells = np.zeros((self.cells.shape[0], FIRST_TENANT + CROWDED_HOLDERS))
            cells[:, :FIRST_TENANT] = self.cells[:, :FIRST_TENANT]
            cells[:, OTHERS_AT] += old[:, ~stay].sum(axis=1)
            cells[:, FIRST_TENANT : FIRST_TENANT + int(stay.sum())] = old[:, stay]
            self.cells = cells
            self.column_of[present] = -1
            self.positions = [*range(FIRST_TENANT), *present[stay].tolist()]
            self.column_of[present[stay]] = np.arange(FIRST_TENANT, len(self.positions))
        return new[kept[len(present) :]]

    def _enter(self, victims: Indices) -> None:
        fresh = np.unique(victims[self.row_of[victims] < 0])
        start = len(self.victims)
        self.row_of[fresh] = np.arange(start, start + len(fresh))
        self.victims += fresh.tolist()
        if len(self.victims) > self.cells.shape[0]:
            longer = np.zeros(
                (max(len(self.victims), 2 * self.cells.shape[0]), self.cells.shape[1])
            )
            longer[: self.cells.shape[0]] = self.cells
            self.cells = longer

    def closed(self, own: Vector | None) -> tuple[npt.NDArray[np.float64], Vector]:
        """(cells, self) of the victims in order: own columns moved to `self`, less `own` seconds
        (by victim's index); differences of sums are not let below zero."""
        victims = np.array(self.victims, dtype=np.intp)
        cells = self.cells[: len(victims), : len(self.positions)].copy()
        column = self.column_of[victims + FIRST_TENANT]
        there = np.flatnonzero(column >= 0)
        mine = np.zeros(len(victims))
        mine[there] = cells[there, column[there]]
        cells[there, column[there]] = 0.0
        if own is not None:
            mine -= own[victims]
            # In a crowd a victim's own column may be part of the others: it is taken off there.
            cells[:, OTHERS_AT] += np.minimum(mine, 0.0)
        return np.maximum(cells, 0.0), np.maximum(mine, 0.0)

    def row(
        self,
        row: int,
        cells: npt.NDArray[np.float64],
        mine: Vector,
        names: Sequence[str | None],
    ) -> dict[Holder, float]:
        """A victim's row of what `closed` gave, by who held."""
        line = cells[row].tolist()
        held: dict[Holder, float] = {
            (TENANT, names[p - FIRST_TENANT] or ""): s
            for p, s in zip(self.positions[FIRST_TENANT:], line[FIRST_TENANT:], strict=True)
            if s
        }
        held[SELF, ""], held[OTHERS, ""] = float(mine[row]), line[OTHERS_AT]
        held[CAPACITY, ""], held[POLICY, ""] = line[CAPACITY_AT], line[POLICY_AT]
        return held


def _padded(indices: Indices, length: int, value: int) -> Indices:
    return np.concatenate([indices, np.full(length - len(indices), value, dtype=np.intp)])
