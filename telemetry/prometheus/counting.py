"""What a process has heard, as it will be shown: totals, newest levels, exemplars. Owns the lock.

Fed with every committed delivery (`hear`), asked at every scrape (`look`). Pure of clocks: callers
say when it is. Knows no text format and no socket.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from telemetry.conventions import CHARGE_REASONS, HOLDER_KINDS, Emitter, Kind, latency_bucket
from telemetry.outbound.trace_context import is_trace_id
from telemetry.prometheus.charge_totals import ChargeTotals
from telemetry.prometheus.exposed import OTHER
from telemetry.prometheus.naming import Naming
from telemetry.prometheus.running import Labels, Matrix
from telemetry.prometheus.totals import BUCKETS, Key, State, TableTotals
from telemetry.records import (
    Batch,
    EngineMinute,
    EngineRun,
    InterferenceMinute,
    RequestRecord,
    TenantMinute,
)

MOST_POOLS = 16  # (engine, pool) pairs with series of their own
LONGEST_LABEL = 128
STALE_S = 180.0  # unheard for so long, a pool's levels are unknown, not what they were
# Of the levels these add up over tenants; maxima survive; the rest says nothing about a crowd.
_ADDS_UP = frozenset({"in_flight", "concurrency_in_use", "weight"})
# A request's own durations, and the histograms they were counted in.
_EXEMPLARS = (("ttft_s", "ttft"), ("tpot_s", "tpot"), ("max_gap_s", "max_gap"))
_LONGEST_ID = 100  # an exemplar may have 128 characters of labels


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One request that fell into a histogram's bucket."""

    request_id: str
    value_s: float
    at_unix_s: float
    trace_id: str | None = None  # the client's, where it sent one


Levels = list[tuple[Labels, dict[str, float]]]  # by label values: column -> newest value


@dataclass(frozen=True, slots=True)
class Look:
    """Everything a scrape shows, as it was at one instant."""

    tenants: tuple[list[Labels], Matrix]
    engines: tuple[list[Labels], Matrix]
    charges: tuple[list[Labels], Matrix]
    tenant_levels: Levels
    engine_levels: Levels
    exemplars: dict[tuple[Labels, str], list[Exemplar | None]]
    heard: dict[Labels, tuple[float, float]]  # (when, until when observed), by (engine, pool)
    started_unix_s: float
    last_ingest_unix_s: float
    batches: int
    rows: int
    refused: int
    uncounted: int
    named: int
    left_out: int


