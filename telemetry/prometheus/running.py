"""Counters that only grow, by label values. Owns the numbers; does not know where they come from.

What senders correct may take a little back (an open bucket whose matrix is cut differently): the
exact sum follows, what is shown waits until the sum has caught up. So no reader sees a reset.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Labels = tuple[str, ...]

_FIRST_ROWS = 64


class Running:
    """`width` counters for each tuple of label values."""

    def __init__(self, width: int) -> None:
        self._at: dict[Labels, int] = {}
        self._exact: Matrix = np.zeros((_FIRST_ROWS, width))
        self._shown: Matrix = np.zeros((_FIRST_ROWS, width))

    def credit(self, labels: Sequence[Labels], changes: Matrix) -> None:
        """Add a row of `changes` (len(labels), width) to each one's counters; labels may repeat."""
        if not labels:
            return
        rows = np.array([self._row(one) for one in labels])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        self._exact[rows[starts]] += np.add.reduceat(changes[order], starts, axis=0)

    def begin(self, labels: Labels) -> None:
        """Have the counters there, at zero: a rate sees only what follows a first sample."""
        self._row(labels)

    def read(self) -> tuple[list[Labels], Matrix]:
        """All label values and what is shown of them, in one order: (labels, (n, width))."""
        n = len(self._at)
        np.maximum(self._shown[:n], self._exact[:n], out=self._shown[:n])
        return list(self._at), self._shown[:n].copy()

    def exact(self) -> dict[Labels, Matrix]:
        """The sums as the senders have them now."""
        return {labels: self._exact[i].copy() for labels, i in self._at.items()}

    def _row(self, labels: Labels) -> int:
        row = self._at.get(labels)
        if row is None:
            row = self._at[labels] = len(self._at)
            if row == len(self._exact):
                empty = np.zeros_like(self._exact)
                self._exact = np.concatenate([self._exact, empty])
                self._shown = np.concatenate([self._shown, empty])
        return row
