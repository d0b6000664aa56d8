"""A window: every row of one pool between two instants and some time before, bucket by bucket.

Adds rows over engines and runs and says which buckets were observed. It judges nothing.
Absent is not zero: a bucket without an engine row is unknown; beside one, a tenant without a row
was idle. The length of a bucket is the rows' own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar

from telemetry.charged import Catalogue, Cell
from telemetry.coded import CodedMatrix, by_bucket
from telemetry.conventions import REJECT_REASONS, WAIT_REASONS, Emitter, Kind
from telemetry.errors import TelemetryError
from telemetry.grid import Grid, Part
from telemetry.past import past_days
from telemetry.records import (
    EngineMinute,
    EngineRun,
    EventRecord,
    InterferenceMinute,
    PolicyRecord,
    RequestRecord,
    TenantMinute,
)

LOOKBACK_BUCKETS = 120  # read before the window: 60 for the baseline, and room for hurt ones
SHORT = 0.9  # a bucket observed for less than this part of its length is marked
_DEFAULT_LOOKBACK_S = 3600.0
_MINUTES = ("engine_minute", "tenant_minute", "interference_minute")

Row = TypeVar("Row", TenantMinute, EngineMinute)


class Reads(Protocol):
    """Whatever answers for stored rows (`telemetry.source.Source` does)."""

    def read(self, table: str, start: float, end: float) -> list[Any]: ...


class PoolChoice(TelemetryError):
    """The rows hold several pools, or not the one asked for; the message lists them."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One interval of the pool, added over its engines and runs.

    `engine` is None where no engine was heard: then nothing is known of the waits. `observed_s`
    is the time that at least one engine covered; `workers` how many workers were heard at once, on
    average over the bucket; None = their rows were not looked at.
    """

    start: float
    length_s: float
    observed_s: float
    engines: frozenset[str]
    engine: EngineMinute | None
    tenants: Mapping[str, TenantMinute]
    matrix: Mapping[Cell, float]
    charges_missing: int = 0  # matrix rows that carry no number
    workers: float | None = None

    @property
    def end(self) -> float:
        return self.start + self.length_s

    @property
    def known(self) -> bool:
        return self.engine is not None

    @property
    def short(self) -> bool:
        """Observed in part only: still open, or cut by a start or a stop."""
        return self.known and self.observed_s < SHORT * self.length_s


@dataclass(frozen=True, slots=True)
class Gap:
    """Buckets between two instants in which no engine was heard."""

    start: float
    end: float
    buckets: int


@dataclass(frozen=True, slots=True)
class Window:
    """What was asked for (`start`, `end`), and the buckets from some time before it to its end.
    `past` are buckets of the same hour of days before."""

    pool: str
    start: float
    end: float
    buckets: tuple[Bucket, ...]
    requests: tuple[RequestRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    policies: tuple[PolicyRecord, ...] = ()
    runs: tuple[EngineRun, ...] = ()
    engines: frozenset[str] = field(default_factory=frozenset)
    past: tuple[Bucket, ...] = ()
    _grid: list[Grid] = field(default_factory=list, init=False, repr=False, compare=False)

    def part(self, buckets: Sequence[Bucket]) -> Part:
        """These buckets, of the window or of its past, to be added up for all tenants at once."""
        if not self._grid:
            self._grid.append(Grid((*self.past, *self.buckets), WORKER_COLUMNS))
        return Part(self._grid[0], self._grid[0].places(buckets))

    def use(self, grid: Grid) -> None:
        """Take a grid of these very buckets, where there is one already."""
        self._grid[:] = [grid]

    @property
    def asked(self) -> tuple[Bucket, ...]:
        """Buckets that touch the window."""
        return tuple(b for b in self.buckets if b.end > self.start and b.start < self.end)

    @property
    def before(self) -> tuple[Bucket, ...]:
        return tuple(b for b in self.buckets if b.end <= self.start)

    @property
    def bucket_s(self) -> float:
        """Longest bucket length seen; 60 where none was."""
        return max((b.length_s for b in self.buckets), default=60.0)

    def gaps(self) -> tuple[Gap, ...]:
        """Where, inside the window, no engine was heard for half a bucket or more."""
        out: list[Gap] = []
        at = self.start
        known = [b for b in self.asked if b.known]
        for b in known:
            _gap(out, at, b.start, b.length_s)
            at = max(at, b.end)
        _gap(out, at, self.end, known[-1].length_s if known else self.bucket_s)
        return tuple(out)


def _gap(out: list[Gap], start: float, end: float, length_s: float) -> None:
    missing = round((end - start) / length_s)
    if missing >= 1:
        out.append(Gap(start, end, missing))


# ---------------------------------------------------------------- adding rows


_KINDS: dict[type[Any], tuple[tuple[str, Kind], ...]] = {
    row: tuple((f.name, f.metadata["kind"]) for f in fields(row))
    for row in (TenantMinute, EngineMinute)
}
WORKER_COLUMNS = frozenset(
    f.name for f in fields(TenantMinute) if f.metadata["emitter"] is Emitter.WORKER
)


def combine(rows: Sequence[Row]) -> Row:
    """Rows of one bucket added over engines and runs: sums and histograms add, averages weigh by
    observed_seconds, maxima survive, of last values the latest run's. None stays None."""
    if len(rows) == 1:
        return rows[0]
    values: dict[str, Any] = {}
    for name, kind in _KINDS[type(rows[0])]:
        present = [(getattr(r, name), r) for r in rows if getattr(r, name) is not None]
        if kind is Kind.KEY or not present:
            continue
        numbers = [v for v, _ in present]
        if kind is Kind.SUM:
            values[name] = sum(numbers)
        elif kind is Kind.MAX:
            values[name] = max(numbers)
        elif kind is Kind.HIST:
            values[name] = tuple(sum(c) for c in zip(*numbers, strict=True))
        elif kind is Kind.AVG:
            weights = [r.observed_seconds or 0.0 for _, r in present]
            whole = sum(weights)
            values[name] = (
                sum(v * w for v, w in zip(numbers, weights, strict=True)) / whole
                if whole
                else sum(numbers) / len(numbers)
            )
        else:
            values[name] = numbers[-1]
    return replace(rows[0], **values)


