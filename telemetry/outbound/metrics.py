"""What was counted, as OTLP metrics for third parties: running totals, or sealed buckets. Pure.

Names, units and meanings are the vocabulary's (`tenantscope.<table>.<column>`). Both shapes have
series for the same few: named tenants and `other`, engines, holders summed over victims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    HistogramDataPoint,
    NumberDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.conventions import (
    LATENCY_BOUNDS_S,
    NAMESPACE,
    PROMETHEUS_PREFIX,
    Column,
    Kind,
    metric_name,
    prometheus_type,
)
from telemetry.instants import micros
from telemetry.outbound.queue import Payload
from telemetry.prometheus.counting import Counting, Exemplar, Levels, Look
from telemetry.prometheus.exposed import LABELS
from telemetry.prometheus.running import Labels, Matrix
from telemetry.tables import TABLES

Pool = tuple[str, str]  # engine, pool
Trace = tuple[str, str | None]  # trace id, span id where the trace was kept; hex
# Whose trace a request is, by (engine, request id).
Traces = Callable[[str, str], Trace | None]
Exemplars = Mapping[tuple[Labels, str], Sequence[Exemplar | None]]
SCOPE = InstrumentationScope(name=f"{NAMESPACE}.export")


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def resource(engine: str, pool: str, run_id: str | None = None) -> Resource:
    """Which pool of which engine something is about, and of which run where runs do not add up."""
    attributes = [
        text("service.name", NAMESPACE),
        text("service.instance.id", engine),
        text(f"{NAMESPACE}.pool", pool),
    ]
    if run_id is not None:
        attributes.append(text(f"{NAMESPACE}.run_id", run_id))
    return Resource(attributes=attributes)


class Writer:
    """One pool's metrics, as they are put together. `put` in any order; `payload` once."""

    def __init__(
        self, pool: Pool, temporality: int, traces: Traces, run_id: str | None = None
    ) -> None:
        self._request = ExportMetricsServiceRequest()
        self._pool = pool
        self._temporality = temporality
        self._traces = traces
        resource_metrics = self._request.resource_metrics.add(resource=resource(*pool, run_id))
        self._scope = resource_metrics.scope_metrics.add(scope=SCOPE)
        self._metrics: dict[tuple[str, str], Any] = {}
        self._points = 0

    def put(
        self,
        table: str,
        column: Column,
        labels: Sequence[str],
        start_ns: int,
        end_ns: int,
        values: Sequence[float],
        exemplars: Sequence[Exemplar | None] = (),
    ) -> None:
        """One point. `labels` are those after engine and pool; a histogram has many `values`."""
        metric = self._metric(table, column)
        attributes = [
            text(f"{NAMESPACE}.{name}", label)
            for name, label in zip(LABELS[table][2:], labels, strict=True)
        ]
        self._points += 1
        if column.kind is Kind.HIST:
            counts = [round(v) for v in values]
            point = HistogramDataPoint(
                attributes=attributes,
                start_time_unix_nano=start_ns,
                time_unix_nano=end_ns,
                count=sum(counts),
                bucket_counts=counts,
                explicit_bounds=LATENCY_BOUNDS_S,
            )
            for exemplar, count in zip(exemplars, counts, strict=False):
                if exemplar is not None and count:
                    self._exemplify(point, exemplar)
            metric.histogram.data_points.append(point)
            return
        number = NumberDataPoint(
            attributes=attributes, start_time_unix_nano=start_ns, time_unix_nano=end_ns
        )
        if column.sql == "BIGINT":
            number.as_int = round(values[0])
        else:
            number.as_double = values[0]
        (metric.sum if column.kind is Kind.SUM else metric.gauge).data_points.append(number)

    def payload(self) -> Payload | None:
        """The request; None when nothing was put."""
        if not self._points:
            return None
        return Payload(self._request.SerializeToString(), self._points)

    def _metric(self, table: str, column: Column) -> Any:
        metric = self._metrics.get((table, column.name))
        if metric is not None:
            return metric
        metric = self._scope.metrics.add(
            name=metric_name(table, column.name), unit=column.unit, description=column.meaning
        )
        if column.kind is Kind.HIST:
            metric.histogram.aggregation_temporality = self._temporality
        elif column.kind is Kind.SUM:
            metric.sum.aggregation_temporality = self._temporality
            metric.sum.is_monotonic = True
        self._metrics[table, column.name] = metric
        return metric

    def _exemplify(self, point: HistogramDataPoint, exemplar: Exemplar) -> None:
        """The trace where there is one to look at, and always the request."""
        shown = point.exemplars.add(
            time_unix_nano=nanos(exemplar.at_unix_s),
            as_double=exemplar.value_s,
            filtered_attributes=[text(f"{NAMESPACE}.request_id", exemplar.request_id)],
        )
        trace = self._traces(self._pool[0], exemplar.request_id)
        trace_id, span_id = trace or (exemplar.trace_id, None)
        if trace_id is not None:
            shown.trace_id = bytes.fromhex(trace_id)
        if span_id is not None:
            shown.span_id = bytes.fromhex(span_id)


