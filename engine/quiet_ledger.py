"""A ledger that keeps time and an index, and writes nothing down: for runs whose rows nobody reads.

The scheduler and the pool speak to it as to any ledger, and decide the same: nothing that a ledger
has written comes back to them. Never sends a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from telemetry.ledger.ledger import Ledger
from telemetry.ledger.vectors import Vector
from telemetry.ledger.views import Ended, StepView, TenantWork, Verdict
from telemetry.records import LogRow, RequestRecord


class QuietLedger(Ledger):
    """Its buckets never end, and no target is watched: steps may be jumped over freely."""

    # -- time

    def tick(self, now: float) -> None:
        if now > self.now:
            self.now = now

    def _until(self, now: float) -> None:
        if now > self.now:
            self.now = now

    def begin(self, view: StepView, now: float) -> None:
        self._until(now)

    def settle(
        self,
        work: Mapping[str, TenantWork],
        decoded: Vector | None,
        now: float,
        *,
        failed_prefill_tokens: int = 0,
        failed_decode_rows: int = 0,
    ) -> None:
        self._until(now)

    def jump(
        self,
        first_step: int,
        start: float,
        ends: Sequence[float],
        predicted_s: Sequence[float],
        decode_cost_sum_s: Vector,
        decoded_sum: Vector,
        decode_rows: int,
        context_tokens: Sequence[int],
        adapters: int,
        cost_version: int,
    ) -> None:
        self._until(ends[-1])

    @property
    def next_seal_s(self) -> float:
        return math.inf

    @property
    def smallest_gap_s(self) -> float | None:
        return None

    # -- what happens to requests and tenants

    def joined(self, request_id: str, tenant: str, arrived_s: float, now: float) -> float:
        if now > self.now:
            self.now = now
        return self.now

    def wait_began(self, request_id: str, tenant: str, group: str) -> None:
        """Unheard."""

    def wait_moved(self, tenant: str, was: str, group: str) -> None:
        """Unheard."""

    def wait_ended(self, request_id: str, tenant: str, group: str) -> None:
        """Unheard."""

    def first_scheduled(self, request_id: str) -> None:
        """Unheard."""

    def first_token(self, request_id: str, tenant: str, ttft_s: float) -> None:
        """Unheard."""

    def gap(self, request_id: str, gap_s: float) -> None:
        """Unheard."""

    def ended(self, end: Ended, make: Callable[[Verdict], RequestRecord]) -> None:
        """Unheard."""

    def runs(self, tenant: str, by: int) -> None:
        """Unheard."""

    def in_step(self, tenant: str, by: int) -> None:
        """Unheard."""

    def kv_bytes(self, tenant: str, by: float) -> None:
        """Unheard."""

    def adapter_bytes(self, tenant: str, by: float) -> None:
        """Unheard."""

    def count(self, tenant: str, column: str, amount: float = 1) -> None:
        """Unheard."""

    def spread(self, column: str, amounts: Vector) -> None:
        """Unheard."""

    def above_fair_share(self, pool_bytes: float) -> Vector | None:
        return None

    def engine_count(self, column: str, amount: float = 1) -> None:
        """Unheard."""

    def log(self, row: LogRow) -> None:
        """Unheard."""
