"""OTLP protobuf back to rows. Pure functions of bytes; trusts none of them.

What does not fit the vocabulary (an unknown name, a wrong type, a NaN, a negative delta, a missing
key) is counted with its reason and sinks nothing else of its request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from math import isfinite
from typing import Any

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.conventions import LATENCY_BOUNDS_S, NAMESPACE, Column, Emitter, Kind, metric_name
from telemetry.errors import MalformedBatch
from telemetry.instants import FIRST_US, LAST_US, micros, unix_seconds
from telemetry.otlp_encode import attribute, point_keys
from telemetry.records import Batch
from telemetry.tables import TABLES, Table

SEQ_LIMIT = 1 << 40  # seq stays below it, so that "sealed" can be the bit above
LONGEST_BUCKET_S = 86_400.0
REASONS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a request, and what of it was refused: the count of points or records, and the
    first few distinct reasons."""

    batches: tuple[Batch, ...] = ()
    refused: int = 0
    reasons: tuple[str, ...] = ()

    def rows(self, table: str) -> list[Any]:
        """All rows of one table, in the order they came."""
        row = TABLES[table].row
        return [r for b in self.batches for r in (*b.minutes, *b.logs) if type(r) is row]


class Refused(ValueError):
    """Why one point or record is not taken; the rest of its request is."""


@dataclass(slots=True)
class _Tally:
    refused: int = 0
    reasons: dict[str, None] = field(default_factory=dict)

    def add(self, reason: str, count: int = 1) -> None:
        self.refused += count
        if len(self.reasons) < REASONS_KEPT:
            self.reasons[reason[:300]] = None


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
    """Minute rows of an ExportMetricsServiceRequest, one Batch a resource.

    Points that do not fit the vocabulary are counted with a reason and sink nothing else. Raises
    MalformedBatch when the bytes are no such request.
    """
    request = _parse(ExportMetricsServiceRequest(), data)
    tally, batches = _Tally(), []
    for resource in request.resource_metrics:
        metrics = [m for s in resource.scope_metrics for m in s.metrics]
        try:
            origin = _origin(resource.resource, needs_bucket=True)
        except Refused as why:
            tally.add(str(why), sum(_points_in(m) for m in metrics))
            continue
        cells: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        for metric in metrics:
            _decode_metric(metric, origin, cells, tally)
        minutes = [
            TABLES[name].row(**columns) for name, rows in cells.items() for columns in rows.values()
        ]
        if minutes:
            batches.append(origin.batch(minutes=minutes))
    return Decoded(tuple(batches), tally.refused, tuple(tally.reasons))


def decode_logs(data: bytes) -> Decoded:
    """Log rows of an ExportLogsServiceRequest, one Batch a resource; see `decode_metrics`."""
    request = _parse(ExportLogsServiceRequest(), data)
    tally, batches = _Tally(), []
    for resource in request.resource_logs:
        records = [r for s in resource.scope_logs for r in s.log_records]
        try:
            origin = _origin(resource.resource, needs_bucket=False)
        except Refused as why:
            tally.add(str(why), len(records))
            continue
        rows = []
        for record in records:
            try:
                rows.append(_decode_record(record, origin))
            except Refused as why:
                tally.add(str(why))
        if rows:
            batches.append(origin.batch(logs=rows))
    return Decoded(tuple(batches), tally.refused, tuple(tally.reasons))


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


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def _origin(resource: Resource, *, needs_bucket: bool) -> _Origin:
    have = {a.key: _plain(a.value) for a in resource.attributes}

    def take(name: str, kind: type) -> Any:
        value = have.get(attribute(name))
        if type(value) is not kind:
            raise Refused(
                f"resource attribute {attribute(name)} is {value!r}: expected {kind.__name__}"
            )
        return value

    seq = take("seq", int)
    if not 0 <= seq < SEQ_LIMIT:
        raise Refused(f"{attribute('seq')} = {seq}: expected 0 <= seq < 2**40")
    emitter = take("emitter", str)
    if emitter not in {e.value for e in Emitter}:
        raise Refused(f"{attribute('emitter')} = {emitter!r}: expected front, worker or store")
    bucket_s = None
    if needs_bucket:
        if emitter == Emitter.STORE.value:
            raise Refused("emitter 'store' writes no minute rows")
        bucket_s = take("bucket_s", float)
        if not 0 < bucket_s <= LONGEST_BUCKET_S:
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


def _body(metric: Metric) -> Any:
    kind = metric.WhichOneof("data")
    return getattr(metric, kind) if kind else None


def _points_in(metric: Metric) -> int:
    body = _body(metric)
    return len(body.data_points) if body is not None else 0


_COLUMN_OF: dict[str, tuple[Table, Column]] = {
    metric_name(t.name, c.name): (t, c)
    for t in TABLES.values()
    if not t.log
    for c in t.columns
    if c.kind is not Kind.KEY
}