class Counting:
    """One process's view of all it has heard. Thread-safe."""

    def __init__(self, started_unix_s: float, naming: Naming | None = None) -> None:
        self.naming = naming or Naming()
        self.tenants = TableTotals("tenant_minute", "tenant")
        self.engines = TableTotals("engine_minute", None)
        self.charges = ChargeTotals()
        self._started_unix_s = started_unix_s
        self._last_ingest_unix_s = 0.0
        self._batches = self._rows = self._refused = self._uncounted = 0
        self._pools: dict[tuple[str, str], tuple[str, str]] = {}
        self._heard: dict[Labels, tuple[float, float]] = {}
        self._exemplars: dict[tuple[Labels, str], list[Exemplar | None]] = {}
        self._now = started_unix_s
        self._lock = threading.Lock()

    # --- in ---

    def hear(self, batches: Sequence[Batch], now: float, refused: int = 0) -> None:
        """Count one committed delivery. Again, or in another order: nothing changes."""
        with self._lock:
            self._now = now = max(now, self._now)
            self._batches += 1
            self._refused += refused
            self._last_ingest_unix_s = now
            for batch in batches:
                self._rows += len(batch.minutes) + len(batch.logs)
                self._log_rows(batch.logs)
                self._minutes(batch, now)

    def remember(self, tables: dict[str, list[Any]], now: float) -> None:
        """What a store holds from before this process: counted by another one, not again here.

        `tables`: engine_run, tenant_minute, engine_minute, interference_minute; missing is empty.
        """
        with self._lock:
            self._log_rows(tables.get("engine_run", ()))
            self.tenants.remember(tables.get("tenant_minute", ()), now)
            self.engines.remember(tables.get("engine_minute", ()), now)
            self.charges.remember(tables.get("interference_minute", ()), now)

    def _log_rows(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if type(row) is EngineRun:
                self.naming.learn(row)
                pool = self._pool(row.engine, row.pool)
                for name in (*self.naming.named, OTHER):
                    self.tenants.running.begin((*pool, name))
                self.engines.running.begin(pool)
            elif type(row) is RequestRecord:
                self._exemplify(row)

    def _minutes(self, batch: Batch, now: float) -> None:
        if not batch.minutes:
            return
        pool = self._pool(batch.engine, batch.pool)
        engines = [r for r in batch.minutes if type(r) is EngineMinute]
        tenants = [r for r in batch.minutes if type(r) is TenantMinute]
        charges = [r for r in batch.minutes if type(r) is InterferenceMinute]
        label = self.naming.label
        late = self.engines.take(batch, engines, now, lambda _: pool)
        late += self.tenants.take(batch, tenants, now, lambda n: (*pool, label(n)), self._rank)
        late += self.charges.take(
            batch,
            charges,
            [(r.bucket_start, r.bucket_s) for r in engines],
            now,
            lambda h: (*pool, *_held(h[0], h[1]), label(h[2]) if h[2] else ""),
        )
        self._uncounted += late
        if engines:
            until = max(r.bucket_start + (r.observed_seconds or 0.0) for r in engines)
            before = self._heard.get(pool, (0.0, 0.0))[1]
            self._heard[pool] = (now, max(until, before))

    def _rank(self, key: Key, state: State) -> None:
        place, start, _, emitter = key
        if emitter is not Emitter.WORKER:
            return
        before = set(self.naming.named)
        service, missed = (
            np.nan_to_num(state.values[:, self.tenants.at[c]][:, 0]).tolist()
            for c in ("service", "slo_missed")
        )
        self.naming.rank(place, start, state.names, service, missed)
        pool = self._pool(place[0], place[2])
        for name in self.naming.named:
            if name not in before:
                self.tenants.running.begin((*pool, name))

    def _pool(self, engine: str, pool: str) -> tuple[str, str]:
        found = self._pools.get((engine, pool))
        if found is not None:
            return found
        if len(self._pools) >= MOST_POOLS or max(len(engine), len(pool)) > LONGEST_LABEL:
            return OTHER, OTHER
        self._pools[engine, pool] = engine, pool
        return engine, pool

    def _exemplify(self, row: RequestRecord) -> None:
        at = row.ended or row.last_token or row.first_token
        if at is None or len(row.request_id) > _LONGEST_ID:
            return
        labels = (*self._pool(row.engine, row.pool), self.naming.label(row.tenant))
        for duration, histogram in _EXEMPLARS:
            value = getattr(row, duration)
            if value is not None and value >= 0:
                kept = self._exemplars.setdefault((labels, histogram), [None] * BUCKETS)
                trace_id = row.trace_id if is_trace_id(row.trace_id) else None
                kept[latency_bucket(value)] = Exemplar(row.request_id, value, at, trace_id)

    # --- out ---

    def look(self, now: float) -> Look:
        """Everything as of `now`. The counters have never been larger before."""
        with self._lock:
            return Look(
                tenants=self.tenants.running.read(),
                engines=self.engines.running.read(),
                charges=self.charges.running.read(),
                tenant_levels=self._tenant_levels(now),
                engine_levels=self._engine_levels(now),
                exemplars={k: list(v) for k, v in self._exemplars.items()},
                heard=dict(self._heard),
                started_unix_s=self._started_unix_s,
                last_ingest_unix_s=self._last_ingest_unix_s,
                batches=self._batches,
                rows=self._rows,
                refused=self._refused,
                uncounted=self._uncounted,
                named=len(self.naming.named),
                left_out=self.naming.left_out,
            )

    def exemplars(self) -> dict[tuple[Labels, str], list[Exemplar | None]]:
        """The newest request of each histogram bucket, by labels and histogram."""
        with self._lock:
            return {k: list(v) for k, v in self._exemplars.items()}

    def place(self, engine: str, pool: str) -> tuple[str, str]:
        """A pool's labels, as far as it has been heard."""
        return self._pools.get((engine, pool), (OTHER, OTHER))

    def _engine_levels(self, now: float) -> Levels:
        found: Levels = []
        for engine, pool, emitter in self.engines.pools():
            state = self._fresh(self.engines, engine, pool, emitter, now)
            if state is not None:
                found.append(((engine, pool), self._levels_of(self.engines, state.values[0])))
        return found

    def _tenant_levels(self, now: float) -> Levels:
        """The named tenants' own, and what can be said of all the others together."""
        levels: dict[Labels, dict[str, float]] = {}
        for engine, pool, emitter in self.tenants.pools():
            state = self._fresh(self.tenants, engine, pool, emitter, now)
            if state is None:
                continue
            own = np.array([self.naming.label(n) != OTHER for n in state.names], bool)
            for i in np.flatnonzero(own).tolist():
                mine = levels.setdefault((engine, pool, state.names[i]), {})
                mine.update(self._levels_of(self.tenants, state.values[i]))
            crowd = state.values[~own]
            for column in self.tenants.gauges:
                values = crowd[:, self.tenants.at[column.name]]
                values = values[~np.isnan(values)]
                if not len(values):
                    continue
                theirs = levels.setdefault((engine, pool, OTHER), {})
                if column.kind is Kind.AVG or column.name in _ADDS_UP:
                    theirs[column.name] = float(values.sum())
                elif column.kind is Kind.MAX:
                    theirs[column.name] = float(values.max())
        return list(levels.items())

    def _levels_of(self, table: TableTotals, values: Any) -> dict[str, float]:
        found = {c.name: float(values[table.at[c.name]][0]) for c in table.gauges}
        return {name: value for name, value in found.items() if value == value}

    def _fresh(
        self, table: TableTotals, engine: str, pool: str, emitter: Emitter, now: float
    ) -> State | None:
        """The newest bucket's rows, where the pool has been heard of late and has a name."""
        when, _ = self._heard.get((engine, pool), (0.0, 0.0))
        if now - when > STALE_S or (engine, pool) not in self._pools:
            return None
        state = table.newest(engine, pool, emitter)
        return state if state is not None and len(state.names) else None


def _held(reason: str, kind: str) -> tuple[str, str]:
    """Words of the vocabulary; whatever else a sender writes is one series."""
    return (
        reason if reason in CHARGE_REASONS else OTHER,
        kind if kind in HOLDER_KINDS else OTHER,
    )
