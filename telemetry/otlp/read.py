"""What every reading of OTLP needs: why a point is refused, plain values, bounds. Owns no rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.conventions import LATENCY_BOUNDS_S, Column, Kind

REASONS_KEPT = 8
LONGEST_REASON = 300
LONGEST_NAME = 1_024  # characters of a tenant, an engine, an adapter
# A float carries every whole number up to here; an honest counter never gets so far.
LARGEST_WHOLE = 1 << 53
_INT64 = 1 << 63


class Refused(ValueError):
    """Why one point or record is not taken; the rest of its request is."""


@dataclass(slots=True)
class Tally:
    """Points refused, and the first few distinct reasons."""

    refused: int = 0
    reasons: dict[str, None] = field(default_factory=dict)

    def add(self, reason: str, count: int = 1) -> None:
        if count <= 0:
            return
        self.refused += count
        if len(self.reasons) < REASONS_KEPT:
            self.reasons[reason[:LONGEST_REASON]] = None

    def merge(self, other: Tally) -> None:
        self.refused += other.refused
        for reason in other.reasons:
            if len(self.reasons) < REASONS_KEPT:
                self.reasons[reason] = None


def plain(value: AnyValue) -> Any:
    """The value itself; None for none."""
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def resource_values(resource: Resource) -> dict[str, Any]:
    return {a.key: plain(a.value) for a in resource.attributes}


def body(metric: Metric) -> Any:
    """The metric's gauge, sum, histogram, ...; None for a metric without one."""
    kind = metric.WhichOneof("data")
    return getattr(metric, kind) if kind else None


def points_in(metric: Metric) -> int:
    data = body(metric)
    return len(data.data_points) if data is not None else 0


def shown(value: Any) -> str:
    """A value in a sentence: its beginning, when it is long."""
    text = repr(value) if not isinstance(value, str) else repr(value[:80])
    return text if len(text) <= 100 else f"{text[:100]}..."


def name(value: str, what: str) -> str:
    """A name as it is. Raises Refused when it is longer than a name may be."""
    if len(value) > LONGEST_NAME:
        raise Refused(f"{what} of {len(value)} characters: expected at most {LONGEST_NAME}")
    return value


def bounded(value: str) -> str:
    """The same of a name in a point."""
    return name(value, "a name")


def number(point: NumberDataPoint, column: Column, *, integral: bool = False) -> int | float:
    """The value of a point of `column`. With `integral` a double without a fraction will do for a
    whole number, up to 2**53. Raises Refused."""
    kind = point.WhichOneof("value")
    if kind is None:
        raise Refused("a point without a value")
    value: int | float = getattr(point, kind)
    if column.sql == "BIGINT":
        if kind != "as_int":
            if not (integral and value.is_integer() and abs(value) <= LARGEST_WHOLE):  # type: ignore[union-attr]
                raise Refused(f"{value!r}: expected an integer")
            value = int(value)
    else:
        value = float(value)
        if not isfinite(value):
            raise Refused(f"{value!r}: expected a finite number")
    if column.kind is Kind.SUM:
        if value < 0:
            raise Refused(f"{value!r}: a delta sum cannot be negative")
        value = abs(value)  # -0.0 is zero
    return value


def histogram(point: HistogramDataPoint) -> tuple[int, ...]:
    """Counts over the vocabulary's bounds. Raises Refused."""
    if tuple(point.explicit_bounds) != LATENCY_BOUNDS_S:
        raise Refused(f"{len(point.explicit_bounds)} bounds other than the vocabulary's")
    counts = tuple(point.bucket_counts)
    if len(counts) != len(LATENCY_BOUNDS_S) + 1:
        raise Refused(f"{len(counts)} buckets: expected {len(LATENCY_BOUNDS_S) + 1}")
    if sum(counts) != point.count or point.count >= _INT64:
        raise Refused(f"buckets add up to {sum(counts)}, the count says {point.count}")
    return counts
