"""Rows to OTLP protobuf. A pure function of values; opens no socket and no file.

A minute table's column is a metric named `tenantscope.<table>.<column>`; each row that has the
column gives it one data point, stamped with the bounds of the row's bucket. What identifies the
delivery (engine, run, pool, emitter, sealed, seq, bucket length) stands on the resource, what
varies inside it (tenant, adapter) on the point; the matrix has a form of its own (`otlp_matrix`). A
log row is one log record whose event name is `tenantscope.<table>`. None is absent: no point, no
attribute. Minutes, which are many points, are written as bytes; logs through the official classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.conventions import LATENCY_BOUNDS_S, NAMESPACE, Column, Kind, metric_name
from telemetry.instants import INSTANT_OF_LOG, micros
from telemetry.otlp import protobuf_bytes as pb
from telemetry.otlp.matrix import (
    REASON,
    ROUNDING,
    VICTIM,
    Cells,
    Writer,
    gather,
    text_attribute,
)
from telemetry.records import Batch, Counts, InterferenceMinute
from telemetry.tables import TABLE_OF, TABLES, Table

SCOPE = InstrumentationScope(name=f"{NAMESPACE}.telemetry")
RUN_KEYS = ("engine", "run_id", "pool")
_ON_RESOURCE = frozenset({"bucket_start", "bucket_s", *RUN_KEYS})
_MATRIX = TABLES["interference_minute"]
_CHARGED = next(c for c in _MATRIX.columns if c.kind is not Kind.KEY)
_BUCKETS = len(LATENCY_BOUNDS_S) + 1
# Field numbers of the official messages, outermost first.
_RESOURCE_METRICS, _RESOURCE, _SCOPE_METRICS, _METRICS = 1, 1, 2, 2
_GAUGE, _SUM, _HISTOGRAM, _POINTS = 5, 7, 9, 1
_START, _END, _HISTOGRAM_ATTRIBUTES = 2, 3, 9
_KEY, _VALUE, _STRING = 1, 2, 1
_AS_DOUBLE, _AS_INT = pb.fixed64_tag(4), pb.fixed64_tag(6)
_EIGHT = 9  # bytes of a number with its tag
_COUNT, _BUCKET_COUNTS = pb.fixed64_tag(4), pb.opened(6, 8 * _BUCKETS)
_EXPLICIT_BOUNDS = pb.field(7, pb.packed("d", LATENCY_BOUNDS_S))
_COUNTED = _EIGHT + len(_BUCKET_COUNTS) + 8 * _BUCKETS + len(_EXPLICIT_BOUNDS)
_DELTA = pb.whole(2, AGGREGATION_TEMPORALITY_DELTA)
_MONOTONIC = pb.whole(3, 1)
_SCOPE_BYTES = pb.field(1, SCOPE.SerializeToString())


def attribute(name: str) -> str:
    """The attribute name of a key column or of a delivery's mark."""
    return f"{NAMESPACE}.{name}"


def point_keys(table: Table) -> tuple[str, ...]:
    """Key columns that vary inside a delivery: the attributes of a data point."""
    return tuple(k for k in table.key if k not in _ON_RESOURCE)


def encode(batch: Batch) -> tuple[bytes | None, bytes | None]:
    """The batch as (ExportMetricsServiceRequest, ExportLogsServiceRequest); None when empty.

    A minute row with no value present leaves no trace. Raises ValueError when a row belongs to
    another engine, run or pool than the batch, or holds text that UTF-8 cannot carry.
    """
    for row in (*batch.minutes, *batch.logs):
        if (row.engine, row.run_id, row.pool) != (batch.engine, batch.run_id, batch.pool):
            raise ValueError(
                f"a {TABLE_OF[type(row)].name} row of {row.engine}/{row.run_id}/{row.pool} in a "
                f"batch of {batch.engine}/{batch.run_id}/{batch.pool}: one run a batch"
            )
    metrics = _encode_metrics(batch) if batch.minutes else None
    logs = _encode_logs(batch) if batch.logs else None
    return metrics, logs


def _any(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value)


def _resource(batch: Batch, bucket_s: float | None) -> Resource:
    values: dict[str, Any] = {
        "service.name": NAMESPACE,
        "service.instance.id": batch.engine,
        attribute("engine"): batch.engine,
        attribute("run_id"): batch.run_id,
        attribute("pool"): batch.pool,
        attribute("emitter"): batch.emitter.value,
        attribute("sealed"): batch.sealed,
        attribute("seq"): batch.seq,
    }
    if bucket_s is not None:
        values[attribute("bucket_s")] = float(bucket_s)
    return Resource(attributes=[KeyValue(key=k, value=_any(v)) for k, v in values.items()])