def _observed(rows: Sequence[EngineMinute], length_s: float) -> float:
    per_engine: dict[str, float] = {}
    for r in rows:
        seen = length_s if r.observed_seconds is None else r.observed_seconds
        per_engine[r.engine] = per_engine.get(r.engine, 0.0) + seen
    return min(length_s, max(per_engine.values()))


def _workers(rows: Sequence[EngineMinute], length_s: float) -> float:
    """Time observed of all workers together, over the bucket's length. An open bucket is as long
    as the longest of them saw."""
    seen = [length_s if r.observed_seconds is None else r.observed_seconds for r in rows]
    whole = min(length_s, max(seen))
    return sum(seen) / whole if whole else 0.0


def window_of(
    pool: str,
    start: float,
    end: float,
    *,
    engine_rows: Iterable[EngineMinute] = (),
    tenant_rows: Iterable[TenantMinute] = (),
    matrix_rows: Iterable[InterferenceMinute | CodedMatrix] = (),
    requests: Iterable[RequestRecord] = (),
    events: Iterable[EventRecord] = (),
    policies: Iterable[PolicyRecord] = (),
    runs: Iterable[EngineRun] = (),
    past_before: float = -math.inf,
    buckets: Sequence[Bucket] | None = None,
) -> Window:
    """Put rows into buckets. Rows of other pools are left aside; buckets that begin before
    `past_before` are of days before. `buckets`: made of the minutes' rows already."""
    if buckets is None:
        buckets = buckets_of(pool, engine_rows, tenant_rows, matrix_rows, Catalogue())
    heard = [b for b in buckets if b.start >= past_before]
    return Window(
        pool,
        start,
        end,
        tuple(b for b in heard if b.start < end),
        tuple(sorted((r for r in requests if r.pool == pool), key=lambda r: r.arrived)),
        tuple(sorted((e for e in events if e.pool == pool), key=lambda e: e.at)),
        tuple(sorted((p for p in policies if p.pool == pool), key=lambda p: p.at)),
        tuple(sorted((r for r in runs if r.pool == pool), key=lambda r: r.started)),
        frozenset(e for b in heard for e in b.engines),
        tuple(b for b in buckets if b.start < past_before),
    )


