"""Rows to OTLP protobuf. A pure function of values; opens no socket and no file.

A minute table's column is a metric named `tenantscope.<table>.<column>`; each row that has the
column gives it one data point, stamped with the bounds of the row's bucket. What identifies the
delivery (engine, run, pool, emitter, sealed, seq, bucket length) stands on the resource, what
varies inside it (tenant, adapter) on the point; the matrix has a form of its own (`otlp_matrix`). A
log row is one log record whose event name is `tenantscope.<table>`. None is absent: no point, no
attribute. All are written as bytes, but for what stands once in a request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.conventions import LATENCY_BOUNDS_S, NAMESPACE, Column, Kind, metric_name
from telemetry.instants import micros
from telemetry.otlp import protobuf_bytes as pb
from telemetry.otlp.charges import Cells
from telemetry.otlp.encode_logs import log_record
from telemetry.otlp.encode_points import Hole, Points
from telemetry.otlp.matrix import (
    REASON,
    ROUNDING,
    VICTIM,
    Writer,
    gather,
    text_attribute,
)
from telemetry.records import Batch, Counts, InterferenceMinute
from telemetry.tables import TABLE_OF, TABLES, Table

SCOPE = InstrumentationScope(name=f"{NAMESPACE}.telemetry")
RUN_KEYS = ("engine", "run_id", "pool")
_ON_RESOURCE = frozenset({"bucket_start", "bucket_s", *RUN_KEYS})
T = TypeVar("T")
_BLOCK = 1024
_RUN_KEYS = frozenset(RUN_KEYS)
_RUN = attrgetter(*RUN_KEYS)
_KIND = attrgetter("__class__", "bucket_s")
_MATRIX = TABLES["interference_minute"]
_CHARGED = next(c for c in _MATRIX.columns if c.kind is not Kind.KEY)
_BUCKETS = len(LATENCY_BOUNDS_S) + 1
# Field numbers of the official messages, outermost first.
_RESOURCE_METRICS, _RESOURCE, _SCOPE_METRICS, _METRICS = 1, 1, 2, 2
_GAUGE, _SUM, _HISTOGRAM, _POINTS = 5, 7, 9, 1
_START, _END, _NUMBER_ATTRIBUTES, _HISTOGRAM_ATTRIBUTES = 2, 3, 7, 9
_KEY, _VALUE, _STRING = 1, 2, 1
_AS_DOUBLE, _AS_INT = pb.fixed64_tag(4), pb.fixed64_tag(6)
_EIGHT = 9  # bytes of a number with its tag
# A point's bytes in the order of the fields' numbers, as the official classes write them: bounds,
# then one of these, then the attributes.
_NUMBER, _WHOLE_NUMBER = (Hole(tag + bytes(8), (len(tag),)) for tag in (_AS_DOUBLE, _AS_INT))
_COUNT = pb.fixed64_tag(4)
_COUNTED = _COUNT + bytes(8) + pb.opened(6, 8 * _BUCKETS)
_HISTOGRAM_HOLE = Hole(
    _COUNTED + bytes(8 * _BUCKETS) + pb.field(7, pb.packed("d", LATENCY_BOUNDS_S)),
    (len(_COUNT), *(len(_COUNTED) + 8 * i for i in range(_BUCKETS))),
)
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
    whose = (batch.engine, batch.run_id, batch.pool)
    for some in (*_blocks(batch.minutes), *_blocks(batch.logs)):
        if {*map(_RUN, some)} == {whose}:
            continue
        row = next(r for r in some if _RUN(r) != whose)
        raise ValueError(
            f"a {TABLE_OF[type(row)].name} row of {row.engine}/{row.run_id}/{row.pool} in a "
            f"batch of {batch.engine}/{batch.run_id}/{batch.pool}: one run a batch"
        )
    metrics = _encode_metrics(batch) if batch.minutes else None
    logs = _encode_logs(batch) if batch.logs else None
    return metrics, logs


def _blocks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows, so many at once: a loop that runs in C keeps the interpreter from every other
    thread until it ends, and one of them makes steps."""
    for at in range(0, len(rows), _BLOCK):
        yield rows[at : at + _BLOCK]


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
    for block in _blocks(batch.minutes):
        for (kind, bucket_s), some in groupby(block, _KIND):
            by_length[bucket_s][TABLE_OF[kind].name] += some
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
    keys = [(pb.text(_KEY, attribute(k)), attrgetter(k)) for k in point_keys(table)]
    bounds = _Bounds()
    begins = [bounds.of(row.bucket_start, row.bucket_s) for row in rows]
    pairs = [
        [key + pb.field(_VALUE, pb.text(_STRING, of(row))) for key, of in keys] for row in rows
    ]
    numbers = _points(_NUMBER, _NUMBER_ATTRIBUTES, begins, pairs)
    histograms = _points(_HISTOGRAM_HOLE, _HISTOGRAM_ATTRIBUTES, begins, pairs)
    columns = [c for c in table.columns if c.kind is not Kind.KEY]
    values = zip(*map(attrgetter(*(c.name for c in columns)), rows), strict=True)
    metrics = []
    for column, all_values in zip(columns, values, strict=True):
        is_histogram = column.kind is Kind.HIST
        into = histograms if is_histogram else numbers
        given: Sequence[Any] = all_values
        if None in all_values:
            present = [i for i, v in enumerate(all_values) if v is not None]
            if not present:
                continue
            into, given = into.some(present), [all_values[i] for i in present]
        if is_histogram:
            written = into.of(_HISTOGRAM_HOLE, _counted(given))
        else:
            hole, eights = _numbers(column, given)
            written = into.of(hole, eights)
        metrics.append(_metric(table, column, [written]))
    return metrics


