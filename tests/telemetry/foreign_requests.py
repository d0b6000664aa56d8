"""OTLP requests as other people's exporters send them, put together by hand."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
)

from telemetry.conventions import LATENCY_BOUNDS_S, metric_name

SENDER = {"service.instance.id": "gen-1", "service.name": "chat"}
OUTPUT = metric_name("tenant_minute", "output_tokens")
TTFT = metric_name("tenant_minute", "ttft")
SERVICE = metric_name("tenant_minute", "service")
KV = metric_name("tenant_minute", "kv_bytes_max")


def ns(unix_s: float) -> int:
    return round(unix_s * 1e6) * 1000


def value_of(value: Any) -> AnyValue:
    if isinstance(value, AnyValue):
        return value
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value)


def pairs(values: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=k, value=value_of(v)) for k, v in values.items()]


def total(
    name: str,
    *points: tuple[str, float, float, Any],
    delta: bool = False,
    unit: str = "",
    monotonic: bool = True,
) -> Metric:
    """A sum or, where the values are tuples, a histogram over the vocabulary's bounds. Points are
    (tenant, start, time, value), instants in unix seconds."""
    metric = Metric(name=name, unit=unit)
    temporality = AGGREGATION_TEMPORALITY_DELTA if delta else AGGREGATION_TEMPORALITY_CUMULATIVE
    for tenant, start, at, value in points:
        if isinstance(value, tuple):
            metric.histogram.aggregation_temporality = temporality
            point: Any = metric.histogram.data_points.add(
                count=sum(value), bucket_counts=value, explicit_bounds=LATENCY_BOUNDS_S
            )
        else:
            metric.sum.aggregation_temporality = temporality
            metric.sum.is_monotonic = monotonic
            point = metric.sum.data_points.add()
            setattr(point, "as_int" if isinstance(value, int) else "as_double", value)
        point.start_time_unix_nano, point.time_unix_nano = ns(start), ns(at)
        point.attributes.extend(pairs({"tenantscope.tenant": tenant}))
    return metric


def gauge(name: str, *points: tuple[dict[str, Any], float, Any], unit: str = "") -> Metric:
    """Points are (attributes, time, value)."""
    metric = Metric(name=name, unit=unit)
    for attributes, at, value in points:
        point = metric.gauge.data_points.add(time_unix_nano=ns(at))
        setattr(point, "as_int" if isinstance(value, int) else "as_double", value)
        point.attributes.extend(pairs(attributes))
    return metric


def metrics_request(*metrics: Metric, resource: dict[str, Any] | None = None) -> bytes:
    request = ExportMetricsServiceRequest()
    one = request.resource_metrics.add()
    one.resource.attributes.extend(pairs(SENDER if resource is None else resource))
    one.scope_metrics.add().metrics.extend(metrics)
    data: bytes = request.SerializeToString()
    return data


def logs_request(
    *records: tuple[str, float, str], resource: dict[str, Any] | None = None, body: str = ""
) -> bytes:
    """Records are (event name, time, severity)."""
    request = ExportLogsServiceRequest()
    one = request.resource_logs.add()
    one.resource.attributes.extend(pairs(SENDER if resource is None else resource))
    scope = one.scope_logs.add()
    for name, at, severity in records:
        record = scope.log_records.add(
            event_name=name, time_unix_nano=ns(at), severity_text=severity
        )
        record.body.string_value = body
        record.attributes.extend(pairs({"gen_ai.input.messages": body}))
    data: bytes = request.SerializeToString()
    return data
