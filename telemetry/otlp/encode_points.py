"""The points of a table's columns, written together. Pure; knows no vocabulary.

The points of two columns differ in the eight bytes of each value and in nothing else: what stands
around them is put together once, and the values are laid into a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_EIGHT = np.arange(8)


@dataclass(frozen=True, slots=True)
class Hole:
    """What stands between a point's beginning and its end: bytes, in which values of eight bytes
    are to be laid at the offsets `at`."""

    blank: bytes
    at: tuple[int, ...]


class Points:
    """A point a row: `before` and `after` of each are what surrounds its hole."""

    def __init__(self, before: Sequence[bytes], after: Sequence[bytes]) -> None:
        self._before, self._after = before, after
        self._blanks: dict[Hole, tuple[bytes, Any]] = {}

    def of(self, hole: Hole, values: bytes) -> bytes:
        """All points, with the eight bytes of each value laid into their holes, row by row."""
        blank, places = self._blanks.get(hole) or self._dig(hole)
        written = np.frombuffer(blank, np.uint8).copy()
        written[places] = np.frombuffer(values, np.uint8)
        return written.tobytes()

    def some(self, rows: Sequence[int]) -> Points:
        """Of these rows only."""
        return Points([self._before[i] for i in rows], [self._after[i] for i in rows])

    def _dig(self, hole: Hole) -> tuple[bytes, Any]:
        before, after, count = self._before, self._after, len(self._before)
        between = zip(before, after, strict=True)
        blank = b"".join([begin + hole.blank + end for begin, end in between])
        begins = np.fromiter(map(len, before), np.intp, count)
        ends = np.fromiter(map(len, after), np.intp, count)
        sizes = begins + len(hole.blank) + ends
        at = np.cumsum(sizes) - sizes + begins
        inside = (np.array(hole.at, dtype=np.intp)[:, None] + _EIGHT).ravel()
        dug = self._blanks[hole] = blank, (at[:, None] + inside).ravel()
        return dug
