"""Columns as data: which there are at a width, who gets spare cells, and lines of cells.

Knows no tenant and draws no screen; what a row is, its columns know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from console.cells import fit
from console.lines import Glyphs, Line, Piece, cut

SEPARATOR = 1
# The named widths: a column appears from one of them on.
ANY, USUAL, WIDE, VAST = 0, 80, 120, 160

R = TypeVar("R")
Cell = tuple[str, str]  # text, role


@dataclass(frozen=True, slots=True)
class Field(Generic[R]):
    """One column. `priority` 0 is always there, higher ones go first when the line is narrow;
    `since`: the named width from which on it is shown at all. `most` > width: takes spare cells."""

    key: str
    title: str
    width: int
    cell: Callable[[R, int, Glyphs], Cell]
    align: str = "right"
    priority: int = 0
    most: int = 0
    since: int = ANY


def needed(fields: Sequence[Field[R]]) -> int:
    return sum(f.width for f in fields) + SEPARATOR * max(0, len(fields) - 1)


def chosen(fields: Sequence[Field[R]], cells: int) -> tuple[Field[R], ...]:
    """The columns that fit into `cells`, spare width handed to those that can use it."""
    return _chosen(tuple(fields), cells)


@lru_cache(64)  # asked for every line, at every key
def _chosen(fields: tuple[Field[R], ...], cells: int) -> tuple[Field[R], ...]:
    kept = [f for f in fields if f.since <= cells]
    while needed(kept) > cells and any(f.priority for f in kept):
        worst = max(f.priority for f in kept)
        kept.remove(next(f for f in reversed(kept) if f.priority == worst))
    spare = max(0, cells - needed(kept))
    while spare and any(f.most > f.width for f in kept):
        for i, f in enumerate(kept):
            if spare and f.most > f.width:
                kept[i] = replace(f, width=f.width + 1)
                spare -= 1
    return tuple(kept)


def titles(fields: Sequence[Field[R]], cells: int, over: str = "") -> Line:
    """The heading; `over` takes the place of the first two columns' titles, as a list's name."""
    texts = [fit(f.title, f.width, f.align) for f in fields]
    if over and len(fields) > 1:
        texts[:2] = [fit(over, fields[0].width + SEPARATOR + fields[1].width)]
        pieces = (Piece(texts[0], "label"), Piece(" " + " ".join(texts[1:]), "head"))
        return cut(Line(pieces, "head"), cells)
    return cut(Line((Piece(" ".join(texts), "head"),), "head"), cells)


def cells_of(
    row: R, fields: Sequence[Field[R]], cells: int, glyphs: Glyphs, tint: str = ""
) -> Line:
    """One row's line, exactly as wide as its columns."""
    pieces: list[Piece] = []
    for i, f in enumerate(fields):
        text, role = f.cell(row, f.width, glyphs)
        if i:
            pieces.append(Piece(" " * SEPARATOR))
        pieces.append(Piece(fit(text, f.width, f.align), role))
    return cut(Line(tuple(pieces), tint), cells)
