"""A bench for alerts: a real store, clocks turned by hand, couriers that only write down.

Rows come from `synthetic_rows.Pool`, bucket by bucket, as a worker would deliver them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telemetry.alerts.delivery import Parcel, Receipt, TargetStats
from telemetry.alerts.ears import Ears
from telemetry.alerts.evaluate import Evaluator
from telemetry.alerts.incident import Incident
from telemetry.alerts.rules import RULES, Rule
from telemetry.alerts.settings import WEBHOOK, AlertSettings, Target
from telemetry.conventions import Emitter
from telemetry.otlp.decode import Decoded
from telemetry.records import Batch, EngineMinute
from telemetry.source import StoreSource
from telemetry.store.store import Store
from telemetry.tables import TABLE_OF
from tests.telemetry.synthetic_rows import Pool

LOOK_S = 30.0  # looks lie further apart than by default, only to have fewer of them


@dataclass
class Clock:
    """A wall clock that may be set, and one that may not."""

    wall_s: float
    mono_s: float = 1000.0

    def wall(self) -> float:
        return self.wall_s

    def mono(self) -> float:
        return self.mono_s

    def turn(self, seconds: float) -> None:
        self.wall_s += seconds
        self.mono_s += seconds


@dataclass
class Book:
    """A courier that writes down what it was given, and takes it when told to."""

    target: Target = field(default_factory=lambda: Target(WEBHOOK, "book", "http://127.0.0.1/"))
    parcels: list[Parcel] = field(default_factory=list)

    def offer(self, parcel: Parcel) -> None:
        self.parcels.append(parcel)

    def stats(self) -> TargetStats:
        return TargetStats(self.target.name, self.target.kind, 0, 0, 0, len(self.parcels), None)

    @property
    def keys(self) -> list[str]:
        return [p.dedup_key for p in self.parcels if p.counts]


class Bench:
    """A store's process without its sockets and threads."""

    def __init__(
        self,
        folder: Path,
        start: float,
        settings: AlertSettings | None = None,
        books: tuple[Book, ...] | None = None,
        rules: tuple[Rule, ...] = RULES,
        clock: Clock | None = None,
    ) -> None:
        self.store = Store.open(folder)
        self.clock = clock or Clock(start)
        self.settings = settings or AlertSettings(every_s=LOOK_S)
        self.books = (Book(),) if books is None else books
        self.ears = Ears(self.clock.mono)
        self.looks: list[tuple[Incident, ...]] = []
        self.evaluator = Evaluator(
            StoreSource(self.store),
            self._write,
            self.ears,
            self.settings,
            self.books,
            self.clock.wall,
            self.clock.mono,
            rules,
        )

    def _write(self, batches: tuple[Batch, ...]) -> None:
        self.store.ingest(Decoded(batches))

    # ------------------------------------------------------------ rows in

    def deliver(self, pool: Pool, start: float, end: float, *, quietly: bool = False) -> None:
        """The pool's rows of buckets, and of events, in [start, end)."""
        minutes = [
            r for t in ("engine_minute", "tenant_minute", "interference_minute")
            for r in pool.rows.get(t, ()) if start <= r.bucket_start < end
        ]  # fmt: skip
        logs = [r for r in pool.rows.get("event", ()) if start <= r.at < end]
        runs = pool.rows.get("engine_run", ()) if start <= pool.at(0) < end else ()
        self.take(pool, [*minutes, *logs, *runs], quietly=quietly)

    def take(self, pool: Pool, rows: list[Any], *, quietly: bool = False) -> None:
        logs = tuple(r for r in rows if TABLE_OF[type(r)].log)
        minutes = tuple(r for r in rows if not TABLE_OF[type(r)].log)
        batch = Batch(pool.engine_name, pool.run, pool.name, Emitter.WORKER, True, 1, minutes, logs)
        self.store.ingest(Decoded((batch,)))
        if not quietly:
            self.ears.hear((batch,), self.clock.wall())

    # ------------------------------------------------------------ time on

    def tick(self, times: int = 1, every_s: float = 10.0, *, take: bool = True) -> None:
        """Looks, each ten seconds after the last; with `take` every parcel arrives at once."""
        for _ in range(times):
            self.clock.turn(every_s)
            self.look(take=take)

    def look(self, *, take: bool = True) -> None:
        self.evaluator.tick()
        if take:
            self.received()
        self.looks.append(self.evaluator.current())

    def received(self) -> None:
        for book in self.books:
            for parcel in book.parcels:
                self.evaluator.received(Receipt(book.target.name, parcel, True))

    def play(self, pool: Pool, first: int, last: int) -> None:
        """Buckets first .. last-1, each delivered when it ends; a look every half minute."""
        for i in range(first, last):
            looks = max(1, int(pool.bucket_s / LOOK_S))
            for k in range(1, looks + 1):
                self.clock.turn(pool.bucket_s / looks)
                if k == looks:
                    self.deliver(pool, pool.at(i), pool.at(i + 1))
                else:
                    self.alive(pool, i, k * pool.bucket_s / looks)
                self.look()

    def alive(self, pool: Pool, i: int, observed_s: float) -> None:
        """Heard, and no more: the open bucket's row of an engine with nothing to tell."""
        row = EngineMinute(bucket_start=pool.at(i), bucket_s=pool.bucket_s,
                           observed_seconds=observed_s, **pool.key)  # fmt: skip
        batch = Batch(pool.engine_name, pool.run, pool.name, Emitter.WORKER, False, 1, (row,))
        self.ears.hear((batch,), self.clock.wall())

    @property
    def incident(self) -> Incident | None:
        found = self.evaluator.current()
        return found[0] if found else None

    def incidents(self) -> set[str]:
        return {i.id for look in self.looks for i in look}

    def alerts_seen(self) -> set[str]:
        return {a.alert for look in self.looks for i in look for a in i.alerts}

    def close(self) -> None:
        self.store.close()