def cumulative(counting: Counting, now: float, traces: Traces) -> list[Payload]:
    """Everything counted, as of `now`, unix seconds: one request a pool.

    Sums and histograms count from the start of `counting`, which is their start time, and have
    never been larger before; gauges are as last heard.
    """
    look = counting.look(now)
    start_ns, end_ns = nanos(look.started_unix_s), nanos(max(now, look.started_unix_s))
    writers: dict[Pool, Writer] = {}
    parts: tuple[tuple[str, tuple[list[Labels], Matrix], Mapping[str, slice], Levels], ...] = (
        ("tenant_minute", look.tenants, counting.tenants.at, look.tenant_levels),
        ("engine_minute", look.engines, counting.engines.at, look.engine_levels),
        ("interference_minute", look.charges, {"charged_s": slice(0, 1)}, []),
    )
    for table, (labels, totals), at, levels in parts:
        columns = columns_of(table)
        for one, numbers in zip(labels, totals.tolist(), strict=True):
            writer = _writer(writers, one, traces)
            for column in columns:
                if column.kind not in (Kind.SUM, Kind.HIST):
                    continue
                values = numbers[at[column.name]]
                if column.kind is Kind.HIST and not any(values):
                    continue
                seen = _exemplars(look, one, column)
                writer.put(table, column, one[2:], start_ns, end_ns, values, seen)
        for one, have in levels:
            writer = _writer(writers, one, traces)
            for column in columns:
                if column.name in have:
                    writer.put(table, column, one[2:], 0, end_ns, (have[column.name],))
    return [p for w in writers.values() if (p := w.payload()) is not None]


@cache
def columns_of(table: str) -> tuple[Column, ...]:
    """Those that are numbers; of tables that have series."""
    if table not in PROMETHEUS_PREFIX:
        return ()
    return tuple(c for c in TABLES[table].columns if prometheus_type(c.kind) is not None)


def nanos(at_unix_s: float) -> int:
    return max(0, micros(at_unix_s) * 1000)


def within(exemplars: Iterable[Exemplar | None], start: float, end: float) -> list[Exemplar | None]:
    """Those of one bucket."""
    return [e if e is not None and start <= e.at_unix_s < end else None for e in exemplars]


def _exemplars(look: Look, labels: Labels, column: Column) -> Sequence[Exemplar | None]:
    return look.exemplars.get((labels, column.name), ()) if column.kind is Kind.HIST else ()


def _writer(writers: dict[Pool, Writer], labels: Labels, traces: Traces) -> Writer:
    pool = (labels[0], labels[1])
    if pool not in writers:
        writers[pool] = Writer(pool, AGGREGATION_TEMPORALITY_CUMULATIVE, traces)
    return writers[pool]
