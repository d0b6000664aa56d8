"""Columns of an answer as packed protobuf, both ways. Pure; owns no connection.

A value on its own costs a message and a look at what kind it is, on both sides; ten thousand rows
of ninety columns are a million of them. A column of one kind is a list that protobuf copies whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any

from telemetry.proto import tenantscope_pb2 as pb

_NONE = type(None)
Put = Callable[[Any, pb.Value], None]
Plain = Callable[[pb.Value], Any]


def pack(column: Sequence[Any], put: Put) -> pb.PackedColumn:
    """One column of at least one row. `put` sets a value, where the values are of several kinds."""
    if not isinstance(column, list | tuple):
        # Only here: where a column is an array NumPy is there, and a reader does without.
        from telemetry.service.packed_arrays import pack_numbers

        numbers = pack_numbers(column, put)
        return numbers if numbers is not None else pack(list(column), put)
    made = pb.PackedColumn()
    kinds = set(map(type, column))
    if len(kinds) == 1 and _is_one(column):
        put(column[0], made.same)
        return made
    missing = _NONE in kinds
    kinds.discard(_NONE)
    kind = kinds.pop() if len(kinds) == 1 else None
    fill = _FILLS.get(kind) if kind is not None else None
    if fill is None or not _filled(made, fill, column, missing):
        made.Clear()
        made.mixed.SetInParent()
        for one in column:
            put(one, made.mixed.values.add())
    return made


def _is_one(column: Sequence[Any]) -> bool:
    first = column[0]
    # Of floats 0.0 and -0.0 are equal and not the same.
    same = first != 0.0 if type(first) is float else True
    return same and column.count(first) == len(column)


def _filled(made: pb.PackedColumn, fill: Any, column: Sequence[Any], missing: bool) -> bool:
    name, blank, spread = fill
    values: Sequence[Any] = column
    if missing:
        absent = bytes(map(_is_none, column))
        values = [blank if gone else v for gone, v in zip(absent, column, strict=True)]
        made.absent = absent
    into = getattr(made, name)
    try:
        if spread:
            into.lengths.extend(map(len, values))
            values = list(chain.from_iterable(values))
        into.values.extend(values)
    except (ValueError, UnicodeEncodeError):  # past 64 bits, or no text: `put` knows what to do
        return False
    into.SetInParent()
    return True


def _is_none(value: Any) -> bool:
    return value is None


_FILLS: dict[type, tuple[str, Any, bool]] = {
    float: ("numbers", 0.0, False),
    int: ("integers", 0, False),
    str: ("texts", "", False),
    tuple: ("lists", (), True),
}


def unpack(column: pb.PackedColumn, rows: int, plain: Plain) -> Sequence[Any]:
    """The inverse of `pack`, for a column of so many rows."""
    kind = column.WhichOneof("kind")
    if kind == "same":
        return tuple(repeat(plain(column.same), rows))
    if kind == "mixed":
        return tuple(map(plain, column.mixed.values))
    values: list[Any]
    if kind == "lists":
        values = list(_parted(list(column.lists.values), column.lists.lengths))
    elif kind is None:
        values = []
    else:
        values = list(getattr(column, kind).values)
    if column.absent:
        for i in compress(range(rows), column.absent):
            values[i] = None
    return values


def _parted(values: list[int], lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    at = 0
    for length in lengths:
        yield tuple(values[at : at + length])
        at += length
