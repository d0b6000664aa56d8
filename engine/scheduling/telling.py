"""What the scheduler tells the ledger: who holds what from this plan on, and what happened.

Owns the wording of events and the spreading of blame; decides nothing about requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.clock import ClockBase
from engine.event_log import EventLog
from engine.memory.pool import PagePool
from engine.memory.residency import Eviction, Residency
from engine.quiet_ledger import QuietLedger
from engine.scheduling.plan import StepPlan
from engine.scheduling.plan_cost import PlanCost
from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Request
from telemetry.ledger.ledger import Ledger
from telemetry.ledger.vectors import Vector
from telemetry.ledger.views import StepView


class Teller:
    """Speaks to the ledger at the ledger's present instant, under its lock."""

    def __init__(
        self,
        ledger: Ledger,
        base: ClockBase,
        pool: PagePool,
        residency: Residency,
        counters: Counters,
    ) -> None:
        self._ledger = ledger
        self._quiet = isinstance(ledger, QuietLedger)
        self._pool = pool
        self._residency = residency
        self._counters = counters
        self.event = EventLog(ledger, base, "s").event
        self._forgotten: list[str] = []
        self._blamed: dict[str, int] = {}  # events of this plan, by column
        self._above: Vector | None = None

    def begin(
        self,
        step: int,
        cost: PlanCost | None,
        plan: StepPlan,
        cost_version: int,
        shared_reason: str,
        examined: Iterable[Request],
    ) -> None:
        """Hand the ledger the world as it is from this plan to the next. What sequences run and
        who holds which bytes it knows already: that is told as it happens."""
        if self._quiet:
            self._blamed = {}
            self._counters.take_lifts()
            return
        self._spread_blame()
        ledger, residency, pool = self._ledger, self._residency, self._pool
        now = ledger.now
        blame: dict[str, Mapping[str | None, float]] = {}
        for request in examined:
            group = request.waits.group
            key = request.ask.adapter
            if key is not None and key not in blame and group.startswith("adapter:"):
                blame[key] = residency.blame(key, now)
        view = StepView(
            step,
            shared_reason=shared_reason,
            cached_bytes=float(pool.cached_bytes),
            free_bytes=float(pool.free_bytes),
            pinned_bytes=float(residency.policy_bytes),
            blame=blame,
            predicted_s=None if cost is None else cost.predicted_s,
            decode_cost_s=None if cost is None else cost.decode_s,
            prefill_cost_s={} if cost is None else cost.prefill_s,
            prefill_tokens=plan.prefill_tokens,
            decode_rows=plan.decode_rows,
            context_tokens=plan.context_tokens,
            adapters=plan.adapter_count,
            cost_version=cost_version,
        )
        for tenant, lifts in self._counters.take_lifts().items():
            ledger.count(tenant, "vtc_lifts", lifts)
        ledger.begin(view, now)

    def take_forgotten(self) -> tuple[str, ...]:
        """Adapters that have left the device since last asked."""
        forgotten, self._forgotten = tuple(self._forgotten), []
        return forgotten

    def evicted(self, evictions: Iterable[Eviction]) -> None:
        now = self._ledger.now
        for e in evictions:
            self._forgotten.append(e.key)
            book = self._ledger.adapter(e.key)
            book.evictions += 1
            book.resident.set(0, now)
            self._ledger.engine_count("evictions")
            if e.suffered is not None:
                self._ledger.count(e.suffered, "swap_out_bytes", e.bytes)
                self._ledger.count(e.suffered, "evictions_suffered")
            self.blame("evictions_caused", e.cause)
            self.event("evict", e.suffered, adapter=e.key, cause=e.cause, value=float(e.bytes))

    def blame(self, column: str, trigger: str) -> None:
        """Spread one event over tenants in proportion to bytes above their fair share, as they
        stand at the plan's first one; the trigger stays in the event. Nobody above: the trigger
        has it all."""
        if not self._blamed:
            self._above = self._ledger.above_fair_share(self._pool.pages * self._pool.page_bytes)
        self._blamed[column] = self._blamed.get(column, 0) + 1
        if self._above is None:
            self._ledger.count(trigger, column, 1.0)

    def _spread_blame(self) -> None:
        if self._above is not None:
            for column, events in self._blamed.items():
                self._ledger.spread(column, events * self._above)
        self._blamed = {}