def _points(hole: Hole, number: int, begins: list[bytes], pairs: list[list[bytes]]) -> Points:
    """A point a row, of its bounds, `hole` and its attributes in the field `number`."""
    ends = [b"".join([pb.field(number, pair) for pair in some]) for some in pairs]
    fixed = len(hole.blank)
    before = [
        pb.opened(_POINTS, len(begin) + fixed + len(end)) + begin
        for begin, end in zip(begins, ends, strict=True)
    ]
    return Points(before, ends)


def _numbers(column: Column, values: Sequence[Any]) -> tuple[Hole, bytes]:
    if column.sql == "BIGINT":
        return _WHOLE_NUMBER, pb.packed("q", values)
    if column.kind is Kind.SUM and min(values) < 0:
        values = [0.0 if -ROUNDING < v < 0 else v for v in values]
    return _NUMBER, pb.packed("d", values)


def _counted(given: Sequence[Counts]) -> bytes:
    """What histograms hold, one after another: how many in all, then the counts."""
    for counts in given:
        if len(counts) != _BUCKETS:
            raise ValueError(f"{len(counts)} counts of a histogram: expected {_BUCKETS}")
    return pb.packed("Q", [n for counts in given for n in (sum(counts), *counts)])


def _matrix(rows: list[InterferenceMinute]) -> list[bytes]:
    """The matrix in the form of `otlp_matrix`; cells that do not fit it, each in a point."""
    writer = Writer()
    points: list[bytes] = []
    length_s = rows[0].bucket_s
    all_bounds = _Bounds()
    for (start, victim, reason), cells in gather(rows).items():
        bounds = all_bounds.of(start, length_s)
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


class _Bounds:
    """Starts and ends of buckets, as bytes; remembers those it made."""

    def __init__(self) -> None:
        self._made: dict[tuple[float, float], bytes] = {}

    def of(self, start: float, length_s: float) -> bytes:
        """Of a number's and of a histogram's point."""
        made = self._made.get((start, length_s))
        if made is None:
            start_ns, end_ns = micros(start) * 1000, micros(start + length_s) * 1000
            if start_ns < 0:
                raise ValueError(f"a bucket that starts at {start}: before 1970")
            made = pb.fixed64(_START, start_ns) + pb.fixed64(_END, end_ns)
            self._made[start, length_s] = made
        return made


def _encode_logs(batch: Batch) -> bytes:
    # ExportLogsServiceRequest 1 -> ResourceLogs 1, 2 -> ScopeLogs 1, 2.
    resource = pb.field(1, _resource(batch, None).SerializeToString())
    records = [log_record(row, _RUN_KEYS) for row in batch.logs]
    return pb.field(1, resource + pb.field(2, b"".join((_SCOPE_BYTES, *records))))