def buckets_of(
    pool: str,
    engine_rows: Iterable[EngineMinute],
    tenant_rows: Iterable[TenantMinute],
    matrix_rows: Iterable[InterferenceMinute | CodedMatrix],
    catalogue: Catalogue,
) -> tuple[Bucket, ...]:
    """One pool's rows as buckets, in order of time; `catalogue` takes the cells of the matrix. A
    bucket's charges come as rows or as columns, never as both."""
    engines: dict[float, list[EngineMinute]] = {}
    tenants: dict[float, dict[str, list[TenantMinute]]] = {}
    matrix: dict[float, list[tuple[int, float]]] = {}
    unread: dict[float, int] = {}
    lengths: dict[float, float] = {}
    coded: list[CodedMatrix] = []

    def at(row: EngineMinute | TenantMinute) -> float:
        lengths[row.bucket_start] = max(lengths.get(row.bucket_start, 0.0), row.bucket_s)
        return row.bucket_start

    for e in engine_rows:
        if e.pool == pool:
            engines.setdefault(at(e), []).append(e)
    for t in tenant_rows:
        if t.pool == pool:
            tenants.setdefault(at(t), {}).setdefault(t.tenant, []).append(t)
    place = catalogue.place
    for m in matrix_rows:  # there may be millions
        if m.pool != pool:
            continue
        if isinstance(m, CodedMatrix):
            coded.append(m)
            continue
        begun = m.bucket_start
        if lengths.get(begun, 0.0) < m.bucket_s:
            lengths[begun] = m.bucket_s
        seconds = m.charged_s
        if seconds is None:
            unread[begun] = unread.get(begun, 0) + 1
            continue
        line = matrix.get(begun)
        if line is None:
            line = matrix[begun] = []
        line.append((place((m.victim, m.reason, m.holder_kind, m.holder)), seconds))
    charges = {s: catalogue.charges(line) for s, line in matrix.items()}
    for b in by_bucket(coded, catalogue):
        lengths[b.start] = max(lengths.get(b.start, 0.0), b.length_s)
        charges[b.start] = b.charges
        unread[b.start] = b.missing
    none = catalogue.charges(())
    return tuple(
        Bucket(
            s,
            lengths[s],
            _observed(engines[s], lengths[s]) if s in engines else 0.0,
            frozenset(r.engine for r in engines.get(s, ())),
            combine(engines[s]) if s in engines else None,
            {name: combine(rows) for name, rows in tenants.get(s, {}).items()},
            charges.get(s, none),
            unread.get(s, 0),
            _workers(engines[s], lengths[s]) if s in engines else 0.0,
        )
        for s in sorted(lengths)
    )


def pools_of(rows: Iterable[EngineMinute]) -> tuple[str, ...]:
    return tuple(sorted({r.pool for r in rows}))


def read_window(source: Reads, start: float, end: float, *, pool: str | None = None) -> Window:
    """Read everything the findings need. `pool` may be left out where there is only one.

    Raises PoolChoice where it is needed, or names a pool that has no rows.
    """
    engine_rows = source.read("engine_minute", start - _DEFAULT_LOOKBACK_S, end)
    tenant_rows = source.read("tenant_minute", start - _DEFAULT_LOOKBACK_S, end)
    names = pools_of([*engine_rows, *tenant_rows])
    if pool is None and len(names) > 1:
        listed = ", ".join(repr(n) for n in names)
        raise PoolChoice(f"the store holds {len(names)} pools in this window: name one of {listed}")
    if pool is not None and names and pool not in names:
        listed = ", ".join(repr(n) for n in names)
        raise PoolChoice(f"no pool {pool!r} in this window; there is {listed}")
    chosen = pool if pool is not None else (names[0] if names else "")
    mine = [r.bucket_s for r in engine_rows if r.pool == chosen]
    lookback = LOOKBACK_BUCKETS * max(mine) if mine else _DEFAULT_LOOKBACK_S
    first = start - lookback
    if lookback > _DEFAULT_LOOKBACK_S:
        engine_rows = source.read("engine_minute", first, end)
        tenant_rows = source.read("tenant_minute", first, end)
    span = getattr(source, "span", None)
    begun = span() if span is not None else None
    days = past_days(begun, start, end, first, max(mine, default=60.0))
    past = {t: [r for d in days for r in source.read(t, *d)] for t in _MINUTES}
    return window_of(
        chosen,
        start,
        end,
        past_before=first,
        engine_rows=(
            *past["engine_minute"],
            *(r for r in engine_rows if r.bucket_start >= first),
        ),
        tenant_rows=(
            *past["tenant_minute"],
            *(r for r in tenant_rows if r.bucket_start >= first),
        ),
        matrix_rows=(
            *past["interference_minute"],
            *source.read("interference_minute", first, end),
        ),
        requests=source.read("request", first, end),
        events=source.read("event", first, end),
        policies=source.read("policy", first, end),
        runs=source.read("engine_run", first, end),
    )


