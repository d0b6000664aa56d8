"""Reads a long window of one table piece by piece. Owns how long a piece is; keeps no rows.

A minute of a pool has four rows or a million: so a piece is as long as its rows allow, by what the
piece before it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from telemetry.ask.reading import READ, Result, to_rows
from telemetry.source import Source
from telemetry.store import sql
from telemetry.tables import TABLES

ROWS_A_PIECE = 20_000
_FIRST_S = 600.0
_SHORTEST_S, _LONGEST_S = 1.0, 86_400.0


Extent = dict[str, tuple[int, float, float]]


def extent(source: Source, start: float, end: float) -> tuple[Extent, tuple[str, ...]]:
    """(rows, first instant, last instant) of each table that has rows in [start, end); and what
    the source says its answer lacks."""
    answer = source.query("extent", start=start, end=end)
    found = {
        row["name"]: (row["rows"], row["first_instant"], row["last_instant"])
        for row in answer.dicts()
    }
    return found, answer.partial


def pieces(source: Source, table: str, start: float, end: float) -> Iterator[list[Any]]:
    """The table's rows of [start, end) as its dataclass, a list at a time, in order of time. The
    bounds are finite; rows that belong to a run have no time and come all at once."""
    for answer in answers(source, table, start, end):
        yield to_rows(table, answer)


def answers(source: Source, table: str, start: float, end: float) -> Iterator[Result]:
    """The same as a source answers it: plain values, instants as whole microseconds."""
    if sql.instant_column(TABLES[table]) is None:
        yield source.query(READ + table, start=start, end=end)
        return
    at, length = start, _FIRST_S
    while at < end:
        until = min(end, at + length)
        answer = source.query(READ + table, start=at, end=until)
        rows = answer.rows
        yield answer
        at = until
        if len(rows) > ROWS_A_PIECE:
            length = max(_SHORTEST_S, length / 2)
        elif len(rows) < ROWS_A_PIECE / 4:
            length = min(_LONGEST_S, length * 2)
