"""Points of a sender that keeps its own totals, made into what each bucket gained. Pure.

A series is a metric, its attributes and, of a cumulative one, the instant its total starts. How far
it has been counted is a `SeriesState`; the caller stores the new states in the transaction that
adds the rows, so that nothing is counted twice, whoever is killed when.

* A cumulative point counts what it has grown since the last one. Older points and the same one
  again add nothing: a total holds what they said.
* A new start is a new total: the sender was restarted. A total that fell began again unsaid.
* The first point of a total counts whole when nothing of it can be from before we listened: it
  starts in its own bucket, or since the sender or the store was first there, or its metric was
  already heard without it. Else it is the baseline and counts nothing, and what the series had
  before it is not known here. So it is for a total older than states are kept, too: it could
  have been counted and forgotten.
* A delta point counts once: one inside intervals counted already is a repetition, one that laps
  over them is refused.
* An increase is put into the bucket in which its interval ends.
"""

from __future__ import annotations

import enum
import json
import operator
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from telemetry.conventions import Column, Emitter, Kind, metric_name
from telemetry.instants import day_of, day_start, micros, unix_seconds
from telemetry.otlp.encode import point_keys
from telemetry.otlp.read import Refused, Tally, shown
from telemetry.records import MinuteRow, SeriesState
from telemetry.tables import TABLES

SERIES_A_SENDER = 50_000
_INTERVALS_KEPT = 16
_LARGEST = (1 << 63) - 1
_NOTHING = "null"  # of a gauge only the time of its last point matters

Value = int | float | tuple[int, ...]
_Key = tuple[str, str, int]  # metric, attributes, start


class Flow(enum.Enum):
    CUMULATIVE = "cumulative"
    DELTA = "delta"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose rows they become, and how long its buckets are."""

    engine: str
    run_id: str
    pool: str
    bucket_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """One well-formed point of a column; `keys` are the table's point keys, `attributes` the JSON
    of all it came with. Instants are unix ns."""

    sender: Sender
    table: str
    column: Column
    keys: tuple[str, ...]
    attributes: str
    flow: Flow
    start_ns: int
    time_ns: int
    value: Value

    @property
    def metric(self) -> str:
        return metric_name(self.table, self.column.name)

    @property
    def key(self) -> _Key:
        start = self.start_ns if self.flow is Flow.CUMULATIVE else 0
        return self.metric, self.attributes, start

    @property
    def bucket_start(self) -> float:
        """Unix seconds. An interval that ends with its bucket is in it, not in the next."""
        length_us = round(self.sender.bucket_s * 1e6)
        return unix_seconds((self.time_ns // 1000 - 1) // length_us * length_us)


@dataclass(frozen=True, slots=True)
class Known:
    """What the converter must know of a sender: its states, since when the store has listened, and
    for how long states are kept (None: for ever)."""

    states: Iterable[SeriesState] = ()
    listening_ns: int = 0
    kept_ns: int | None = None


@dataclass(slots=True)
class Converted:
    """`rows` hold increases, to be added to what is stored, by the process whose columns they are;
    `states` are to be stored with the rows of their day. `baselines` counted nothing."""

    rows: dict[Emitter, list[MinuteRow]] = field(default_factory=dict)
    states: list[SeriesState] = field(default_factory=list)
    counted: int = 0
    repeated: int = 0
    baselines: int = 0
    tally: Tally = field(default_factory=Tally)


def convert(sender: Sender, arrivals: Sequence[Arrival], known: Known) -> Converted:
    """What the arrivals, all of one sender, add. Never raises for what they hold."""
    series = _Series(sender, known)
    out = Converted()
    cells: dict[tuple[str, float, tuple[str, ...]], dict[str, Value]] = defaultdict(dict)
    for point in sorted(arrivals, key=operator.attrgetter("time_ns")):
        try:
            gained = series.take(point)
        except _Repeated:
            out.repeated += 1
            continue
        except Refused as why:
            out.tally.add(f"{point.metric}: {why}")
            continue
        out.counted += 1
        if gained is None:
            out.baselines += 1
            continue
        if point.flow is Flow.CUMULATIVE and not _any(gained):
            continue  # nothing was added: it makes no row
        row = cells[point.table, point.bucket_start, point.keys]
        name = point.column.name
        row[name] = added(row.get(name), gained, point.column.kind)
    out.states = list(series.changed.values())
    out.rows = _rows(sender, cells)
    return out


def added(old: Any, new: Any, kind: Kind) -> Any:
    """A column's value with `new` put to it; None is absent. Sums do not leave 64 bits."""
    if old is None or new is None:
        return new if old is None else old
    if kind is Kind.SUM:
        return min(old + new, _LARGEST) if isinstance(old, int) else old + new
    if kind is Kind.HIST:
        return tuple(min(a + b, _LARGEST) for a, b in zip(old, new, strict=True))
    return max(old, new) if kind is Kind.MAX else new


class _Repeated(Exception):
    """The point says nothing that has not been counted."""


