"""OTLP protobuf back to rows. Pure functions of bytes; trusts none of them.

A name of our vocabulary is held to it: a wrong type, a NaN, a negative delta, a missing key is
counted with its reason and sinks nothing else of its request. Another name is foreign, and kept
apart when it is well-formed (`foreign`). Ours from a sender that is none of our processes are
handed on as they came (`generic_in`). Every point is one of the four.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from math import isfinite
from typing import Any

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from telemetry.conventions import NAMESPACE, Column, Emitter, Kind, metric_name
from telemetry.errors import MalformedBatch
from telemetry.instants import FIRST_US, LAST_US, unix_seconds
from telemetry.otlp import foreign
from telemetry.otlp import generic as generic_in
from telemetry.otlp.charges import in_rows
from telemetry.otlp.cumulative import Arrival
from telemetry.otlp.encode import attribute
from telemetry.otlp.read import (
    LONGEST_NAME,
    Refused,
    Tally,
    body,
    plain,
    points_in,
    resource_values,
    shown,
)
from telemetry.otlp.rows import Rows
from telemetry.records import Batch, ForeignMetric
from telemetry.tables import TABLES, Table

SEQ_LIMIT = 1 << 40  # seq stays below it, so that "sealed" can be the bit above
_LONGEST_TEXT = 65_536
_JSON_TEXTS = frozenset({"config", "costs", "parameters"})
_LONGEST_JSON = 16 << 20


@dataclass(frozen=True)
class Decoded:
    """What a request holds: rows, of `accepted` points or records; what is kept apart; points that
    are yet to be made deltas; and what was refused: how many, and the first few distinct reasons.

    In `packed` a bucket's interference matrix may be one value, `Charges`, among the minute rows;
    who merges takes it so. `batches` are the same with a row a cell, made when first asked for.
    """

    packed: tuple[Batch, ...] = ()
    refused: int = 0
    reasons: tuple[str, ...] = ()
    foreign: tuple[ForeignMetric, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    accepted: int = 0
    # (engine, run, pool, start of the bucket, victim, reason) of cells that came as one point.
    gathered: frozenset[tuple[Any, ...]] = frozenset()

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Every row by itself, as who follows the store wants to hear it."""
        return tuple(map(in_rows, self.packed))

    def rows(self, table: str) -> list[Any]:
        """All rows of one table, in the order they came."""
        row = TABLES[table].row
        return [r for b in self.batches for r in (*b.minutes, *b.logs) if type(r) is row]

    def engines(self) -> set[str]:
        """Every engine that the request speaks for."""
        return (
            {b.engine for b in self.packed}
            | {f.engine for f in self.foreign}
            | {a.sender.engine for a in self.arrivals}
        )


@dataclass(frozen=True, slots=True)
class _Origin:
    engine: str
    run_id: str
    pool: str
    emitter: Emitter
    sealed: bool
    seq: int
    bucket_s: float | None

    def batch(self, minutes: Iterable[Any] = (), logs: Iterable[Any] = ()) -> Batch:
        return Batch(
            self.engine,
            self.run_id,
            self.pool,
            self.emitter,
            self.sealed,
            self.seq,
            tuple(minutes),
            tuple(logs),
        )


def decode_metrics(data: bytes) -> Decoded:
    """What an ExportMetricsServiceRequest holds, rows as one Batch a resource.

    Raises MalformedBatch when the bytes are no such request; nothing else, whatever they are.
    """
    request = _parse(ExportMetricsServiceRequest(), data)
    tally, batches, accepted = Tally(), [], 0
    kept: list[ForeignMetric] = []
    arrived: list[Arrival] = []
    gathered: set[tuple[Any, ...]] = set()
    for resource in request.resource_metrics:
        ours: list[Metric] = []
        values = resource_values(resource.resource)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name in _COLUMN_OF:
                    ours.append(metric)
                else:
                    kept += foreign.points(metric, values, tally)
        if not ours:
            continue
        try:
            if generic_in.is_generic(values):
                sender = generic_in.sender_of(values)
                for metric in ours:
                    if body(metric) is not None:
                        table, column = _COLUMN_OF[metric.name]
                        arrived += generic_in.arrivals(metric, table, column, sender, tally)
                continue
            origin = _origin(values, needs_bucket=True)
        except Refused as why:
            tally.add(str(why), sum(points_in(m) for m in ours))
            continue
        run = (origin.engine, origin.run_id, origin.pool)
        rows = Rows(*run, origin.bucket_s or 0.0, tally)
        for metric in ours:
            accepted += rows.take(metric, *_COLUMN_OF[metric.name])
        minutes = tuple(rows.made())
        if minutes:
            batches.append(origin.batch(minutes=minutes))
        gathered.update((*run, *group) for group in rows.gathered)
    return Decoded(
        tuple(batches),
        tally.refused,
        tuple(tally.reasons),
        tuple(kept),
        tuple(arrived),
        accepted,
        frozenset(gathered),
    )


