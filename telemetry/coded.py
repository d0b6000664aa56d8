"""A pool's matrix as columns: its cells once, and numbers for every bucket. Knows no store.

A pool of a thousand tenants has half a million charges in an hour: as rows of their own each would
cost four names on the way out of a store and a look into a dictionary here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.charged import Catalogue, Charges

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
CellKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class CodedMatrix:
    """`cells` are (victim, reason, kind, holder); of every charge, by bucket: where that starts
    (unix seconds), how long it is, the place of its cell, and seconds; NaN = it carries no number.
    """

    pool: str
    cells: Sequence[CellKey]
    starts: Floats
    lengths: Floats
    places: Ints
    seconds: Floats

    @classmethod
    def of_rows(cls, pool: str, rows: Sequence[tuple[Any, ...]]) -> CodedMatrix:
        """Rows of `report_matrix`, in any order. The same rows give the same matrix."""
        cells: list[CellKey] = [row[1:5] for row in sorted(r for r in rows if r[1] is not None)]
        charges = [row for row in rows if row[1] is None]
        if not charges:
            none = np.zeros(0)
            return cls(pool, cells, none, none, np.zeros(0, dtype=np.intp), none)
        cell, _, _, _, _, start, length, seconds = zip(*charges, strict=True)
        starts = np.array(start, dtype=np.float64)
        places = np.array(cell, dtype=np.intp)
        numbers = np.array(seconds, dtype=np.float64)  # None becomes NaN
        # The sum of a cell's charges hangs, in its last digits, on the order they are added in.
        order = np.lexsort((numbers, places, starts))
        lengths = np.array(length, dtype=np.float64)
        return cls(pool, cells, starts[order], lengths[order], places[order], numbers[order])


@dataclass(frozen=True, slots=True)
class BucketCharges:
    """The charges of one bucket, in places of a catalogue; `missing` of them carry no number."""

    start: float
    length_s: float
    charges: Charges
    missing: int


def by_bucket(matrices: Iterable[CodedMatrix], catalogue: Catalogue) -> Iterator[BucketCharges]:
    """Every bucket's charges, those of several matrices added up."""
    place = catalogue.place
    parts = [
        (
            m.starts,
            m.lengths,
            np.fromiter(map(place, m.cells), dtype=np.intp, count=len(m.cells))[m.places],
            m.seconds,
        )
        for m in matrices
        if len(m.starts)
    ]
    if not parts:
        return
    starts, lengths, places, seconds = (np.concatenate(c) for c in zip(*parts, strict=True))
    if len(parts) > 1:
        order = np.argsort(starts, kind="stable")
        starts, lengths, places, seconds = (c[order] for c in (starts, lengths, places, seconds))
    cuts = np.flatnonzero(np.diff(starts)) + 1
    for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(starts)], strict=True):
        known = ~np.isnan(seconds[first:last])
        yield BucketCharges(
            float(starts[first]),
            float(lengths[first:last].max()),
            Charges(catalogue, places[first:last][known], seconds[first:last][known]),
            int((~known).sum()),
        )
