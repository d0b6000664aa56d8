"""The rows of one minute table of a request, gathered column by column. Reads no protobuf."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from itertools import repeat
from typing import Any

from telemetry.instants import unix_seconds
from telemetry.otlp.read import bounded
from telemetry.tables import Table

Identity = tuple[Any, ...]  # start of the bucket, microseconds; then the names
NO_ROOM = -1


class Columns:
    """`row` says where a row of an identity is, `put` writes a column's values there."""

    def __init__(self, table: Table, names: tuple[str, ...], of_all: dict[str, Any], most: int):
        """`names` are the key columns that tell rows apart beside their start, `of_all` the key
        columns that all have in common; there is room for `most` rows."""
        self._table = table
        self._names = names
        self._of_all = of_all
        self.most = most
        self._index: dict[Identity, int] = {}
        self._columns: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._index)

    def row(self, identity: Identity) -> int:
        """The row's place, made where it is new; NO_ROOM when there is none. Raises Refused for a
        name that is too long."""
        at = self._index.get(identity)
        if at is None:
            for name in identity[1:]:
                bounded(name)
            at = len(self._index)
            if at >= self.most:
                return NO_ROOM
            self._index[identity] = at
        return at

    def put(self, column: str, rows: Sequence[int], values: Sequence[Any]) -> None:
        """Of a row twice the later value counts."""
        count = len(self._index)
        column_values = self._columns.get(column)
        if column_values is None:
            if len(rows) == count and all(map(int.__eq__, rows, range(count))):
                self._columns[column] = list(values)
                return
            column_values = self._columns[column] = []
        if len(column_values) < count:
            column_values += [None] * (count - len(column_values))
        deque(map(column_values.__setitem__, rows, values), maxlen=0)

    def made(self) -> list[Any]:
        """The rows themselves.

        Filled slot by slot: a frozen row's own __init__ does the same, in three times the time.
        """
        kind, count = self._table.row, len(self._index)
        if not count:
            return []
        new = object.__new__
        rows = [new(kind) for _ in range(count)]
        starts, *names = zip(*self._index, strict=True)
        given: dict[str, Any] = {name: repeat(value) for name, value in self._of_all.items()}
        given["bucket_start"] = map(unix_seconds, starts)
        given |= dict(zip(self._names, names, strict=True))
        for name, values in self._columns.items():
            given[name] = values + [None] * (count - len(values))
        for f in fields(kind):
            put = getattr(kind, f.name).__set__
            deque(map(put, rows, given.get(f.name, repeat(f.default))), maxlen=0)
        return rows
