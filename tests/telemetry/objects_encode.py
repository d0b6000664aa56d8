"""Minute rows to OTLP through the official message classes, a point a cell: slow and plain.

What the byte-writing encoder is held against. Also the form in which older engines send the matrix.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.conventions import LATENCY_BOUNDS_S, NAMESPACE, Column, Kind, metric_name
from telemetry.instants import micros
from telemetry.otlp.encode import SCOPE, attribute, point_keys
from telemetry.records import Batch
from telemetry.tables import TABLE_OF, TABLES, Table


def _pair(key: str, value: Any) -> KeyValue:
    kinds = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
    return KeyValue(key=key, value=AnyValue(**{kinds[type(value)]: value}))


def encode(batch: Batch) -> bytes | None:
    """An ExportMetricsServiceRequest; None without a value."""
    request = ExportMetricsServiceRequest()
    by_length: dict[float, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in batch.minutes:
        by_length[row.bucket_s][TABLE_OF[type(row)].name].append(row)
    for bucket_s, by_table in by_length.items():
        said = {
            "service.name": NAMESPACE,
            "service.instance.id": batch.engine,
            **{attribute(k): getattr(batch, k) for k in ("engine", "run_id", "pool")},
            attribute("emitter"): batch.emitter.value,
            attribute("sealed"): batch.sealed,
            attribute("seq"): batch.seq,
            attribute("bucket_s"): float(bucket_s),
        }
        resource = Resource(attributes=[_pair(k, v) for k, v in said.items()])
        into = request.resource_metrics.add(resource=resource)
        scope = into.scope_metrics.add(scope=SCOPE)
        for name, rows in by_table.items():
            for column in TABLES[name].columns:
                if column.kind is not Kind.KEY:
                    _column(scope.metrics, TABLES[name], column, rows)
        if not scope.metrics:
            del request.resource_metrics[-1]
    return request.SerializeToString() if request.resource_metrics else None


def _column(metrics: Any, table: Table, column: Column, rows: list[Any]) -> None:
    present = [row for row in rows if getattr(row, column.name) is not None]
    if not present:
        return
    metric = metrics.add(
        name=metric_name(table.name, column.name), unit=column.unit, description=column.meaning
    )
    form = {Kind.SUM: "sum", Kind.HIST: "histogram"}.get(column.kind, "gauge")
    data = getattr(metric, form)
    if form != "gauge":
        data.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    if form == "sum":
        data.is_monotonic = True
    for row in present:
        value = getattr(row, column.name)
        point = data.data_points.add(
            attributes=[_pair(attribute(k), getattr(row, k)) for k in point_keys(table)],
            start_time_unix_nano=micros(row.bucket_start) * 1000,
            time_unix_nano=micros(row.bucket_start + row.bucket_s) * 1000,
        )
        if form == "histogram":
            point.count = sum(value)
            point.bucket_counts.extend(value)
            point.explicit_bounds.extend(LATENCY_BOUNDS_S)
        elif column.sql == "BIGINT":
            point.as_int = value
        else:
            point.as_double = 0.0 if form == "sum" and -1e-9 < value < 0 else value
