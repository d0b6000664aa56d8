"""What a report's words are made of: sections of paragraphs, lists, tables, commands and figures.

Every format renders these same sections, so none can say what another does not. Text is plain;
names are put in whole, and each renderer makes them harmless in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. `right` are the columns that hold numbers; every row has as many cells as head."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Code:
    """Commands or settings, line by line, to be copied as they are."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A place for the chart of that name, where the format can draw; the numbers stand beside it
    in every format. `caption` says how it is read."""

    name: str
    caption: str


Part = str | tuple[str, ...] | Grid | Code | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, then its parts in order: a paragraph (str), a list (tuple), a table, commands, a
    figure."""

    title: str
    parts: tuple[Part, ...]
