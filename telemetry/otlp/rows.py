"""Points of one of our own processes put into the rows they are columns of. Pure; trusts nothing.

Each point is held to the vocabulary: the type, the sign, the bounds of its bucket, its keys. What
is wrong is tallied with the reason and sinks nothing else. A point whose bytes are in the form that
all of ours have is read from them (`points`); of any other the object is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)

from telemetry.conventions import Column, Kind
from telemetry.instants import FIRST_US, LAST_US, micros, unix_seconds
from telemetry.otlp import points as at_bytes
from telemetry.otlp.charges import Cells, Group, charges_of
from telemetry.otlp.columns import NO_ROOM, Columns
from telemetry.otlp.encode import attribute, point_keys
from telemetry.otlp.matrix import Reader
from telemetry.otlp.points import BOUNDS_NS, DOUBLE, HEAD, REST, VALUE, WHOLE, Layout, Span
from telemetry.otlp.read import Refused, Tally, body, bounded, histogram, number
from telemetry.tables import TABLES, Table

# Rows of one table that a request may hold: many small points must not become gigabytes.
ROWS_A_REQUEST = {
    "tenant_minute": 100_000,
    "adapter_minute": 100_000,
    "engine_minute": 100_000,
    "interference_minute": 500_000,
}
_MATRIX = "interference_minute"


class _Held:
    """One table's rows, and what is known of points that were read."""

    def __init__(self, table: Table, of_all: dict[str, Any]) -> None:
        names = point_keys(table)
        self.keys = [attribute(k) for k in names]
        self.columns = Columns(table, names, of_all, ROWS_A_REQUEST[table.name])
        # Whose a point is, as bytes, and its row.
        self.of_numbers: dict[bytes, int] = {}
        self.of_histograms: dict[bytes, int] = {}
        self.layouts: dict[tuple[int, bool], Layout] = {}


class Rows:
    """The rows of one resource, as its metrics are taken, in any order."""

    def __init__(self, engine: str, run_id: str, pool: str, bucket_s: float, tally: Tally) -> None:
        self._keys = {"bucket_s": bucket_s, "engine": engine, "run_id": run_id, "pool": pool}
        self._bucket_s = bucket_s
        self._tally = tally
        self._tables: dict[str, _Held] = {}
        self._starts: dict[tuple[int, int], int] = {}
        self._reader = Reader()
        self._groups: dict[Group, Cells] = {}
        self._cells = 0
        self.gathered: set[Group] = set()

    def take(self, metric: Metric, table: Table, column: Column) -> int:
        """Returns how many points of the metric were right."""
        data = body(metric)
        if data is None or not data.data_points:
            return 0
        try:
            _check_shape(metric, column)
        except Refused as why:
            self._tally.add(str(why), len(data.data_points))
            return 0
        if table.name == _MATRIX:
            return self._take_matrix(metric.name, data, column)
        held = self._tables.get(table.name)
        if held is None:
            held = self._tables[table.name] = _Held(table, self._keys)
        if column.kind is Kind.HIST:
            return self._take_histograms(metric.name, data, held, column)
        return self._take_numbers(metric.name, data, held, column)

    def made(self) -> Iterator[Any]:
        """The rows themselves; the matrix as `Charges`, one a bucket."""
        for held in self._tables.values():
            yield from held.columns.made()
        yield from charges_of(self._groups, self._keys)

    def _take_numbers(self, name: str, data: Any, held: _Held, column: Column) -> int:
        raw: bytes = data.SerializeToString()
        whole = column.sql == "BIGINT"
        layout = held.layouts.get((len(raw), whole))
        if layout is not None and layout.fits(raw):
            values = at_bytes.values_at(raw, layout.at, whole=whole)
            if _right(values, column).all():
                held.columns.put(column.name, layout.rows, _plain(values, column))
                return len(layout.rows)
        return self._take_each_number(name, data.data_points, raw, held, column)

    def _take_each_number(
        self, name: str, points: Any, raw: bytes, held: _Held, column: Column
    ) -> int:
        whole = column.sql == "BIGINT"
        spans = _spans(raw, points)
        tag = WHOLE if whole else DOUBLE
        in_form = [
            i
            for i, (begin, end) in enumerate(spans)
            if at_bytes.is_bounded(raw, begin, end) and raw[begin + HEAD] == tag
        ]
        at = np.array([spans[i][0] + VALUE for i in in_form], dtype=np.int64)
        values = at_bytes.values_at(raw, at, whole=whole)
        read: list[Any] = [None] * len(points)
        right = _right(values, column).tolist()
        for i, ok, value in zip(in_form, right, _plain(values, column), strict=True):
            if ok:
                read[i] = value
        taken = _Taken(self._tally, name, held.columns)
        for i, (begin, end) in enumerate(spans):
            try:
                if (value := read[i]) is None:
                    value = number(points[i], column)
                    row = self._row(points[i], held)
                else:
                    whose = raw[begin : begin + HEAD] + raw[begin + REST : end]
                    row = held.of_numbers.get(whose, NO_ROOM)
                    if row == NO_ROOM:
                        row = self._row(NumberDataPoint.FromString(whose), held)
                        held.of_numbers[whose] = row
            except Refused as why:
                self._tally.add(f"{name}: {why}")
            else:
                taken.one(row, value)
        if len(in_form) == len(set(taken.rows)) == len(points):
            held.layouts[len(raw), whole] = Layout(at_bytes.without_values(raw, at), at, taken.rows)
        return taken.into(column)

    def _take_histograms(self, name: str, data: Any, held: _Held, column: Column) -> int:
        raw: bytes = data.SerializeToString()
        points = data.data_points
        taken = _Taken(self._tally, name, held.columns)
        for i, (begin, end) in enumerate(_spans(raw, points)):
            try:
                read = at_bytes.counted(raw, begin, end)
                if read is None:
                    counts = histogram(points[i])
                    row = self._row(points[i], held)
                else:
                    counts = read.counts
                    whose = raw[begin : begin + HEAD] + raw[read.rest : end]
                    row = held.of_histograms.get(whose, NO_ROOM)
                    if row == NO_ROOM:
                        row = self._row(HistogramDataPoint.FromString(whose), held)
                        held.of_histograms[whose] = row
            except Refused as why:
                self._tally.add(f"{name}: {why}")
            else:
                taken.one(row, counts)
        return taken.into(column)

    def _row(self, point: Any, held: _Held) -> int:
        """The place of the point's row. Raises Refused."""
        start_us = self._start_of(point.start_time_unix_nano, point.time_unix_nano)
        return held.columns.row((start_us, *_names(point, held.keys)))

    def _take_matrix(self, name: str, data: Any, column: Column) -> int:
        raw: bytes = data.SerializeToString()
        points = data.data_points
        keys = [attribute(k) for k in point_keys(TABLES[_MATRIX])]
        most = ROWS_A_REQUEST[_MATRIX]
        taken = left_out = 0
        for i, (begin, end) in enumerate(_spans(raw, points)):
            try:
                at_once = self._reader.read_bytes(raw, begin, end)
                read = at_once or self._reader.read(points[i], column)
                start_ns, end_ns = (
                    BOUNDS_NS.unpack_from(raw, begin)
                    if at_once
                    else (points[i].start_time_unix_nano, points[i].time_unix_nano)
                )
                start = unix_seconds(self._start_of(start_ns, end_ns))
                if read is None:  # one cell in a point, as older engines send it
                    seconds = number(points[i], column)
                    victim, reason, kind, holder = map(bounded, _names(points[i], keys))
                    cells: Cells = {(kind, holder): float(seconds)}
                else:
                    victim, reason, cells = read
            except Refused as why:
                self._tally.add(f"{name}: {why}")
                continue
            if self._cells + len(cells) > most:
                left_out += 1
                continue
            group = (start, victim, reason)
            there = self._groups.get(group)
            if there is None:
                self._groups[group] = cells
                self._cells += len(cells)
            else:
                before = len(there)
                there.update(cells)
                self._cells += len(there) - before
            if read is not None:
                self.gathered.add(group)
            taken += 1
        _leave_out(self._tally, name, most, left_out)
        return taken

    def _start_of(self, start_ns: int, end_ns: int) -> int:
        """Where a point's bucket starts, microseconds. Raises Refused."""
        bounds = (start_ns, end_ns)
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