def _encode_metrics(batch: Batch) -> bytes | None:
    by_length: dict[float, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in batch.minutes:
        by_length[row.bucket_s][TABLE_OF[type(row)].name].append(row)
    resources = []
    for bucket_s, by_table in by_length.items():
        metrics: list[bytes] = []
        for name, rows in by_table.items():
            metrics += _matrix(rows) if name == _MATRIX.name else _table(TABLES[name], rows)
        if metrics:
            scope = b"".join((_SCOPE_BYTES, *metrics))
            resource = pb.field(_RESOURCE, _resource(batch, bucket_s).SerializeToString())
            resources.append(
                pb.field(_RESOURCE_METRICS, resource + pb.field(_SCOPE_METRICS, scope))
            )
    return b"".join(resources) if resources else None


def _table(table: Table, rows: list[Any]) -> list[bytes]:
    """One metric a column. A row's attributes and bounds are made once, as bytes."""
    keys = point_keys(table)
    numbers: list[bytes] = []
    histograms: list[bytes] = []
    for row in rows:
        names = [(attribute(k), getattr(row, k)) for k in keys]
        bounds = _bounds(row.bucket_start, row.bucket_s)
        head = bounds + b"".join(text_attribute(k, v) for k, v in names)
        numbers.append(pb.opened(_POINTS, len(head) + _EIGHT) + head)
        pairs = [pb.text(_KEY, k) + pb.field(_VALUE, pb.text(_STRING, v)) for k, v in names]
        head = bounds + b"".join(pb.field(_HISTOGRAM_ATTRIBUTES, pair) for pair in pairs)
        histograms.append(pb.opened(_POINTS, len(head) + _COUNTED) + head)
    columns = [c for c in table.columns if c.kind is not Kind.KEY]
    values = zip(*map(attrgetter(*(c.name for c in columns)), rows), strict=True)
    metrics = []
    for column, all_values in zip(columns, values, strict=True):
        some: Sequence[bytes] = histograms if column.kind is Kind.HIST else numbers
        given: Sequence[Any] = all_values
        if None in all_values:
            present = [(h, v) for h, v in zip(some, all_values, strict=True) if v is not None]
            if not present:
                continue
            some, given = zip(*present, strict=True)
        if column.kind is Kind.HIST:
            points = [head + _counted(counts) for head, counts in zip(some, given, strict=True)]
        else:
            points = _numbers(column, some, given)
        metrics.append(_metric(table, column, points))
    return metrics


def _numbers(column: Column, heads: Sequence[bytes], values: Sequence[Any]) -> list[bytes]:
    if column.sql == "BIGINT":
        tag, form = _AS_INT, "q"
    else:
        tag, form = _AS_DOUBLE, "d"
        if column.kind is Kind.SUM and min(values) < 0:
            values = [0.0 if -ROUNDING < v < 0 else v for v in values]
    eights = pb.eights(form, values)
    return [h + tag + eight for h, eight in zip(heads, eights, strict=True)]


def _counted(counts: Counts) -> bytes:
    """What follows the head of a histogram's point."""
    if len(counts) != _BUCKETS:
        raise ValueError(f"{len(counts)} counts of a histogram: expected {_BUCKETS}")
    numbers = pb.packed("Q", (sum(counts), *counts))
    return b"".join((_COUNT, numbers[:8], _BUCKET_COUNTS, numbers[8:], _EXPLICIT_BOUNDS))


def _matrix(rows: list[InterferenceMinute]) -> list[bytes]:
    """The matrix in the form of `otlp_matrix`; cells that do not fit it, each in a point."""
    writer = Writer()
    points: list[bytes] = []
    length_s = rows[0].bucket_s
    for (start, victim, reason), cells in gather(rows).items():
        bounds = _bounds(start, length_s)
        made = writer.whole(victim, reason, cells)
        several = [made] if made is not None else _single(victim, reason, cells)
        for attributes, value in several:
            head = pb.opened(_POINTS, len(bounds) + len(attributes) + _EIGHT)
            points += (head, bounds, _AS_DOUBLE, pb.packed("d", (value,)), attributes)
    return [_metric(_MATRIX, _CHARGED, points)] if points else []


def _single(victim: str, reason: str, cells: Cells) -> list[tuple[bytes, float]]:
    """(attributes, value) of a point a cell."""
    row = text_attribute(VICTIM, victim) + text_attribute(REASON, reason)
    return [
        (
            row
            + text_attribute(attribute("holder_kind"), kind)
            + text_attribute(attribute("holder"), holder),
            0.0 if -ROUNDING < seconds < 0 else seconds,
        )
        for (kind, holder), seconds in cells.items()
    ]


def _metric(table: Table, column: Column, points: list[bytes]) -> bytes:
    """A field `metrics` of a scope."""
    if column.kind is Kind.HIST:
        data, about = _HISTOGRAM, _DELTA
    elif column.kind is Kind.SUM:
        data, about = _SUM, _DELTA + _MONOTONIC
    else:
        data, about = _GAUGE, b""
    names = (
        pb.text(1, metric_name(table.name, column.name))
        + pb.text(2, column.meaning)
        + pb.text(3, column.unit)
    )
    length = sum(map(len, points)) + len(about)
    opened = pb.opened(data, length)
    begun = pb.opened(_METRICS, len(names) + len(opened) + length)
    return b"".join((begun, names, opened, *points, about))


def _bounds(start: float, length_s: float) -> bytes:
    """Start and end of the bucket, of a number's and of a histogram's point."""
    start_ns, end_ns = micros(start) * 1000, micros(start + length_s) * 1000
    if start_ns < 0:
        raise ValueError(f"a bucket that starts at {start}: before 1970")
    return pb.fixed64(_START, start_ns) + pb.fixed64(_END, end_ns)


def _encode_logs(batch: Batch) -> bytes:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add(resource=_resource(batch, None)).scope_logs.add(scope=SCOPE)
    for row in batch.logs:
        table = TABLE_OF[type(row)]
        record = scope.log_records.add(event_name=attribute(table.name))
        if table.name in INSTANT_OF_LOG:
            record.time_unix_nano = micros(getattr(row, INSTANT_OF_LOG[table.name])) * 1000
        for column in table.columns:
            value = getattr(row, column.name)
            if value is None or column.name in RUN_KEYS:
                continue
            if column.sql == "TIMESTAMP":
                value = micros(value)
            elif column.sql == "DOUBLE":
                value = float(value)
            record.attributes.add(
                key=metric_name(table.name, column.name),
                value=_any(value),
            )
    data: bytes = request.SerializeToString()
    return data
