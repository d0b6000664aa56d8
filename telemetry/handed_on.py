"""Handed on: the excess of those who only stood in the same line goes to whoever made the line.

Pure arithmetic on charged cells; who rose and how much capacity is missing is said by others.
Whoever is made to wait holds its place longer, and others wait behind it in turn. What is charged
to a tenant whose demand did not rise (a victim's waiting behind itself too) is therefore not its
doing: each second of it goes to those charged by the same victim whose demand did rise and to lost
capacity, in proportion to their own excess. A riser that is charged too little to have made the
line keeps that and takes nothing: chance lifts somebody's demand in every incident. The reason it
was waited for stays, and a victim's excess stays what it was. Where replicas are missing, their
part of what is handed on is capacity's. Where there is nobody to hand it on to, it is `others`:
nobody is known to have made it. What pins and floors hold is theirs whoever asks, and stays with
`policy`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from telemetry.charged import Ints
from telemetry.held import (
    CAPACITY_HELD,
    OTHERS_HELD,
    POLICY_HELD,
    SELF_HELD,
    Cells,
    Held,
    Holder,
    Line,
    lines_of,
)


class HandedOn:
    """The lines of a `Held` with the excess handed on to `makers` and to capacity. `risen` keep
    what is charged to themselves; those of them that are no makers take nothing besides.

    `missing`: the part of the usual replicas that was not heard, 0 to 1. All victims' cells are
    handed on together, when the first of them is asked for: a pool has a thousand.
    """

    def __init__(
        self, charged: Held, risen: Collection[str], makers: Collection[str], missing: float
    ) -> None:
        self._charged = charged
        self._risen = frozenset(risen)
        self._makers = frozenset(makers)
        self._missing = missing
        self._made: _Whole | None = None

    def lines(self, victims: Collection[str]) -> tuple[Line, ...]:
        """What these victims waited, by whose doing it was; in the order of `held.lines_of`."""
        return lines_of(self._whole().of(victims))

    def share(self, victim: str, holder: Holder) -> float:
        return self._whole().share(victim, holder)

    def top(self, victim: str) -> Line | None:
        """The line of one victim with the largest excess; None where it has none."""
        return self._whole().top(victim)

    def _whole(self) -> _Whole:
        if self._made is None:
            cells = self._charged.cells(self._charged.victims)
            self._made = _Whole(handed_on(cells, self._risen, self._makers, self._missing))
        return self._made


class _Whole:
    """All cells after handing on, victim by victim, and what is asked of each of them."""

    def __init__(self, cells: Cells) -> None:
        order = np.argsort(cells.victim, kind="stable")
        self._cells = _some(cells, order)
        self._place = {v: i for i, v in enumerate(cells.victims)}
        names = len(cells.victims)
        self._starts = np.searchsorted(self._cells.victim, np.arange(names + 1)).tolist()
        self._excess = np.bincount(cells.victim, weights=cells.excess, minlength=names)
        # By victim and holder, where there is any; and of each victim the largest.
        self._code = {h: i for i, h in enumerate(cells.holders)}
        width = max(1, len(cells.holders))
        pairs, at = np.unique(cells.victim * width + cells.holder, return_inverse=True)
        sums = np.bincount(at, weights=cells.excess, minlength=len(pairs))
        self._parts = dict(zip(pairs.tolist(), sums.tolist(), strict=True))
        self._width = width
        largest = np.lexsort((sums, pairs // width))
        self._best = dict(
            zip((pairs[largest] // width).tolist(), (pairs[largest] % width).tolist(), strict=True)
        )

    def of(self, victims: Collection[str]) -> Cells:
        at = sorted({self._place[v] for v in victims if v in self._place})
        slices = [np.arange(self._starts[i], self._starts[i + 1]) for i in at]
        return _some(self._cells, np.concatenate([*slices, np.zeros(0, dtype=np.intp)]))

    def share(self, victim: str, holder: Holder) -> float:
        at = self._place.get(victim)
        code = self._code.get(holder)
        if at is None or code is None or not self._excess[at]:
            return 0.0
        key = at * self._width + code
        return float(self._parts.get(key, 0.0) / self._excess[at])

    def top(self, victim: str) -> Line | None:
        at = self._place.get(victim)
        if at is None or not self._excess[at]:
            return None
        best, all_cells = self._best[at], self._cells
        mine = np.arange(self._starts[at], self._starts[at + 1])
        mine = mine[all_cells.holder[mine] == best]
        by: dict[str, float] = {}
        for r, s in zip(
            all_cells.reason[mine].tolist(), all_cells.excess[mine].tolist(), strict=True
        ):
            by[all_cells.reasons[r]] = by.get(all_cells.reasons[r], 0.0) + s
        seconds = sum(by.values())
        return Line(
            all_cells.holders[best],
            float(all_cells.charged[mine].sum()),
            seconds,
            seconds / float(self._excess[at]),
            tuple(sorted(((r, s) for r, s in by.items() if s > 0), key=lambda p: -p[1])),
            float(all_cells.handed[mine].sum()),
        )


def _some(cells: Cells, at: Ints) -> Cells:
    return replace(
        cells,
        victim=cells.victim[at],
        reason=cells.reason[at],
        holder=cells.holder[at],
        charged=cells.charged[at],
        excess=cells.excess[at],
        handed=cells.handed[at],
    )


def handed_on(
    cells: Cells, risen: Collection[str], makers: Collection[str], missing: float
) -> Cells:
    """The same cells with their excess handed on: every victim's, reason by reason, stays whole."""
    codes, holder = np.unique(cells.holder, return_inverse=True)
    places, victim = np.unique(cells.victim, return_inverse=True)
    if not len(places):
        return cells
    holders = [cells.holders[c] for c in codes.tolist()]
    holders += [h for h in (CAPACITY_HELD, OTHERS_HELD) if h not in holders]
    capacity, others = holders.index(CAPACITY_HELD), holders.index(OTHERS_HELD)
    takes = np.array([h.is_tenant and h.name in makers for h in holders], dtype=bool)
    takes[capacity] = True
    keeps = takes | np.array([h.is_tenant and h.name in risen for h in holders], dtype=bool)
    rose = np.array([cells.victims[p] in risen for p in places.tolist()], dtype=bool)
    own = np.array([h == SELF_HELD for h in holders], dtype=bool)
    own_doing = own[holder] & rose[victim]
    kept = keeps[holder] | own_doing
    stays = np.array([h == POLICY_HELD for h in holders], dtype=bool)[holder]
    # What is to be handed on, by victim and reason; and who takes which part of it.
    rows, reasons, width = len(places), len(cells.reasons), len(holders)
    loose = cells.excess * ~(kept | stays)
    free = np.bincount(victim * reasons + cells.reason, weights=loose, minlength=rows * reasons)
    free = free.reshape(rows, reasons)
    pairs, at = np.unique(victim * width + holder, return_inverse=True)
    taking = takes[holder] | own_doing
    held = np.bincount(at, weights=cells.excess * taking, minlength=len(pairs))
    everyone = np.arange(rows)
    gone = missing * free.sum(axis=1)
    row = np.concatenate([pairs // width, everyone])
    taker = np.concatenate([pairs % width, np.full(rows, capacity)])
    held = np.concatenate([held, gone])
    whole = np.bincount(row, weights=held, minlength=rows)
    part = (1.0 - missing) * held / np.where(whole > 0, whole, 1.0)[row]
    row = np.concatenate([row, everyone, everyone])
    taker = np.concatenate([taker, np.full(rows, capacity), np.full(rows, others)])
    part = np.concatenate([part, np.full(rows, missing), (whole == 0) * (1.0 - missing)])
    given = part[:, None] * free[row]
    cell, reason = np.nonzero(given)
    moved = given[cell, reason]
    return Cells(
        np.concatenate([cells.victim, places[row[cell]]]),
        np.concatenate([cells.reason, reason]),
        np.concatenate([holder, taker[cell]]),
        np.concatenate([cells.charged, np.zeros(len(moved))]),
        np.concatenate([cells.excess * (kept | stays), moved]),
        np.concatenate([np.zeros(len(cells.victim)), moved]),
        cells.victims,
        cells.reasons,
        holders,
    )
