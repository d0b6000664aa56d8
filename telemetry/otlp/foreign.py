"""What is well-formed OTLP and not of the vocabulary: kept apart, bounded. Owns the bound and how
such a point becomes a row; used by nothing that explains or alerts.

A log record leaves its event name and severity, never its body or attributes: other people's log
records carry prompts.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_UNSPECIFIED,
    Metric,
)

from telemetry.instants import FIRST_US, LAST_US, day_of, unix_seconds
from telemetry.otlp.read import Refused, Tally, body, name, shown
from telemetry.records import ForeignMetric

SERIES_A_DAY = 10_000
ROWS_A_MINUTE = 20_000
LONGEST_METRIC = 255  # OpenTelemetry's own limit on an instrument's name
LONGEST_ATTRIBUTES = 4_096  # characters of their JSON
_LONGEST_UNIT = 63
_DEEPEST = 8
_DAYS_KNOWN = 8
_INT64 = 1 << 63
_KINDS = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponential_histogram": "histogram",
    "summary": "summary",
}

Series = tuple[str, str, str]  # engine, metric, attributes
SeriesOfDay = Callable[[str], Iterable[Series]]


def sender(resource: dict[str, Any]) -> str:
    """Who a foreign point is from. Raises Refused for a name that is too long."""
    for key in ("service.instance.id", "service.name"):
        found = resource.get(key)
        if isinstance(found, str) and found:
            return name(found, f"resource attribute {key}")
    return ""


def points(metric: Metric, resource: dict[str, Any], tally: Tally) -> Iterator[ForeignMetric]:
    """A row a point that is well-formed; the others are tallied."""
    data = body(metric)
    if data is None:
        return
    try:
        engine, kind = sender(resource), _kind(metric, data)
    except Refused as why:
        tally.add(str(why), len(data.data_points))
        return
    for point in data.data_points:
        try:
            yield ForeignMetric(
                engine=engine,
                run_id="",
                pool="",
                at=_instant(point.time_unix_nano),
                metric=metric.name,
                kind=kind,
                unit=metric.unit,
                attributes=attributes_json(point.attributes),
                **_numbers(kind, point),
            )
        except Refused as why:
            tally.add(f"{shown(metric.name)}: {why}")


def records(
    found: Sequence[LogRecord], resource: dict[str, Any], tally: Tally
) -> Iterator[ForeignMetric]:
    """A row an event name, severity and instant, with how many records there were."""
    try:
        engine = sender(resource)
    except Refused as why:
        tally.add(str(why), len(found))
        return
    counted: Counter[tuple[str, str, float]] = Counter()
    for record in found:
        try:
            if len(record.event_name) > LONGEST_METRIC:
                raise Refused(f"an event name of {len(record.event_name)} characters")
            at = _instant(record.time_unix_nano or record.observed_time_unix_nano)
            severity = record.severity_text
            if len(severity) > _LONGEST_UNIT:
                raise Refused(f"a severity of {len(severity)} characters")
        except Refused as why:
            tally.add(f"log event {shown(record.event_name)}: {why}")
            continue
        severity = severity or (str(record.severity_number) if record.severity_number else "")
        counted[record.event_name, severity, at] += 1
    for (event, severity, at), count in counted.items():
        yield ForeignMetric(
            engine=engine,
            run_id="",
            pool="",
            at=at,
            metric=event,
            kind="log",
            attributes=_dumped({"severity": severity} if severity else {}),
            count=count,
        )


def weight(row: ForeignMetric) -> int:
    """How many points or records of a request a row stands for."""
    return (row.count or 0) if row.kind == "log" else 1


def attributes_json(attributes: Any) -> str:
    """JSON with sorted keys. Raises Refused for what is too long, too deep, or there twice."""
    values: dict[str, Any] = {}
    for pair in attributes:
        if pair.key in values:
            raise Refused(f"attribute {shown(pair.key)} stands there twice")
        values[name(pair.key, "an attribute's name")] = _value(pair.value, 0)
    text = _dumped(values)
    if len(text) > LONGEST_ATTRIBUTES:
        raise Refused(f"attributes of {len(text)} characters: at most {LONGEST_ATTRIBUTES}")
    return text


class Gate:
    """Lets so many distinct series a day and rows a minute in. The clock is passed in; what a day
    holds already is asked for once (`series_of_day`), so that a restart does not open it wider."""

    def __init__(
        self,
        series_of_day: SeriesOfDay,
        series_a_day: int = SERIES_A_DAY,
        rows_a_minute: int = ROWS_A_MINUTE,
    ) -> None:
        self._series_of_day = series_of_day
        self._series_a_day = series_a_day
        self._rows_a_minute = rows_a_minute
        self._days: OrderedDict[str, set[Series]] = OrderedDict()
        self._minute, self._rows = -1, 0

    def admit(self, row: ForeignMetric, now_s: float) -> None:
        """Raises Refused when there is no room for the row."""
        minute = int(now_s // 60)
        if minute != self._minute:
            self._minute, self._rows = minute, 0
        if self._rows >= self._rows_a_minute:
            raise Refused(
                f"{shown(row.metric)} is not in the vocabulary, and {self._rows_a_minute} such "
                "rows were kept this minute: no more are"
            )
        day = day_of(row.at)
        if day not in self._days:
            self._days[day] = set(self._series_of_day(day))
            if len(self._days) > _DAYS_KNOWN:
                self._days.popitem(last=False)
        self._days.move_to_end(day)
        known = self._days[day]
        series = (row.engine, row.metric, row.attributes)
        if series not in known:
            if len(known) >= self._series_a_day:
                raise Refused(
                    f"{shown(row.metric)} is not in the vocabulary, and {day} has "
                    f"{self._series_a_day} such series: no more are kept"
                )
            known.add(series)
        self._rows += 1


def _kind(metric: Metric, data: Any) -> str:
    if not metric.name or len(metric.name) > LONGEST_METRIC:
        raise Refused(
            f"a metric's name of {len(metric.name)} characters: expected 1 to {LONGEST_METRIC}"
        )
    if len(metric.unit) > _LONGEST_UNIT:
        raise Refused(f"{metric.name}: a unit of {len(metric.unit)} characters")
    kind = _KINDS[metric.WhichOneof("data") or "gauge"]
    temporality = getattr(data, "aggregation_temporality", None)
    if temporality == AGGREGATION_TEMPORALITY_UNSPECIFIED:
        raise Refused(f"{metric.name}: neither delta nor cumulative")
    return f"cumulative {kind}" if temporality == AGGREGATION_TEMPORALITY_CUMULATIVE else kind


def _instant(unix_ns: int) -> float:
    us = unix_ns // 1000
    if not FIRST_US < us <= LAST_US:
        raise Refused(f"time_unix_nano = {unix_ns}: not an instant")
    return unix_seconds(us)


def _numbers(kind: str, point: Any) -> dict[str, Any]:
    if kind.endswith(("gauge", "sum")):
        which = point.WhichOneof("value")
        if which is None:
            raise Refused("a point without a value")
        return {"value": _finite(getattr(point, which))}
    if point.count >= _INT64:
        raise Refused(f"count = {point.count}: expected less than 2**63")
    total = _finite(point.sum) if kind == "summary" or point.HasField("sum") else None
    return {"count": point.count, "sum": total}


def _finite(value: int | float) -> float:
    if not isfinite(value):
        raise Refused(f"{value!r}: expected a finite number")
    return float(value)


def _dumped(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _value(value: AnyValue, depth: int) -> Any:
    if depth > _DEEPEST:
        raise Refused(f"an attribute nested deeper than {_DEEPEST}")
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(v, depth + 1) for v in value.array_value.values]
    if kind == "kvlist_value":
        # Of a key that stands there twice the last one counts, as protobuf's maps have it.
        return {p.key: _value(p.value, depth + 1) for p in value.kvlist_value.values}
    if kind == "bytes_value":
        if len(value.bytes_value) > LONGEST_ATTRIBUTES // 2:
            raise Refused(f"an attribute of {len(value.bytes_value)} bytes")
        return value.bytes_value.hex()
    found = getattr(value, kind) if kind else None
    if isinstance(found, float) and not isfinite(found):
        return str(found)
    if isinstance(found, str) and len(found) > LONGEST_ATTRIBUTES:
        raise Refused(f"an attribute of {len(found)} characters: at most {LONGEST_ATTRIBUTES}")
    return found
