"""Frames, rows of the tail and questions as protobuf, both ways. Pure; owns no connection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from telemetry.ask.reading import Result, to_rows
from telemetry.errors import QueryError
from telemetry.instants import micros
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.records import EventRecord, PolicyRecord
from telemetry.service import wire
from telemetry.tables import TABLE_OF, TABLES
from telemetry.watch.frame import (
    COLUMNS,
    DEFAULT_EVERY_S,
    DEFAULT_N,
    DEFAULT_SORT,
    DEFAULT_WINDOW_S,
    Asked,
    Frame,
    PoolNow,
    Row,
    WatchColumn,
)

_NAN = float("nan")


def asked(request: pb.WatchRequest) -> Asked:
    """What a request asks for; what it leaves out are the defaults. Raises QueryError."""
    return Asked(
        sort=request.sort or DEFAULT_SORT,
        descending=not request.ascending,
        filter=request.filter,
        n=request.n or DEFAULT_N,
        every_s=request.every_s or DEFAULT_EVERY_S,
        window_s=request.window_s or DEFAULT_WINDOW_S,
    )


def request(asked: Asked) -> pb.WatchRequest:
    """The inverse of `asked`. Raises QueryError for a filter that is no text."""
    return pb.WatchRequest(
        sort=asked.sort,
        ascending=not asked.descending,
        filter=wire.text(asked.filter),
        n=asked.n,
        every_s=asked.every_s,
        window_s=asked.window_s,
    )


def message(frame: Frame, *, columns: bool) -> pb.WatchFrame:
    """A frame on the wire, with what its columns are or without."""
    return pb.WatchFrame(
        at_unix_s=frame.at,
        from_unix_s=frame.start,
        to_unix_s=frame.end,
        columns=[
            pb.WatchColumn(name=c.name, unit=c.unit, kind=c.kind, meaning=c.meaning)
            for c in (frame.columns if columns else ())
        ],
        rows=map(_row, frame.rows),
        others=_row(frame.others),
        others_tenants=frame.others_tenants,
        tenants=frame.tenants,
        matched=frame.matched,
        pools=[
            pb.WatchPool(
                engine=p.engine,
                pool=p.pool,
                heard_age_s=p.heard_age_s,
                observed_s=p.observed_s,
                counted=p.counted,
                provisional=p.provisional,
                tenants=p.tenants,
                values=_numbers(p.values),
            )
            for p in frame.pools
        ],
        provisional=frame.provisional,
        partial=frame.partial,
        dropped=frame.dropped,
    )


def frame(said: pb.WatchFrame) -> Frame:
    """The inverse of `message`. Raises QueryError when the other side has other columns."""
    columns = tuple(WatchColumn(c.name, c.unit, c.kind, c.meaning) for c in said.columns)
    names = [c.name for c in columns]
    widths = {len(r.values) for r in (*said.rows, said.others)}
    if (columns and names != [c.name for c in COLUMNS]) or widths != {len(COLUMNS)}:
        raise QueryError("frames came with other columns: the two sides are of different versions")
    return Frame(
        at=said.at_unix_s,
        start=said.from_unix_s,
        end=said.to_unix_s,
        rows=tuple(Row(r.tenant, _absent(r.values)) for r in said.rows),
        others=Row("", _absent(said.others.values)),
        others_tenants=said.others_tenants,
        tenants=said.tenants,
        matched=said.matched,
        pools=tuple(
            PoolNow(
                engine=p.engine,
                pool=p.pool,
                heard_age_s=p.heard_age_s,
                observed_s=p.observed_s,
                counted=p.counted,
                provisional=p.provisional,
                tenants=p.tenants,
                values=_absent(p.values),
            )
            for p in said.pools
        ),
        provisional=said.provisional,
        partial=tuple(said.partial),
        dropped=said.dropped,
    )


def _row(row: Row) -> pb.WatchRow:
    return pb.WatchRow(tenant=row.tenant, values=_numbers(row.values))


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [_NAN if v is None else v for v in values]


def _absent(values: Iterable[float]) -> tuple[float | None, ...]:
    return tuple(None if v != v else v for v in values)


# --- the tail ---


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows that a reader of the tail was too slow for."""

    count: int


Tailed = EventRecord | PolicyRecord | Dropped


def tail_message(item: Tailed) -> pb.TailRow:
    if isinstance(item, Dropped):
        return pb.TailRow(dropped=item.count)
    table = TABLE_OF[type(item)]
    values: list[Any] = []
    for column in table.columns:
        value = getattr(item, column.name)
        instant = column.sql == "TIMESTAMP" and value is not None
        values.append(wire.value(micros(value) if instant else value))
    return pb.TailRow(table=table.name, row=pb.Row(values=values))


def tailed(said: pb.TailRow) -> Tailed:
    """The inverse of `tail_message`. Raises QueryError for another version's row."""
    if not said.table:
        return Dropped(said.dropped)
    values = tuple(wire.plain(v) for v in said.row.values)
    table = TABLES.get(said.table)
    if table is None or len(values) != len(table.columns):
        raise QueryError(
            f"a row of {said.table} with {len(values)} columns: the two sides are of different "
            "versions"
        )
    row: Tailed = to_rows(said.table, Result(table.column_names, (values,)))[0]
    return row
