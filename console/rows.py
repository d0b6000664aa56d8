"""The recorded rows a snapshot is made of: how they are read, and which were known at an instant.

Knows any source that has `read`; owns no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from telemetry.records import (
    EngineMinute,
    EngineRun,
    EventRecord,
    InterferenceMinute,
    PolicyRecord,
    RequestRecord,
    TenantMinute,
)

LONGEST_LIFE_S = 900.0  # requests are read by arrival: so far back a first token may have arrived


class Source(Protocol):
    """Where rows come from: a live store, closed files, a worker's memory."""

    def read(self, table: str, start: float, end: float) -> Sequence[Any]:
        """Rows of `table` between two unix instants (minute tables by bucket_start)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one stretch of time."""

    tenants: tuple[TenantMinute, ...] = ()
    engines: tuple[EngineMinute, ...] = ()
    interference: tuple[InterferenceMinute, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()
    policies: tuple[PolicyRecord, ...] = ()
    runs: tuple[EngineRun, ...] = ()

    def of_pool(self, pool: str) -> Rows:
        """Only what belongs to one pool."""
        return Rows(
            tenants=tuple(r for r in self.tenants if r.pool == pool),
            engines=tuple(r for r in self.engines if r.pool == pool),
            interference=tuple(r for r in self.interference if r.pool == pool),
            requests=tuple(r for r in self.requests if r.pool == pool),
            events=tuple(r for r in self.events if r.pool == pool),
            policies=tuple(r for r in self.policies if r.pool == pool),
            runs=tuple(r for r in self.runs if r.pool == pool),
        )

    def as_of(self, at: float) -> Rows:
        """What had been recorded for good by `at`: closed buckets, ended requests, past events."""
        return Rows(
            tenants=tuple(r for r in self.tenants if r.bucket_start + r.bucket_s <= at),
            engines=tuple(r for r in self.engines if r.bucket_start + r.bucket_s <= at),
            interference=tuple(r for r in self.interference if r.bucket_start + r.bucket_s <= at),
            requests=tuple(r for r in self.requests if known_since(r) <= at),
            events=tuple(r for r in self.events if r.at <= at),
            policies=tuple(r for r in self.policies if r.at <= at),
            runs=tuple(r for r in self.runs if r.started <= at),
        )

    def before(self, cut: float) -> Rows:
        """The part that a read from `cut` on does not bring again."""
        return Rows(
            tenants=tuple(r for r in self.tenants if r.bucket_start < cut),
            engines=tuple(r for r in self.engines if r.bucket_start < cut),
            interference=tuple(r for r in self.interference if r.bucket_start < cut),
            requests=tuple(r for r in self.requests if r.arrived < cut),
            events=tuple(r for r in self.events if r.at < cut),
        )

    def then(self, later: Rows) -> Rows:
        """These rows and `later` ones."""
        return Rows(
            tenants=self.tenants + later.tenants,
            engines=self.engines + later.engines,
            interference=self.interference + later.interference,
            requests=self.requests + later.requests,
            events=self.events + later.events,
            policies=self.policies + later.policies,
            runs=self.runs + later.runs,
        )

    def since(self, start: float) -> Rows:
        """Without what ended before `start`; policies and runs stay, they hold until replaced."""
        return replace(
            self,
            tenants=tuple(r for r in self.tenants if r.bucket_start + r.bucket_s > start),
            engines=tuple(r for r in self.engines if r.bucket_start + r.bucket_s > start),
            interference=tuple(r for r in self.interference if r.bucket_start + r.bucket_s > start),
            requests=tuple(r for r in self.requests if known_since(r) > start),
            events=tuple(r for r in self.events if r.at > start),
        )


def known_since(request: RequestRecord) -> float:
    """A request row is written at its end."""
    return request.arrived if request.ended is None else request.ended


def read_rows(
    source: Source, start: float, end: float, *, arrived_since: float | None = None
) -> Rows:
    """Everything a snapshot at `end` with history back to `start` needs.

    Requests are read by arrival, from `arrived_since` or, without it, a long life before `start`.
    """
    since = start - LONGEST_LIFE_S if arrived_since is None else arrived_since
    return Rows(
        tenants=tuple(source.read("tenant_minute", start, end)),
        engines=tuple(source.read("engine_minute", start, end)),
        interference=tuple(source.read("interference_minute", start, end)),
        requests=tuple(source.read("request", since, end)),
        events=tuple(source.read("event", start, end)),
        policies=tuple(source.read("policy", 0.0, end)),
        runs=tuple(source.read("engine_run", 0.0, end)),
    )
