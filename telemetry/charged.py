"""Charged seconds by cell of the matrix, kept as numbers beside a catalogue of cells.

A pool of a thousand tenants has ten thousand cells a bucket: adding buckets up is a matter of
arrays. Owns the encoding only; to the outside a bucket's matrix is a mapping of cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


class Cell(NamedTuple):
    """One cell of the interference matrix."""

    victim: str
    reason: str
    kind: str
    holder: str


@dataclass(frozen=True, slots=True)
class Codes:
    """Of every cell, in the catalogue's order: places in the lists of victims, reasons, holders
    (kind and name), and of (victim, reason) and (victim, holder)."""

    victim: Ints
    reason: Ints
    holder: Ints
    wait: Ints
    pair: Ints


class Catalogue:
    """Cells seen so far; each keeps its place. Grows, never shrinks. Not thread-safe.

    A busy pool has a million cells in an hour, most of them once: putting one in is a look into a
    dictionary, and the codes are made for all of them together when somebody asks."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self._places: dict[tuple[str, str, str, str], int] = {}
        self._listed: dict[str, dict[object, int]] = {}
        self._counts: dict[str, int] = {}
        self._made: Codes | None = None

    def place(self, cell: tuple[str, str, str, str]) -> int:
        """The place of (victim, reason, kind, holder), made where it is not there yet."""
        at = self._places.get(cell)
        if at is None:
            made = Cell._make(cell)
            at = self._places[made] = len(self.cells)
            self.cells.append(made)
        return at

    def codes(self) -> Codes:
        if self._made is None or len(self._made.victim) != len(self.cells):
            self._made = self._encoded()
        return self._made

    def _encoded(self) -> Codes:
        """Victims, reasons and holders in the order they were first seen."""
        victims, reasons, kinds, names = zip(*self.cells, strict=True) if self.cells else ((),) * 4
        victim = self._coded("victim", victims)
        reason = self._coded("reason", reasons)
        holder = self._coded("holder", zip(kinds, names, strict=True))
        wait = self._paired("wait", victim, reason, len(self._listed["reason"]))
        pair = self._paired("pair", victim, holder, len(self._listed["holder"]))
        return Codes(victim, reason, holder, wait, pair)

    def _coded(self, name: str, keys: Iterable[object]) -> Ints:
        listed: dict[object, int] = {}
        put = listed.setdefault
        codes: Ints = np.fromiter(
            (put(k, len(listed)) for k in keys), dtype=np.intp, count=len(self.cells)
        )
        self._listed[name], self._counts[name] = listed, len(listed)
        return codes

    def _paired(self, name: str, first: Ints, second: Ints, seconds: int) -> Ints:
        found, codes = np.unique(first * seconds + second, return_inverse=True)
        self._counts[name] = len(found)
        made: Ints = codes.astype(np.intp, copy=False)
        return made

    def listed(self, name: str) -> list[object]:
        """What the codes of victims, reasons or holders stand for, in order."""
        self.codes()
        return list(self._listed[name])

    def holders(self) -> list[tuple[str, str]]:
        """Kind and name of every holder, in the order of its code."""
        return cast("list[tuple[str, str]]", self.listed("holder"))

    def count(self, name: str) -> int:
        """How many codes of a name of `Codes` there are."""
        self.codes()
        return self._counts[name]

    def code(self, name: str, key: object) -> int | None:
        """Of a victim, a reason or a holder; None where it is in no cell."""
        self.codes()
        return self._listed[name].get(key)

    def encode(self, matrix: Mapping[Cell, float]) -> Charges:
        """The same numbers in this catalogue's places."""
        if isinstance(matrix, Charges) and matrix.catalogue is self:
            return matrix
        pairs = [(self.place(c), s) for c, s in matrix.items()]
        return self.charges(pairs)

    def charges(self, pairs: Iterable[tuple[int, float]]) -> Charges:
        listed = list(pairs)
        places = np.fromiter((p for p, _ in listed), dtype=np.intp, count=len(listed))
        seconds = np.fromiter((s for _, s in listed), dtype=np.float64, count=len(listed))
        return Charges(self, places, seconds)


class Charges(Mapping[Cell, float]):
    """Seconds by cell. `places` may name a cell twice (several engines): its seconds add."""

    __slots__ = ("_dict", "catalogue", "places", "seconds")

    def __init__(self, catalogue: Catalogue, places: Ints, seconds: Floats) -> None:
        self.catalogue = catalogue
        self.places = places
        self.seconds = seconds
        self._dict: dict[Cell, float] | None = None

    def _whole(self) -> dict[Cell, float]:
        if self._dict is None:
            cells = self.catalogue.cells
            self._dict = {}
            for p, s in zip(self.places.tolist(), self.seconds.tolist(), strict=True):
                self._dict[cells[p]] = self._dict.get(cells[p], 0.0) + s
        return self._dict

    def __getitem__(self, cell: Cell) -> float:
        return self._whole()[cell]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self.places) if self._dict is None else len(self._dict)

    def summed(self) -> Floats:
        """Seconds of every cell of the catalogue."""
        cells = len(self.catalogue.cells)
        summed = np.bincount(self.places, weights=self.seconds, minlength=cells)
        return summed.astype(np.float64, copy=False)


def catalogue_of(matrices: Iterable[Mapping[Cell, float]]) -> Catalogue:
    """The catalogue most of them share already, or a new one."""
    for m in matrices:
        if isinstance(m, Charges):
            return m.catalogue
    return Catalogue()
