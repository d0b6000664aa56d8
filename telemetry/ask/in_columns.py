"""Rows of an answer that lie in columns, as a database holds them and a wire carries them. Pure.

A crowd's minute is a million values. Who packs or fills rows column by column needs no tuple a row,
and no object a value before somebody looks; everybody else sees rows. Knows no NumPy: a column is
any sequence (`telemetry.ask.arrays` has one).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

Row = tuple[Any, ...]


class InColumns(Sequence[Row]):
    """`count` rows of `columns`, each of that many values: rows to whoever asks for rows."""

    __slots__ = ("_count", "columns")

    def __init__(self, columns: Sequence[Sequence[Any]], count: int) -> None:
        """Raises ValueError for a column of another length."""
        odd = [len(c) for c in columns if len(c) != count]
        if odd:
            raise ValueError(f"a column of {odd[0]} values in {count} rows")
        self.columns = tuple(columns)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return zip(*self.columns, strict=True)

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> InColumns: ...

    def __getitem__(self, at: int | slice) -> Row | InColumns:
        if isinstance(at, slice):
            return InColumns([c[at] for c in self.columns], len(range(*at.indices(self._count))))
        return tuple(c[at] for c in self.columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InColumns | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
