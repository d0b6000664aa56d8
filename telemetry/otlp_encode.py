"""Rows to OTLP protobuf. A pure function of values; opens no socket and no file.

A minute table's column is a metric named `tenantscope.<table>.<column>`; each row that has the
column gives it one data point, stamped with the bounds of the row's bucket. What identifies the
delivery (engine, run, pool, emitter, sealed, seq, bucket length) stands on the resource, what
varies inside it (tenant, holder, adapter) on the point. A log row is one log record whose event
name is `tenantscope.<table>`. None is absent: no point, no attribute.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    HistogramDataPoint,
    NumberDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.conventions import LATENCY_BOUNDS_S, NAMESPACE, Kind, metric_name
from telemetry.instants import INSTANT_OF_LOG, micros
from telemetry.records import Batch
from telemetry.tables import TABLE_OF, TABLES, Table

# A sum of seconds is made by adding and taking away: what rounding leaves below zero is zero.
_ROUNDING = 1e-9
SCOPE = InstrumentationScope(name=f"{NAMESPACE}.telemetry")
RUN_KEYS = ("engine", "run_id", "pool")
_ON_RESOURCE = frozenset({"bucket_start", "bucket_s", *RUN_KEYS})


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
    request = ExportMetricsServiceRequest()
    by_length: dict[float, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in batch.minutes:
        by_length[row.bucket_s][TABLE_OF[type(row)].name].append(row)
    for bucket_s, by_table in by_length.items():
        resource = request.resource_metrics.add(resource=_resource(batch, bucket_s))
        scope = resource.scope_metrics.add(scope=SCOPE)
        for name, rows in by_table.items():
            _encode_table(scope.metrics, TABLES[name], rows)
        if not scope.metrics:
            del request.resource_metrics[-1]
    return request.SerializeToString() if request.resource_metrics else None


def _encode_table(metrics: Any, table: Table, rows: list[Any]) -> None:
    """One metric a column; a row's attributes and bounds are built once and copied in C."""
    keys = point_keys(table)
    numbers: list[Any] = []
    histograms: list[Any] = []
    for row in rows:
        attributes = [
            KeyValue(key=attribute(k), value=AnyValue(string_value=getattr(row, k))) for k in keys
        ]
        start_ns = micros(row.bucket_start) * 1000
        end_ns = micros(row.bucket_start + row.bucket_s) * 1000
        for points, kind in ((numbers, NumberDataPoint), (histograms, HistogramDataPoint)):
            points.append(
                kind(attributes=attributes, start_time_unix_nano=start_ns, time_unix_nano=end_ns)
            )
    for column in table.columns:
        if column.kind is Kind.KEY:
            continue
        present = [
            (i, v) for i, row in enumerate(rows) if (v := getattr(row, column.name)) is not None
        ]
        if not present:
            continue
        metric = metrics.add(
            name=metric_name(table.name, column.name),
            unit=column.unit,
            description=column.meaning,
        )
        if column.kind is Kind.HIST:
            metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
            for i, counts in present:
                point = metric.histogram.data_points.add()
                point.CopyFrom(histograms[i])
                point.count = sum(counts)
                point.bucket_counts.extend(counts)
                point.explicit_bounds.extend(LATENCY_BOUNDS_S)
            continue
        if column.kind is Kind.SUM:
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
            metric.sum.is_monotonic = True
            points = metric.sum.data_points
        else:
            points = metric.gauge.data_points
        whole = column.sql == "BIGINT"
        for i, value in present:
            point = points.add()
            point.CopyFrom(numbers[i])
            if whole:
                point.as_int = value
            elif column.kind is Kind.SUM and -_ROUNDING < value < 0:
                point.as_double = 0.0
            else:
                point.as_double = value


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
