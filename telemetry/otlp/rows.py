"""Points of one of our own processes put into the rows they are columns of. Pure; trusts nothing.

Each point is held to the vocabulary: the type, the sign, the bounds of its bucket, its keys. What
is wrong is tallied with the reason and sinks nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, Metric

from telemetry.conventions import Column, Kind
from telemetry.instants import FIRST_US, LAST_US, micros, unix_seconds
from telemetry.otlp.encode import attribute, point_keys
from telemetry.otlp.matrix import Cells, Group, Reader, rows_of
from telemetry.otlp.read import LONGEST_NAME, Refused, Tally, body, histogram, number
from telemetry.tables import TABLES, Table

# Rows of one table that a request may hold: many small points must not become gigabytes.
ROWS_A_REQUEST = {
    "tenant_minute": 100_000,
    "adapter_minute": 100_000,
    "engine_minute": 100_000,
    "interference_minute": 500_000,
}
_MATRIX = "interference_minute"
Identity = tuple[Any, ...]


class Rows:
    """The rows of one resource, as its metrics are taken, in any order."""

    def __init__(self, engine: str, run_id: str, pool: str, bucket_s: float, tally: Tally) -> None:
        self._keys = {"bucket_s": bucket_s, "engine": engine, "run_id": run_id, "pool": pool}
        self._bucket_s = bucket_s
        self._tally = tally
        self._cells: dict[str, dict[Identity, dict[str, Any]]] = {}
        self._starts: dict[tuple[int, int], int] = {}
        self._reader = Reader()
        self._groups: dict[Group, Cells] = {}
        self._held = 0
        self.gathered: set[Group] = set()

    def take(self, metric: Metric, table: Table, column: Column) -> int:
        """Returns how many points of the metric were right."""
        data = body(metric)
        if data is None:
            return 0
        try:
            _check_shape(metric, column)
        except Refused as why:
            self._tally.add(str(why), len(data.data_points))
            return 0
        if table.name == _MATRIX:
            return self._take_matrix(metric, data.data_points, column)
        return self._take_column(metric, data.data_points, table, column)

    def made(self) -> Iterator[Any]:
        """The rows themselves."""
        for name, rows in self._cells.items():
            row = TABLES[name].row
            for columns in rows.values():
                yield row(**columns)
        yield from rows_of(self._groups, self._keys)

    def _take_column(self, metric: Metric, points: Any, table: Table, column: Column) -> int:
        names = point_keys(table)
        keys = [attribute(k) for k in names]
        only = keys[0] if len(keys) == 1 else None
        rows = self._cells.setdefault(table.name, {})
        most = ROWS_A_REQUEST[table.name]
        into, of_row = column.name, self._keys
        reads_histogram, is_whole = column.kind is Kind.HIST, column.sql == "BIGINT"
        bounds, start_us = (-1, -1), -1
        taken = left_out = 0
        for point in points:
            try:
                if reads_histogram:
                    value: Any = histogram(point)
                else:
                    # Another kind of value reads as zero here; what is above zero is of this one.
                    value = point.as_int if is_whole else point.as_double
                    if not 0 < value < inf:
                        value = number(point, column)
                if (point.start_time_unix_nano, point.time_unix_nano) != bounds:
                    start_us = self._start_of(point)
                    bounds = (point.start_time_unix_nano, point.time_unix_nano)
                attributes = point.attributes
                if only is not None and len(attributes) == 1:
                    identity: Identity = (start_us, _only_name(attributes[0], only))
                else:
                    identity = (start_us, *_names(point, keys))
                row = rows.get(identity)
                if row is None:
                    for name in identity[1:]:
                        _bounded(name)
                    if len(rows) >= most:
                        left_out += 1
                        continue
                    row = rows[identity] = {
                        "bucket_start": unix_seconds(start_us),
                        **of_row,
                        **dict(zip(names, identity[1:], strict=True)),
                    }
            except Refused as why:
                self._tally.add(f"{metric.name}: {why}")
                continue
            row[into] = value
            taken += 1
        self._leave_out(metric, most, left_out)
        return taken

    def _take_matrix(self, metric: Metric, points: Any, column: Column) -> int:
        keys = [attribute(k) for k in point_keys(TABLES[_MATRIX])]
        most = ROWS_A_REQUEST[_MATRIX]
        taken = left_out = 0
        for point in points:
            try:
                read = self._reader.read(point, column)
                start = unix_seconds(self._start_of(point))
                if read is None:  # one cell in a point, as older engines send it
                    seconds = number(point, column)
                    victim, reason, kind, holder = map(_bounded, _names(point, keys))
                    cells: Cells = {(kind, holder): float(seconds)}
                else:
                    victim, reason, cells = read
            except Refused as why:
                self._tally.add(f"{metric.name}: {why}")
                continue
            if self._held + len(cells) > most:
                left_out += 1
                continue
            group = (start, victim, reason)
            there = self._groups.get(group)
            if there is None:
                self._groups[group] = cells
                self._held += len(cells)
            else:
                before = len(there)
                there.update(cells)
                self._held += len(there) - before
            if read is not None:
                self.gathered.add(group)
            taken += 1
        self._leave_out(metric, most, left_out)
        return taken

    def _leave_out(self, metric: Metric, most: int, left_out: int) -> None:
        self._tally.add(
            f"{metric.name}: more than {most} rows in a request: send fewer at once", left_out
        )

    def _start_of(self, point: Any) -> int:
        """Where the point's bucket starts, microseconds. Raises Refused."""
        bounds = (point.start_time_unix_nano, point.time_unix_nano)
        start_us = self._starts.get(bounds)
        if start_us is None:
            start_us = self._starts[bounds] = self._checked(*bounds)
        return start_us

    def _checked(self, start_ns: int, end_ns: int) -> int:
        start_us, end_us = start_ns // 1000, end_ns // 1000
        if not FIRST_US < start_us <= LAST_US:
            raise Refused(f"start_time_unix_nano = {start_ns}: not an instant")
        if micros(unix_seconds(start_us) + self._bucket_s) != end_us:
            raise Refused(f"a point of {end_us - start_us} us in a bucket of {self._bucket_s} s")
        return start_us