class _Series:
    """The states of one sender as a request's points go by."""

    def __init__(self, sender: Sender, known: Known) -> None:
        self._sender = sender
        self._listening_ns = known.listening_ns
        self._kept_ns = known.kept_ns
        self._newest: dict[_Key, SeriesState] = {}
        self._metric_heard: dict[tuple[str, int], int] = {}
        self.changed: dict[tuple[float, _Key], SeriesState] = {}
        for state in known.states:
            key = (state.metric, state.attributes, state.start_ns)
            before = self._newest.get(key)
            self._newest[key] = state if before is None else _later(before, state)
            stream = (state.metric, state.start_ns)
            self._metric_heard[stream] = min(
                state.heard_ns, self._metric_heard.get(stream, state.heard_ns)
            )
        self._heard_ns = min((s.heard_ns for s in self._newest.values()), default=None)

    def take(self, point: Arrival) -> Value | None:
        """What the point adds; None for a baseline. Raises _Repeated and Refused."""
        state = self._newest.get(point.key)
        if state is None and len(self._newest) >= SERIES_A_SENDER:
            raise Refused(
                f"a new series, and {shown(self._sender.engine)} has {SERIES_A_SENDER} already"
            )
        take = {
            Flow.CUMULATIVE: self._cumulative,
            Flow.DELTA: self._delta,
            Flow.GAUGE: self._gauge,
        }[point.flow]
        gained, value = take(point, state)
        day = day_start(day_of(point.bucket_start))
        now = SeriesState(
            engine=self._sender.engine,
            run_id=self._sender.run_id,
            pool=self._sender.pool,
            at=day,
            metric=point.metric,
            attributes=point.attributes,
            start_ns=point.key[2],
            time_ns=max(point.time_ns, state.time_ns if state else 0),
            heard_ns=state.heard_ns if state else point.time_ns,
            value=value,
        )
        self._newest[point.key] = now
        self.changed[day, point.key] = now
        return gained

    def _cumulative(self, point: Arrival, state: SeriesState | None) -> tuple[Value | None, str]:
        if not 0 < point.start_ns <= point.time_ns:
            raise Refused(
                f"start_time_unix_nano = {point.start_ns}, time_unix_nano = {point.time_ns}: "
                "expected the instant the total starts, and a later one"
            )
        value = json.dumps(point.value)
        if state is None:
            return (point.value if self._is_ours(point) else None), value
        if point.time_ns <= state.time_ns:
            raise _Repeated
        return _growth(_total(state), point.value), value

    def _is_ours(self, point: Arrival) -> bool:
        start = point.start_ns
        if start >= micros(point.bucket_start) * 1000:
            return True
        if self._kept_ns is not None and start < point.time_ns - self._kept_ns:
            return False
        heard = self._metric_heard.get((point.metric, start))
        return (
            start >= self._listening_ns
            or (self._heard_ns is not None and start >= self._heard_ns)
            or (heard is not None and heard < point.time_ns)
        )

    def _delta(self, point: Arrival, state: SeriesState | None) -> tuple[Value, str]:
        start, end = point.start_ns, point.time_ns
        if not 0 < start < end:
            raise Refused(
                f"start_time_unix_nano = {start}, time_unix_nano = {end}: expected an interval"
            )
        covered: list[list[int]] = json.loads(state.value) if state is not None else []
        if any(a <= start and end <= b for a, b in covered):
            raise _Repeated
        if any(a < end and start < b for a, b in covered):
            raise Refused(
                "its interval laps over one that is counted: is there another sender of the same "
                "service.instance.id?"
            )
        return point.value, json.dumps(_joined([*covered, [start, end]]))

    def _gauge(self, point: Arrival, state: SeriesState | None) -> tuple[Value, str]:
        if state is not None and point.time_ns <= state.time_ns:
            raise _Repeated
        return point.value, _NOTHING


def _later(one: SeriesState, other: SeriesState) -> SeriesState:
    """Of two days' states of a series the later one. A late delta is noted in its own day: the
    intervals of both count."""
    later = one if one.time_ns > other.time_ns else other
    if later.start_ns == 0 and later.value != _NOTHING:
        both = _joined([*json.loads(one.value), *json.loads(other.value)])
        return replace(later, value=json.dumps(both))
    return later


def _total(state: SeriesState) -> Value:
    value = json.loads(state.value)
    return tuple(value) if isinstance(value, list) else value


def _growth(before: Value, now: Value) -> Value:
    """What a total has grown by; all of it when it fell."""
    if isinstance(now, tuple) and isinstance(before, tuple):
        if any(n < b for n, b in zip(now, before, strict=True)):
            return now
        return tuple(n - b for n, b in zip(now, before, strict=True))
    assert not isinstance(now, tuple)
    assert not isinstance(before, tuple)
    return now if now < before else now - before


def _joined(intervals: list[list[int]]) -> list[list[int]]:
    """Intervals in order, those that touch as one. Of many the oldest become one: what would fit
    between them counts as a repetition from then on."""
    joined: list[list[int]] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    while len(joined) > _INTERVALS_KEPT:
        joined[:2] = [[joined[0][0], joined[1][1]]]
    return joined


def _any(value: Value) -> bool:
    return any(value) if isinstance(value, tuple) else bool(value)


def _rows(
    sender: Sender, cells: dict[tuple[str, float, tuple[str, ...]], dict[str, Value]]
) -> dict[Emitter, list[MinuteRow]]:
    rows: dict[Emitter, list[MinuteRow]] = defaultdict(list)
    for (table, start, keys), columns in cells.items():
        spec = TABLES[table]
        for emitter in (Emitter.FRONT, Emitter.WORKER):
            own = {
                c.name: columns[c.name]
                for c in spec.columns
                if c.name in columns and c.emitter is emitter
            }
            if own:
                rows[emitter].append(
                    spec.row(
                        bucket_start=start,
                        bucket_s=sender.bucket_s,
                        engine=sender.engine,
                        run_id=sender.run_id,
                        pool=sender.pool,
                        **dict(zip(point_keys(spec), keys, strict=True)),
                        **own,
                    )
                )
    return rows
