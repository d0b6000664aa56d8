"""Questions and answers as protobuf values. Pure; owns no connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from telemetry.ask.in_columns import InColumns
from telemetry.ask.reading import Result
from telemetry.errors import QueryError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.service import packed

ROWS_A_MESSAGE = 2_000
_INT64 = 1 << 63
_SHOWN = 80


def text(given: str) -> str:
    """Text that can go over the wire: a shell passes bytes on that are none. Raises QueryError."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise QueryError(
            f"{given[:_SHOWN]!r} is not UTF-8 text: give it in the terminal's own encoding"
        ) from None
    return given


def value(plain: Any) -> pb.Value:
    """A plain value on the wire. Raises TypeError for what a query cannot return or take, and
    QueryError for text that is none."""
    made = pb.Value()
    _put(plain, made)
    return made


def _put(plain: Any, into: pb.Value) -> None:
    # Set where it lies: a message made apart and copied in takes three times as long.
    if isinstance(plain, float):
        into.number = plain
    elif plain is None:
        into.null = True
    elif isinstance(plain, bool):
        into.boolean = plain
    elif isinstance(plain, int):
        if -_INT64 <= plain < _INT64:
            into.integer = plain
        else:
            into.number = float(plain)
    elif isinstance(plain, str):
        into.text = text(plain)
    elif isinstance(plain, tuple | list):
        into.integers.values.extend(plain)
        into.integers.SetInParent()  # an empty list is no missing value
    else:
        raise TypeError(
            f"{plain!r} is a {type(plain).__name__}: a query takes and gives plain values"
        )


def plain(value: pb.Value) -> Any:
    """The inverse of `value`."""
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null":
        return None
    if kind == "integers":
        return tuple(value.integers.values)
    return getattr(value, kind)


def request(name: str, parameters: Mapping[str, Any]) -> pb.QueryRequest:
    """Raises as `value` does."""
    asked = {k: value(v) for k, v in parameters.items()}
    return pb.QueryRequest(name=text(name), parameters=asked, packed=True)


def messages(result: Result, columns: bool = False) -> Iterator[pb.QueryRows]:
    """The answer in pieces; the first one carries the columns' names, and is there without rows
    too. `columns`: packed column by column, for who asked for that."""
    for start in range(0, max(1, len(result.rows)), ROWS_A_MESSAGE):
        piece = pb.QueryRows(
            columns=result.columns if start == 0 else (),
            partial=result.partial if start == 0 else (),
        )
        rows = result.rows[start : start + ROWS_A_MESSAGE]
        if columns and rows:
            piece.packed_rows = len(rows)
            piece.packed.extend(packed.pack(c, _put) for c in _columns(rows))
            rows = ()
        for row in rows:
            add = piece.rows.add().values.add
            for one in row:
                _put(one, add())
        yield piece


def _columns(rows: Sequence[tuple[Any, ...]]) -> Iterable[Sequence[Any]]:
    return rows.columns if isinstance(rows, InColumns) else zip(*rows, strict=True)


def result(pieces: Iterator[pb.QueryRows], in_columns: bool = False) -> Result:
    """The inverse of `messages`. `in_columns`: rows that came in columns are left there."""
    columns: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = []
    parts: list[list[Sequence[Any]]] = []
    count = 0
    for piece in pieces:
        columns = columns or tuple(piece.columns)
        partial = partial or tuple(piece.partial)
        rows.extend(tuple(plain(v) for v in row.values) for row in piece.rows)
        if n := piece.packed_rows:
            unpacked = [packed.unpack(c, n, plain) for c in piece.packed]
            if in_columns:
                parts.append(unpacked)
                count += n
            else:
                rows.extend(zip(*unpacked, strict=True))
    if parts:  # then all of them are: who packs one piece packs every one
        whole = [[*chain.from_iterable(some)] for some in zip(*parts, strict=True)]
        return Result(columns, InColumns(whole, count), partial)
    return Result(columns, tuple(rows), partial)