def decode_logs(data: bytes) -> Decoded:
    """What an ExportLogsServiceRequest holds; see `decode_metrics`."""
    request = _parse(ExportLogsServiceRequest(), data)
    tally, batches, accepted = Tally(), [], 0
    kept: list[ForeignMetric] = []
    for resource in request.resource_logs:
        ours: list[LogRecord] = []
        others: list[LogRecord] = []
        for scope in resource.scope_logs:
            for record in scope.log_records:
                (ours if _table_of(record) is not None else others).append(record)
        values = resource_values(resource.resource)
        if others:
            kept += foreign.records(others, values, tally)
        if not ours:
            continue
        try:
            origin = _origin(values, needs_bucket=False)
        except Refused as why:
            tally.add(str(why), len(ours))
            continue
        rows = []
        for record in ours:
            try:
                rows.append(_decode_record(record, origin))
            except Refused as why:
                tally.add(str(why))
        accepted += len(rows)
        if rows:
            batches.append(origin.batch(logs=rows))
    return Decoded(
        tuple(batches), tally.refused, tuple(tally.reasons), tuple(kept), accepted=accepted
    )


def _parse(request: Any, data: bytes) -> Any:
    name = type(request).__name__
    try:
        request.ParseFromString(data)
    except DecodeError as e:
        raise MalformedBatch(f"{len(data)} bytes are not an {name}: {e}") from None
    unknown: Message = request
    if data and not unknown.ListFields():
        raise MalformedBatch(f"{len(data)} bytes hold nothing an {name} knows")
    return request


def _origin(have: dict[str, Any], *, needs_bucket: bool) -> _Origin:
    def take(name: str, kind: type) -> Any:
        value = have.get(attribute(name))
        if type(value) is not kind:
            raise Refused(
                f"resource attribute {attribute(name)} is {shown(value)}: expected {kind.__name__}"
            )
        if isinstance(value, str) and len(value) > LONGEST_NAME:
            raise Refused(f"{attribute(name)} of {len(value)} characters: at most {LONGEST_NAME}")
        return value

    seq = take("seq", int)
    if not 0 <= seq < SEQ_LIMIT:
        raise Refused(f"{attribute('seq')} = {seq}: expected 0 <= seq < 2**40")
    emitter = take("emitter", str)
    if emitter not in {e.value for e in Emitter}:
        raise Refused(f"{attribute('emitter')} = {shown(emitter)}: expected front, worker or store")
    bucket_s = None
    if needs_bucket:
        if emitter == Emitter.STORE.value:
            raise Refused("emitter 'store' writes no minute rows")
        bucket_s = take("bucket_s", float)
        if not 0 < bucket_s <= generic_in.LONGEST_BUCKET_S:
            raise Refused(f"{attribute('bucket_s')} = {bucket_s}: expected up to a day")
    return _Origin(
        take("engine", str),
        take("run_id", str),
        take("pool", str),
        Emitter(emitter),
        take("sealed", bool),
        seq,
        bucket_s,
    )


_COLUMN_OF: dict[str, tuple[Table, Column]] = {
    metric_name(t.name, c.name): (t, c)
    for t in TABLES.values()
    if not t.log
    for c in t.columns
    if c.kind is not Kind.KEY
}


_REQUIRED: dict[str, tuple[str, ...]] = {
    t.name: tuple(f.name for f in fields(t.row) if f.default is MISSING) for t in TABLES.values()
}
_LOG_COLUMN_OF: dict[str, dict[str, Column]] = {
    t.name: {metric_name(t.name, c.name): c for c in t.columns} for t in TABLES.values() if t.log
}


def _table_of(record: LogRecord) -> str | None:
    """The table a record is a row of; None for a foreign one."""
    name = record.event_name.removeprefix(f"{NAMESPACE}.")
    return name if name != record.event_name and name in _LOG_COLUMN_OF else None


def _decode_record(record: LogRecord, origin: _Origin) -> Any:
    name = _table_of(record) or ""
    columns = _LOG_COLUMN_OF[name]
    row: dict[str, Any] = {
        "engine": origin.engine,
        "run_id": origin.run_id,
        "pool": origin.pool,
    }
    for pair in record.attributes:
        column = columns.get(pair.key)
        if column is None:
            raise Refused(f"{record.event_name}: {shown(pair.key)} is not in the vocabulary")
        if column.name in row:
            raise Refused(f"{record.event_name}: {pair.key} stands there twice")
        try:
            row[column.name] = _read_attribute(plain(pair.value), column)
        except Refused as why:
            raise Refused(f"{pair.key}: {why}") from None
    for required in _REQUIRED[name]:
        if required not in row:
            raise Refused(f"{record.event_name}: without {metric_name(name, required)}")
    return TABLES[name].row(**row)


def _read_attribute(value: Any, column: Column) -> Any:
    if column.sql == "DOUBLE" and type(value) in (int, float):
        value = float(value)
        if isfinite(value):
            return value
    elif column.sql == "TIMESTAMP" and type(value) is int:
        if FIRST_US < value <= LAST_US:
            return unix_seconds(value)
    elif type(value) is {"VARCHAR": str, "BIGINT": int, "BOOLEAN": bool}.get(column.sql):
        if type(value) is str:
            most = _LONGEST_JSON if column.name in _JSON_TEXTS else _LONGEST_TEXT
            if len(value) > most:
                raise Refused(f"{len(value)} characters: expected at most {most}")
        return value
    raise Refused(f"{shown(value)}: expected {column.sql}")
