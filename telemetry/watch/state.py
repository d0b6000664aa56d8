"""What a process knows of the tenants now, from all it has heard. Owns memory and its lock.

Follows deliveries like any listener (`telemetry.service.hearing`) and answers with `Totals` of the
last seconds. Hearing only puts a batch aside; it is folded in when somebody looks. Nothing here
asks a store, and looking twice between two deliveries adds up once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.prometheus.totals import UNKNOWN_MARK, Key, Place, State, by_bucket
from telemetry.records import Batch, EngineMinute, TenantMinute
from telemetry.store import sql
from telemetry.tables import TABLES
from telemetry.watch.columns import HISTOGRAM, KEPT, POOL_COLUMNS
from telemetry.watch.frame import LONGEST_WINDOW_S, Matrix, PoolNow, Totals
from telemetry.watch.sums import Part, Whole, add_up

STALE_S = 180.0  # unheard for so long, a pool is not counted: what it does now is unknown
KEEP_S = LONGEST_WINDOW_S
MOST_POOLS = 256
MOST_TENANTS = 200_000  # rows of one bucket
MOST_ASIDE = 20_000  # rows that wait to be folded in
_WINDOWS = 8  # sums of so many lengths of window are remembered
_LONGEST_BUCKET_S = 3600.0

_BUCKETS = len(LATENCY_BOUNDS_S) + 1
_WIDTH = len(KEPT) + _BUCKETS
_NO_COUNTS = (None,) * _BUCKETS
_values_of = attrgetter(*KEPT)
_counts_of = attrgetter(HISTOGRAM)
_pool_values_of = attrgetter(*(c.name for c in POOL_COLUMNS))
_FRONT = {c.name for c in TABLES["tenant_minute"].columns if c.emitter is Emitter.FRONT}
_MINE = {
    Emitter.FRONT: np.array([n in _FRONT for n in KEPT] + [False] * _BUCKETS),
    Emitter.WORKER: np.array([n not in _FRONT for n in KEPT] + [True] * _BUCKETS),
}

Pool = tuple[str, str]  # engine, pool
Bucket = tuple[Place, float, float]  # ..., start and length


@dataclass(slots=True)
class _Heard:
    """One pool: when it was heard last, and until when it was observed (its own clock)."""

    at: float
    end: float


class WatchState:
    """One process's view. Thread-safe. Callers say when it is, in unix seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aside: deque[tuple[Sequence[Batch], float]] = deque()
        self._rows_aside = 0
        self._states: dict[Key, State] = {}
        self._engines: dict[Bucket, tuple[int, EngineMinute]] = {}
        self._pools: dict[Pool, _Heard] = {}
        self._left_out = 0
        self._revision = 0
        self._whole = Whole()
        self._sums: dict[float, tuple[tuple[object, ...], Totals]] = {}

    # --- in ---

    def hear(self, batches: Sequence[Batch], now: float, refused: int = 0) -> None:
        """Take one committed delivery; again, or in another order, it changes nothing."""
        rows = sum(len(b.minutes) for b in batches)
        if not rows:
            return
        with self._lock:
            self._aside.append((batches, now))
            self._rows_aside += rows
            if self._rows_aside > MOST_ASIDE:
                self._fold_aside()

    def remember(self, tenants: Iterable[Any], engines: Iterable[Any]) -> None:
        """Take rows of a store: `tenant_minute` and `engine_minute`. Any delivery is newer. A pool
        counts as heard when its last bucket was observed, not now."""
        with self._lock:
            self._fold_aside()
            groups: dict[Bucket, list[Any]] = {}
            for row in tenants:
                place = (row.engine, row.run_id, row.pool)
                groups.setdefault((place, row.bucket_start, row.bucket_s), []).append(row)
            for row in engines:
                place = (row.engine, row.run_id, row.pool)
                self._engine(place, row, UNKNOWN_MARK, None)
            for (place, start, length), rows in groups.items():
                self._note(place, start + _observed(rows, length), None)
                values = _matrix(rows)
                for emitter, own in _MINE.items():
                    there = np.logical_not(np.isnan(values[:, own]).all(axis=1))
                    some = [rows[i] for i in np.flatnonzero(there).tolist()]
                    if some:
                        mine = np.where(own, values[there], np.nan)
                        self._tenants((place, start, length, emitter), some, mine, UNKNOWN_MARK)
            self._sweep()

    # --- out ---

    def look(self, now: float, window_s: float) -> Totals:
        """The last `window_s` of every pool, by the pool's own clock.

        A pool's window ends where it was observed last. A bucket that lies in it only in part
        gives its sums by the part of its observed time that does (with buckets of a minute: the
        open one whole, of the sealed one before it what is missing to `window_s`), averages by
        the same seconds, maxima whole. Averages of one tenant add over pools, as bytes held do.
        """
        with self._lock:
            self._fold_aside()
            silent = frozenset(p for p, h in self._pools.items() if now - h.at > STALE_S)
            about = (self._revision, silent)
            known = self._sums.get(window_s)
            if known is None or known[0] != about:
                known = (about, self._add_up(window_s, silent))
                while len(self._sums) >= _WINDOWS:
                    del self._sums[next(iter(self._sums))]
                self._sums[window_s] = known
            return self._aged(known[1], now)

    def _add_up(self, window_s: float, silent: frozenset[Pool]) -> Totals:
        parts: list[Part] = []
        for key, state in self._states.items():
            (place, start, length, emitter) = key
            pool = (place[0], place[2])
            heard = self._pools.get(pool)
            if heard is None or pool in silent or not state.names:
                continue
            end = self._observed_until((place, start, length), emitter, heard.end)
            low = max(start, heard.end - window_s)
            if end > low:
                seconds = end - low
                parts.append(Part(pool, start, end, seconds, seconds / (end - start), state))
        parts.sort(key=lambda p: (p.pool, p.start))
        observed = self._observed(window_s)
        sums = add_up(self._whole, parts, {p: observed.get(p, 0.0) for p in self._pools})
        pools = tuple(self._strip(p, silent, observed, sums.tenants) for p in sorted(self._pools))
        counted = [h.end for p, h in self._pools.items() if p not in silent]
        end = max(counted, default=max((h.end for h in self._pools.values()), default=0.0))
        return Totals(
            names=sums.names,
            values=sums.values,
            ttft=sums.ttft,
            by_name=np.array(sorted(range(len(sums.names)), key=sums.names.__getitem__), np.int64),
            start=min(counted, default=end) - window_s,
            end=end,
            pools=pools,
            provisional=any(p.provisional for p in pools if p.counted),
            partial=self._lacks(silent),
        )

    def _observed(self, window_s: float) -> dict[Pool, float]:
        """Seconds of each pool's window that were observed, added over runs, not over emitters."""
        seconds: dict[Pool, float] = {}
        buckets = dict.fromkeys(k[:3] for k in self._states) | dict.fromkeys(self._engines)
        for bucket in buckets:
            pool = (bucket[0][0], bucket[0][2])
            heard = self._pools.get(pool)
            if heard is not None:
                end = self._observed_until(bucket, Emitter.WORKER, heard.end)
                inside = end - max(bucket[1], heard.end - window_s)
                seconds[pool] = seconds.get(pool, 0.0) + max(0.0, inside)
        return seconds

    def _observed_until(self, bucket: Bucket, emitter: Emitter, heard_end: float) -> float:
        """The end of what a bucket says. The front does not say; the engine's row does for both."""
        _, start, length = bucket
        engine = self._engines.get(bucket)
        if engine is not None and engine[1].observed_seconds:
            return start + min(engine[1].observed_seconds, length)
        return min(start + length, max(heard_end, start))

    def _strip(
        self,
        pool: Pool,
        silent: frozenset[Pool],
        observed: dict[Pool, float],
        tenants: dict[Pool, int],
    ) -> PoolNow:
        newest: tuple[int, EngineMinute] | None = None
        for (place, _, _), row in self._engines.items():
            if (place[0], place[2]) == pool and (
                newest is None or row[1].bucket_start >= newest[1].bucket_start
            ):
                newest = row
        values = (None,) * len(POOL_COLUMNS) if newest is None else _pool_values_of(newest[1])
        return PoolNow(
            engine=pool[0],
            pool=pool[1],
            heard_age_s=self._pools[pool].at,  # an instant still: `_aged` makes an age of it
            observed_s=observed.get(pool, 0.0),
            counted=pool not in silent,
            provisional=newest is None or 0 <= newest[0] < sql.SEALED_MARK,
            tenants=tenants.get(pool, 0),
            values=tuple(None if v is None else float(v) for v in values),
        )

    def _aged(self, totals: Totals, now: float) -> Totals:
        pools = tuple(replace(p, heard_age_s=max(0.0, now - p.heard_age_s)) for p in totals.pools)
        return replace(totals, pools=pools)

    def _lacks(self, silent: frozenset[Pool]) -> tuple[str, ...]:
        lacks = [
            f"engine {e} pool {p}: silent for more than {STALE_S:g} s, not counted"
            for e, p in sorted(silent)
        ]
        if not self._pools:
            lacks.append("nothing has been heard yet")
        if self._left_out:
            lacks.append(
                f"{self._left_out} rows are left out: more than {MOST_POOLS} pools or "
                f"{MOST_TENANTS} tenants in one"
            )
        return tuple(lacks)

    # --- folding in ---

    def _fold_aside(self) -> None:
        folded = bool(self._aside)
        while self._aside:
            batches, now = self._aside.popleft()
            for batch in batches:
                if batch.minutes:
                    self._fold(batch, now)
        self._rows_aside = 0
        if folded:
            self._sweep()

    def _fold(self, batch: Batch, now: float) -> None:
        place = (batch.engine, batch.run_id, batch.pool)
        mark = sql.mark(batch.sealed, batch.seq)
        for row in batch.minutes:
            if type(row) is EngineMinute:
                self._engine(place, row, mark, now)
        tenants = [r for r in batch.minutes if type(r) is TenantMinute]
        for start, length, some in by_bucket(tenants):
            rows = list(some)
            self._note(place, start + (length if batch.sealed else _observed(rows, 0.0)), now)
            self._tenants((place, start, length, batch.emitter), rows, _matrix(rows), mark)

    def _engine(self, place: Place, row: EngineMinute, mark: int, now: float | None) -> None:
        bucket = (place, row.bucket_start, row.bucket_s)
        if not self._note(place, row.bucket_start + (row.observed_seconds or 0.0), now):
            return
        before = self._engines.get(bucket)
        if before is None or mark >= before[0]:
            self._engines[bucket] = (mark, row)
            self._revision += 1

    def _note(self, place: Place, until: float, now: float | None) -> bool:
        """Remember when a pool was heard, and of when; False when there is no room for it."""
        pool = (place[0], place[2])
        heard = self._pools.get(pool)
        if heard is None:
            if len(self._pools) >= MOST_POOLS:
                self._left_out += 1
                return False
            self._pools[pool] = _Heard(until if now is None else now, until)
            self._revision += 1
            return True
        heard.at = max(heard.at, until if now is None else now)
        if until > heard.end:
            heard.end = until
            self._revision += 1
        return True

    def _tenants(self, key: Key, rows: Sequence[Any], new: Matrix, mark: int) -> None:
        if (key[0][0], key[0][2]) not in self._pools:
            return
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(_WIDTH)
        names = [r.tenant for r in rows]
        if len(names) != len(set(names)):  # the last one counts
            last = {n: i for i, n in enumerate(names)}
            names, new = list(last), new[list(last.values())]
        room = MOST_TENANTS - len(state.names)
        if len(names) > room:
            keep = [i for i, n in enumerate(names) if n in state.at][:MOST_TENANTS]
            keep += [i for i, n in enumerate(names) if n not in state.at][:room]
            self._left_out += len(names) - len(keep)
            names, new = [names[i] for i in keep], new[keep]
        if not names:
            return
        index = state.places(names)
        old, marks = state.values[index], state.marks[index]
        newer = (mark >= marks)[:, None]
        first, second = np.where(newer, new, old), np.where(newer, old, new)
        state.values[index] = np.where(np.isnan(first), second, first)
        state.marks[index] = np.maximum(marks, mark)
        self._revision += 1

    def _sweep(self) -> None:
        """Forget buckets that no window reaches any more, and pools that have none left."""
        for key in [k for k in self._states if self._is_past(k[0], k[1], k[2])]:
            del self._states[key]
        for bucket in [b for b in self._engines if self._is_past(*b)]:
            del self._engines[bucket]
        places = {k[0] for k in self._states} | {b[0] for b in self._engines}
        alive = {(engine, pool) for engine, _, pool in places}
        for pool in [p for p in self._pools if p not in alive]:
            del self._pools[pool]

    def _is_past(self, place: Place, start: float, length: float) -> bool:
        heard = self._pools.get((place[0], place[2]))
        return heard is None or start + min(length, _LONGEST_BUCKET_S) <= heard.end - KEEP_S


def _observed(rows: Sequence[Any], otherwise_s: float) -> float:
    """Seconds of the bucket that its rows were observed; the front's rows do not say."""
    return max((r.observed_seconds for r in rows if r.observed_seconds), default=otherwise_s)


def _matrix(rows: Sequence[Any]) -> Matrix:
    """(rows, kept columns and TTFT counts); None is NaN."""
    counts = [_counts_of(r) or _NO_COUNTS for r in rows]
    plain = np.array([_values_of(r) for r in rows], float)
    return np.concatenate([plain, np.array(counts, float)], axis=1)