def _only_name(pair: Any, key: str) -> str:
    """The name in a point's only attribute, which must be `key`."""
    value = pair.value
    name: str = value.string_value
    if pair.key != key or not (name or _is_text(value)):
        raise Refused(f"a point without {key}")
    return name


def _names(point: Any, keys: list[str]) -> tuple[str, ...]:
    """The point's key attributes, as they are."""
    found = {a.key: a.value.string_value for a in point.attributes if _is_text(a.value)}
    if len(found) < len(point.attributes):
        twice = {a.key for a in point.attributes}
        if len(twice) < len(point.attributes):
            raise Refused("a point with an attribute that stands there twice")
    try:
        return tuple([found[k] for k in keys])
    except KeyError as missing:
        raise Refused(f"a point without {missing.args[0]}") from None


def _bounded(name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise Refused(f"a name of {len(name)} characters: expected at most {LONGEST_NAME}")
    return name


def _is_text(value: AnyValue) -> bool:
    return value.WhichOneof("value") == "string_value"


def _check_shape(metric: Metric, column: Column) -> None:
    kind = metric.WhichOneof("data")
    wanted = {Kind.SUM: "sum", Kind.HIST: "histogram"}.get(column.kind, "gauge")
    if kind != wanted:
        raise Refused(f"metric {metric.name} came as {kind}: expected {wanted}")
    if kind != "gauge" and body(metric).aggregation_temporality != AGGREGATION_TEMPORALITY_DELTA:
        raise Refused(f"metric {metric.name} is not delta: a resource with our marks sends deltas")