class _Taken:
    """The right points of one metric: which rows they are of, and their values."""

    def __init__(self, tally: Tally, name: str, columns: Columns) -> None:
        self._tally = tally
        self._name = name
        self._columns = columns
        self.rows: list[int] = []
        self._values: list[Any] = []
        self._left_out = 0

    def one(self, row: int, value: Any) -> None:
        if row == NO_ROOM:
            self._left_out += 1
            return
        self.rows.append(row)
        self._values.append(value)

    def into(self, column: Column) -> int:
        """Put them there; returns how many they are."""
        self._columns.put(column.name, self.rows, self._values)
        _leave_out(self._tally, self._name, self._columns.most, self._left_out)
        return len(self.rows)


def _leave_out(tally: Tally, name: str, most: int, left_out: int) -> None:
    tally.add(f"{name}: more than {most} rows in a request: send fewer at once", left_out)


def _spans(raw: bytes, points: Any) -> list[Span]:
    """Where the points are in `raw`; nowhere, each of them, when it has another form."""
    spans = at_bytes.spans(raw)
    return spans if len(spans) == len(points) else [(0, 0)] * len(points)


def _right(values: Any, column: Column) -> Any:
    """Which values may stand in the column; `number` says of the others why not."""
    right = values >= 0 if column.kind is Kind.SUM else values == values
    return right if column.sql == "BIGINT" else right & np.isfinite(values)


def _plain(values: Any, column: Column) -> list[Any]:
    # Of a sum -0.0 is zero.
    return (np.abs(values) if column.kind is Kind.SUM else values).tolist()  # type: ignore[no-any-return]


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


def _is_text(value: AnyValue) -> bool:
    return value.WhichOneof("value") == "string_value"


def _check_shape(metric: Metric, column: Column) -> None:
    kind = metric.WhichOneof("data")
    wanted = {Kind.SUM: "sum", Kind.HIST: "histogram"}.get(column.kind, "gauge")
    if kind != wanted:
        raise Refused(f"metric {metric.name} came as {kind}: expected {wanted}")
    if kind != "gauge" and body(metric).aggregation_temporality != AGGREGATION_TEMPORALITY_DELTA:
        raise Refused(f"metric {metric.name} is not delta: a resource with our marks sends deltas")
