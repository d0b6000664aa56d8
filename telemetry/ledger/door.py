"""The front's own book: offered, admitted, rejected, waited in the front. By the bucket.

Owns the columns that the front writes; the worker's ledger owns the others of the same row.
Not thread-safe: the front is one event loop. Time is passed in and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telemetry.conventions import REJECT_REASONS, Emitter
from telemetry.ledger.views import Identity
from telemetry.records import Batch, LogRow, TenantMinute

Level = tuple[float | None, float | None, int]  # rpm left, tpm left, requests under way

_COUNTS = (
    "offered_requests", "offered_tokens", "offered_retries", "admitted_requests",
    "admitted_tokens",
    *(f"rejected_{r}_{u}" for r in REJECT_REASONS for u in ("requests", "tokens")),
)  # fmt: skip


class DoorLedger:
    """`levels(tenant, now)` tells the quotas' state at a bucket's end."""

    def __init__(
        self,
        *,
        engine: str,
        run_id: str,
        pool: str,
        bucket_s: float,
        clock_wall_s: float,
        levels: Callable[[str, float], Level],
        now_s: float = 0.0,
    ) -> None:
        self._identity = Identity(engine, run_id, pool)
        self._bucket_s = bucket_s
        self._wall_s = clock_wall_s
        self._levels = levels
        self._bucket_unix = self._floor(now_s)
        self._counts: dict[str, dict[str, float]] = {}
        self._sealed: list[tuple[TenantMinute, ...]] = []
        self._logs: list[LogRow] = []
        self._seq = 0

    def offered(self, tenant: str, tokens: int, is_retry: bool, now_s: float) -> None:
        counts = self._at(tenant, now_s)
        counts["offered_requests"] += 1
        counts["offered_tokens"] += tokens
        counts["offered_retries"] += is_retry

    def admitted(self, tenant: str, tokens: int, wait_front_s: float, now_s: float) -> None:
        counts = self._at(tenant, now_s)
        counts["admitted_requests"] += 1
        counts["admitted_tokens"] += tokens
        counts["wait_front_s"] += wait_front_s

    def rejected(self, tenant: str, reason: str, tokens: int, now_s: float) -> None:
        counts = self._at(tenant, now_s)
        counts[f"rejected_{reason}_requests"] += 1
        counts[f"rejected_{reason}_tokens"] += tokens

    def log(self, row: LogRow) -> None:
        """A row of the front's own, such as a rejected request."""
        self._logs.append(row)

    def collect(self, now_s: float) -> list[Batch]:
        """Sealed buckets since the last call, then the open one as it is."""
        self._turn(now_s)
        logs, self._logs = tuple(self._logs), []
        sealed, self._sealed = self._sealed, []
        batches = []
        for is_sealed, rows in [*((True, r) for r in sealed), (False, self._rows(now_s))]:
            self._seq += 1
            who = self._identity
            batches.append(
                Batch(
                    who.engine,
                    who.run_id,
                    who.pool,
                    Emitter.FRONT,
                    is_sealed,
                    self._seq,
                    rows,
                    logs,
                )
            )
            logs = ()
        return [b for b in batches if b.minutes or b.logs]

    def _floor(self, now_s: float) -> float:
        return (self._wall_s + now_s) // self._bucket_s * self._bucket_s

    def _turn(self, now_s: float) -> None:
        bucket = self._floor(now_s)
        if bucket <= self._bucket_unix:
            return
        if self._counts:
            self._sealed.append(self._rows(self._bucket_unix + self._bucket_s - self._wall_s))
            self._counts = {}
        self._bucket_unix = bucket

    def _at(self, tenant: str, now_s: float) -> dict[str, float]:
        self._turn(now_s)
        counts = self._counts.get(tenant)
        if counts is None:
            counts = self._counts[tenant] = dict.fromkeys((*_COUNTS, "wait_front_s"), 0)
        return counts

    def _rows(self, now_s: float) -> tuple[TenantMinute, ...]:
        return tuple(self._row(tenant, counts, now_s) for tenant, counts in self._counts.items())

    def _row(self, tenant: str, counts: dict[str, float], now_s: float) -> TenantMinute:
        rpm, tpm, running = self._levels(tenant, now_s)
        values: dict[str, Any] = {k: int(counts[k]) for k in _COUNTS}
        return TenantMinute(
            bucket_start=self._bucket_unix,
            bucket_s=self._bucket_s,
            engine=self._identity.engine,
            run_id=self._identity.run_id,
            pool=self._identity.pool,
            tenant=tenant,
            **values,
            wait_front_s=counts["wait_front_s"],
            quota_rpm_level=rpm,
            quota_tpm_level=tpm,
            concurrency_in_use=float(running),
        )
