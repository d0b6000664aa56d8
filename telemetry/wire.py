"""Questions and answers as protobuf values. Pure; owns no connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from telemetry.proto import tenantscope_pb2 as pb
from telemetry.reading import Result

ROWS_A_MESSAGE = 2_000
_INT64 = 1 << 63


def value(plain: Any) -> pb.Value:
    """A plain value on the wire. Raises TypeError for what a query cannot return or take."""
    if plain is None:
        return pb.Value(null=True)
    if isinstance(plain, bool):
        return pb.Value(boolean=plain)
    if isinstance(plain, int):
        if -_INT64 <= plain < _INT64:
            return pb.Value(integer=plain)
        return pb.Value(number=float(plain))
    if isinstance(plain, float):
        return pb.Value(number=plain)
    if isinstance(plain, str):
        return pb.Value(text=plain)
    if isinstance(plain, tuple | list):
        return pb.Value(integers=pb.IntegerList(values=plain))
    raise TypeError(f"{plain!r} is a {type(plain).__name__}: a query takes and gives plain values")


def plain(value: pb.Value) -> Any:
    """The inverse of `value`."""
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null":
        return None
    if kind == "integers":
        return tuple(value.integers.values)
    return getattr(value, kind)


def request(name: str, parameters: Mapping[str, Any]) -> pb.QueryRequest:
    return pb.QueryRequest(name=name, parameters={k: value(v) for k, v in parameters.items()})


def messages(result: Result) -> Iterator[pb.QueryRows]:
    """The answer in pieces; the first one carries the columns, and is there without rows too."""
    for start in range(0, max(1, len(result.rows)), ROWS_A_MESSAGE):
        yield pb.QueryRows(
            columns=result.columns if start == 0 else (),
            partial=result.partial if start == 0 else (),
            rows=[
                pb.Row(values=[value(v) for v in row])
                for row in result.rows[start : start + ROWS_A_MESSAGE]
            ],
        )


def result(pieces: Iterator[pb.QueryRows]) -> Result:
    """The inverse of `messages`."""
    columns: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = []
    for piece in pieces:
        columns = columns or tuple(piece.columns)
        partial = partial or tuple(piece.partial)
        rows.extend(tuple(plain(v) for v in row.values) for row in piece.rows)
    return Result(columns, tuple(rows), partial)
