"""Sealed buckets, passed on once each as deltas with the bucket's bounds. Pure of clocks, sends
nothing.

What was passed on is remembered by row for as long as a bucket can be told from one of long ago;
a bucket further away than that is not passed on, and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

from telemetry.conventions import CHARGE_REASONS, HOLDER_KINDS, Column, Emitter, Kind
from telemetry.outbound.metrics import Traces, Writer, columns_of, nanos, within
from telemetry.outbound.queue import Payload
from telemetry.prometheus.counting import Counting
from telemetry.prometheus.exposed import OTHER
from telemetry.prometheus.totals import LARGEST, by_bucket
from telemetry.prometheus.totals import within as near_enough
from telemetry.records import Batch, MinuteRow
from telemetry.tables import TABLE_OF

_Seen = tuple[tuple[str, str, str], float, float, Emitter]


class Deltas:
    """The buckets of one store process. Not thread-safe."""

    def __init__(self, counting: Counting, traces: Traces) -> None:
        self._counting = counting
        self._traces = traces
        self._seen: dict[_Seen, set[tuple[str, ...]]] = {}
        self.late = 0  # rows not passed on: of a time more than an hour away

    def take(self, batch: Batch, now: float) -> list[Payload]:
        """What of a delivery is sealed and new, one request a bucket. `now` is unix seconds."""
        for gone in [k for k in self._seen if not near_enough(k, now)]:
            del self._seen[gone]
        if not batch.sealed:
            return []
        made = []
        rows = [r for r in batch.minutes if columns_of(TABLE_OF[type(r)].name)]
        rows.sort(key=lambda r: (r.bucket_start, r.bucket_s))
        for start, length, some in by_bucket(rows):
            key = ((batch.engine, batch.run_id, batch.pool), start, length, batch.emitter)
            if not near_enough(key, now):
                self.late += sum(1 for _ in some)
                continue
            seen = self._seen.setdefault(key, set())
            new = []
            for row in some:
                name = (TABLE_OF[type(row)].name, *_key_of(row))
                if name not in seen:
                    seen.add(name)
                    new.append(row)
            payload = self._encode(batch, start, start + length, new)
            if payload is not None:
                made.append(payload)
        return made

    def _encode(
        self, batch: Batch, start: float, end: float, rows: Sequence[MinuteRow]
    ) -> Payload | None:
        # Two runs of one pool may share a bucket: they are streams of their own.
        pool = self._counting.place(batch.engine, batch.pool)
        writer = Writer(pool, AGGREGATION_TEMPORALITY_DELTA, self._traces, batch.run_id)
        groups: dict[tuple[str, tuple[str, ...]], list[MinuteRow]] = defaultdict(list)
        for row in rows:
            groups[TABLE_OF[type(row)].name, _labels(row, self._counting.naming.label)].append(row)
        exemplars = self._counting.exemplars() if rows else {}
        for (table, labels), group in groups.items():
            for column in columns_of(table):
                values = _together(column, group, crowd=labels == (OTHER,))
                if values is not None:
                    seen = exemplars.get(((*pool, *labels), column.name), ())
                    writer.put(
                        table, column, labels, nanos(start), nanos(end), values,
                        within(seen, start, end),
                    )  # fmt: skip
        return writer.payload()


def _key_of(row: Any) -> tuple[str, ...]:
    """What tells rows of one bucket apart."""
    keys = TABLE_OF[type(row)].key[5:]
    return tuple(getattr(row, k) for k in keys)


def _labels(row: Any, label: Callable[[str], str]) -> tuple[str, ...]:
    """The label values after engine and pool, bounded as the running totals' are."""
    table = TABLE_OF[type(row)].name
    if table == "tenant_minute":
        return (label(row.tenant),)
    if table == "interference_minute":
        return (
            row.reason if row.reason in CHARGE_REASONS else OTHER,
            row.holder_kind if row.holder_kind in HOLDER_KINDS else OTHER,
            label(row.holder) if row.holder else "",
        )
    return ()


def _together(column: Column, rows: Sequence[Any], *, crowd: bool) -> tuple[float, ...] | None:
    """One value of the rows' (a histogram has many); None when none has one, or none can be."""
    present = [v for r in rows if (v := getattr(r, column.name)) is not None]
    if not present:
        return None
    if column.kind is Kind.HIST:
        return tuple(min(max(sum(bucket), 0), LARGEST) for bucket in zip(*present, strict=True))
    if column.kind is Kind.SUM:
        return (min(max(sum(present), 0), LARGEST),)
    if not crowd:
        return (float(present[-1]),)
    if column.kind is Kind.AVG:
        return (float(sum(present)),)
    return (float(max(present)),) if column.kind is Kind.MAX else None
