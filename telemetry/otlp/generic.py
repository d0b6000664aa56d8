"""Our metrics from a sender that is none of our processes: any OTLP exporter. Pure; converts
nothing, only reads what is there (`cumulative_in` makes deltas of it).

A resource that says neither who its emitter is nor whether its bucket is sealed is such a sender's.
It needs `service.instance.id` (or `tenantscope.engine`), and may give `tenantscope.pool` (main),
`tenantscope.run_id` and `tenantscope.bucket_s` (60). See docs/otlp-in.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
)

from telemetry.conventions import Column, Kind
from telemetry.instants import FIRST_US, LAST_US
from telemetry.otlp.cumulative import Arrival, Flow, Sender
from telemetry.otlp.encode import attribute, point_keys
from telemetry.otlp.foreign import attributes_json
from telemetry.otlp.read import (
    LARGEST_WHOLE,
    Refused,
    Tally,
    body,
    histogram,
    name,
    number,
    shown,
)
from telemetry.tables import Table

RUN_PREFIX = "otlp:"  # so that such a run never meets one of ours
DEFAULT_POOL = "main"
DEFAULT_BUCKET_S = 60.0
LONGEST_BUCKET_S = 86_400.0
_MARKS = tuple(attribute(n) for n in ("emitter", "sealed", "seq"))
_INSTANCE = "service.instance.id"


def is_generic(resource: dict[str, Any]) -> bool:
    """Whether the resource says nothing that only our own processes say."""
    return not any(mark in resource for mark in _MARKS)


def sender_of(resource: dict[str, Any]) -> Sender:
    """Raises Refused when the resource does not say enough."""
    instance = resource.get(_INSTANCE)
    engine = resource.get(attribute("engine"), instance)
    if not isinstance(engine, str) or not engine:
        raise Refused(f"resource attribute {_INSTANCE} is {shown(engine)}: expected who sends")
    run = resource.get(attribute("run_id"), instance or engine)
    pool = resource.get(attribute("pool"), DEFAULT_POOL)
    for what, text in (("run_id", run), ("pool", pool)):
        if not isinstance(text, str):
            raise Refused(f"resource attribute {attribute(what)} is {shown(text)}: expected text")
    bucket_s = resource.get(attribute("bucket_s"), DEFAULT_BUCKET_S)
    if (
        isinstance(bucket_s, bool)
        or not isinstance(bucket_s, int | float)
        or not 1e-3 <= bucket_s <= LONGEST_BUCKET_S
    ):
        raise Refused(f"{attribute('bucket_s')} = {shown(bucket_s)}: expected seconds, up to a day")
    return Sender(
        name(engine, "an engine"),
        RUN_PREFIX + name(run, "a run"),
        name(pool, "a pool"),
        float(bucket_s),
    )


def arrivals(
    metric: Metric, table: Table, column: Column, sender: Sender, tally: Tally
) -> Iterator[Arrival]:
    """The points of one of our metrics; those that are not right are tallied."""
    data = body(metric)
    try:
        flow = _flow(metric, column)
    except Refused as why:
        tally.add(str(why), len(data.data_points))
        return
    for point in data.data_points:
        try:
            yield _arrival(point, table, column, sender, flow)
        except Refused as why:
            tally.add(f"{metric.name}: {why}")


def _flow(metric: Metric, column: Column) -> Flow:
    kind = metric.WhichOneof("data")
    wanted = {Kind.SUM: "sum", Kind.HIST: "histogram"}.get(column.kind, "gauge")
    if kind != wanted:
        raise Refused(f"metric {metric.name} came as {kind}: expected {wanted}")
    if metric.unit and metric.unit != column.unit:
        raise Refused(f"metric {metric.name} is in {metric.unit!r}: expected {column.unit!r}")
    if kind == "gauge":
        return Flow.GAUGE
    if kind == "sum" and not metric.sum.is_monotonic:
        raise Refused(f"metric {metric.name} may fall: expected a monotonic sum")
    temporality = body(metric).aggregation_temporality
    if temporality == AGGREGATION_TEMPORALITY_CUMULATIVE:
        return Flow.CUMULATIVE
    if temporality == AGGREGATION_TEMPORALITY_DELTA:
        return Flow.DELTA
    raise Refused(f"metric {metric.name} is neither delta nor cumulative")


def _arrival(point: Any, table: Table, column: Column, sender: Sender, flow: Flow) -> Arrival:
    if column.kind is Kind.HIST:
        value: Any = histogram(point)
        largest = point.count
    else:
        value = number(point, column, integral=True)
        largest = abs(value) if column.sql == "BIGINT" else 0
    if largest > LARGEST_WHOLE:
        raise Refused(f"{largest}: expected at most 2**53")
    # The bucket of the first second of 1970 would begin before it.
    if not FIRST_US < point.time_unix_nano // 1000 <= LAST_US:
        raise Refused(f"time_unix_nano = {point.time_unix_nano}: not an instant")
    attributes = attributes_json(point.attributes)
    found = {
        a.key: a.value.string_value
        for a in point.attributes
        if a.value.WhichOneof("value") == "string_value"
    }
    keys = []
    for key in point_keys(table):
        if attribute(key) not in found:
            raise Refused(f"a point without {attribute(key)}")
        keys.append(name(found[attribute(key)], attribute(key)))
    return Arrival(
        sender,
        table.name,
        column,
        tuple(keys),
        attributes,
        flow,
        point.start_time_unix_nano,
        point.time_unix_nano,
        value,
    )