# ---------------------------------------------------------------- totals over buckets


def observed_s(buckets: Iterable[Bucket]) -> float:
    return sum(b.observed_s for b in buckets)


def tenants_of(buckets: Iterable[Bucket]) -> tuple[str, ...]:
    return tuple(sorted({t for b in buckets for t in b.tenants}))


def value_in(bucket: Bucket, tenant: str, column: str) -> float | None:
    """A tenant's number in a bucket: 0 while it was idle, None where it is not known.

    A row that only the front wrote says that the worker did nothing for the tenant. Nothing that
    is counted here can be below zero: what is, stands for a number that was not there.
    """
    row = bucket.tenants.get(tenant)
    if row is None:
        return 0.0 if bucket.known else None
    value = getattr(row, column)
    if value is not None and value >= 0:
        return float(value)
    worker_silent = row.observed_seconds is None and column in WORKER_COLUMNS
    return 0.0 if bucket.known and worker_silent else None


def total(buckets: Iterable[Bucket], tenant: str, column: str) -> float | None:
    """A tenant's sum over buckets; None where not one of them carries it."""
    values = [v for b in buckets if (v := value_in(b, tenant, column)) is not None]
    return sum(values) if values else None


def mean(buckets: Iterable[Bucket], tenant: str, column: str) -> float | None:
    """A tenant's time-weighted average over the observed time; idle time counts as 0."""
    weighed = [(v, b.observed_s) for b in buckets if (v := value_in(b, tenant, column)) is not None]
    whole = sum(w for _, w in weighed)
    return sum(v * w for v, w in weighed) / whole if whole else None


def engine_total(buckets: Iterable[Bucket], column: str) -> float | None:
    """The pool's sum of an engine column; None where no bucket carries it."""
    values = [getattr(b.engine, column) for b in buckets if b.engine is not None]
    present = [float(v) for v in values if v is not None and v >= 0]
    return sum(present) if present else None


def wait_s(bucket: Bucket, tenant: str) -> float | None:
    """Seconds the tenant waited in the pool, all reasons; stall is no wait."""
    parts = [value_in(bucket, tenant, f"wait_{r}_s") for r in WAIT_REASONS]
    present = [p for p in parts if p is not None]
    return sum(present) if present else None


def part_of(buckets: Sequence[Bucket]) -> Part:
    """The same as `Window.part`, of buckets that stand by themselves."""
    return Part(grid := Grid(buckets, WORKER_COLUMNS), grid.places(buckets))


def told(buckets: Iterable[Bucket], columns: Iterable[str]) -> bool:
    """Whether the worker's rows of tenants carry one of the columns. An idle bucket has no row,
    and one that only the front wrote says that the worker did nothing: neither is a doubt."""
    wanted = tuple(columns)
    rows = [r for b in buckets for r in b.tenants.values() if r.observed_seconds is not None]
    return not rows or any(getattr(r, c) is not None for r in rows for c in wanted)


def rejected(row: TenantMinute) -> int:
    """Requests refused, all reasons."""
    return sum(getattr(row, f"rejected_{r}_requests") or 0 for r in REJECT_REASONS)