def _decode_metric(
    metric: Metric,
    origin: _Origin,
    cells: dict[str, dict[tuple[Any, ...], dict[str, Any]]],
    tally: _Tally,
) -> None:
    body = _body(metric)
    if body is None:
        return
    try:
        if metric.name not in _COLUMN_OF:
            raise Refused(f"metric {metric.name!r} is not in the vocabulary")
        table, column = _COLUMN_OF[metric.name]
        _check_shape(metric, column)
    except Refused as why:
        tally.add(str(why), len(body.data_points))
        return
    keys = point_keys(table)
    rows = cells.setdefault(table.name, {})
    read = _read_histogram if column.kind is Kind.HIST else _read_number
    for point in body.data_points:
        try:
            value = read(point, column)
            start_us = _bucket_start(point, origin)
            found = {a.key: a.value.string_value for a in point.attributes if _is_text(a.value)}
            try:
                identity = (start_us, *(found[attribute(k)] for k in keys))
            except KeyError as missing:
                raise Refused(f"a point without {missing.args[0]}") from None
        except Refused as why:
            tally.add(f"{metric.name}: {why}")
            continue
        row = rows.get(identity)
        if row is None:
            row = rows[identity] = {
                "bucket_start": unix_seconds(start_us),
                "bucket_s": origin.bucket_s,
                "engine": origin.engine,
                "run_id": origin.run_id,
                "pool": origin.pool,
                **dict(zip(keys, identity[1:], strict=True)),
            }
        row[column.name] = value


def _is_text(value: AnyValue) -> bool:
    return value.WhichOneof("value") == "string_value"


def _check_shape(metric: Metric, column: Column) -> None:
    kind = metric.WhichOneof("data")
    wanted = {Kind.SUM: "sum", Kind.HIST: "histogram"}.get(column.kind, "gauge")
    if kind != wanted:
        raise Refused(f"metric {metric.name} came as {kind}: expected {wanted}")
    if kind != "gauge" and _body(metric).aggregation_temporality != AGGREGATION_TEMPORALITY_DELTA:
        raise Refused(f"metric {metric.name} is not delta: send delta temporality to the store")


def _bucket_start(point: Any, origin: _Origin) -> int:
    start_us, end_us = point.start_time_unix_nano // 1000, point.time_unix_nano // 1000
    if not FIRST_US < start_us <= LAST_US:
        raise Refused(f"start_time_unix_nano = {point.start_time_unix_nano}: not an instant")
    if micros(unix_seconds(start_us) + (origin.bucket_s or 0.0)) != end_us:
        raise Refused(f"a point of {end_us - start_us} us in a bucket of {origin.bucket_s} s")
    return int(start_us)


def _read_number(point: NumberDataPoint, column: Column) -> int | float:
    kind = point.WhichOneof("value")
    if kind is None:
        raise Refused("a point without a value")
    value: int | float = getattr(point, kind)
    if column.sql == "BIGINT":
        if kind != "as_int":
            raise Refused(f"{value!r}: expected an integer")
    else:
        value = float(value)
        if not isfinite(value):
            raise Refused(f"{value!r}: expected a finite number")
    if column.kind is Kind.SUM and value < 0:
        raise Refused(f"{value!r}: a delta sum cannot be negative")
    return value


def _read_histogram(point: HistogramDataPoint, column: Column) -> tuple[int, ...]:
    if tuple(point.explicit_bounds) != LATENCY_BOUNDS_S:
        raise Refused(f"{len(point.explicit_bounds)} bounds other than the vocabulary's")
    counts = tuple(point.bucket_counts)
    if len(counts) != len(LATENCY_BOUNDS_S) + 1:
        raise Refused(f"{len(counts)} buckets: expected {len(LATENCY_BOUNDS_S) + 1}")
    if sum(counts) != point.count or point.count >= 1 << 63:
        raise Refused(f"buckets add up to {sum(counts)}, the count says {point.count}")
    return counts


_REQUIRED: dict[str, tuple[str, ...]] = {
    t.name: tuple(f.name for f in fields(t.row) if f.default is MISSING) for t in TABLES.values()
}
_LOG_COLUMN_OF: dict[str, dict[str, Column]] = {
    t.name: {metric_name(t.name, c.name): c for c in t.columns} for t in TABLES.values() if t.log
}


def _decode_record(record: LogRecord, origin: _Origin) -> Any:
    name = record.event_name.removeprefix(f"{NAMESPACE}.")
    if record.event_name == name or name not in _LOG_COLUMN_OF:
        raise Refused(f"log event {record.event_name!r} is not in the vocabulary")
    columns = _LOG_COLUMN_OF[name]
    row: dict[str, Any] = {
        "engine": origin.engine,
        "run_id": origin.run_id,
        "pool": origin.pool,
    }
    for pair in record.attributes:
        column = columns.get(pair.key)
        if column is None:
            raise Refused(f"{record.event_name}: {pair.key!r} is not in the vocabulary")
        try:
            row[column.name] = _read_attribute(_plain(pair.value), column)
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
        return value
    raise Refused(f"{value!r}: expected {column.sql}")
