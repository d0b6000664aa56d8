"""What the scheduler tells the ledger: who holds what from this plan on, and what happened.

Owns the wording of events and the spreading of blame; decides nothing about requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from engine.clock import ClockBase
from engine.costs import StepCost
from engine.memory.pool import PagePool
from engine.memory.residency import Eviction, Place, Residency
from engine.scheduling.plan import StepPlan
from engine.scheduling.policies.base import Queues
from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Request
from telemetry.ledger import Ledger
from telemetry.records import EventRecord
from telemetry.views import StepView


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
        self._base = base
        self._pool = pool
        self._residency = residency
        self._counters = counters
        self._events = 0

    def begin(
        self,
        plan: StepPlan,
        cost: StepCost | None,
        cost_version: int,
        shared_reason: str,
        running: Sequence[Request],
        examined: Sequence[Request],
        queues: Queues,
    ) -> None:
        """Hand the ledger the world as it is from this plan to the next."""
        holdings = self._pool.holdings()
        resident: dict[str, int] = {}
        for r in running:
            resident[r.tenant] = resident.get(r.tenant, 0) + 1
        in_step: dict[str, int] = {}
        for s in plan.segments:
            in_step[s.tenant] = in_step.get(s.tenant, 0) + 1
        blame: dict[str, Mapping[str | None, float]] = {}
        for r in examined:
            key = r.ask.adapter
            if key is not None and self._residency.place(key) is Place.LOADING:
                blame[key] = self._residency.blame(key, self._ledger.now)
        view = StepView(
            plan.step,
            shared_reason=shared_reason,
            running=resident,
            kv_bytes=holdings.kv,
            adapter_bytes=holdings.adapters,
            cached_bytes=float(holdings.cached),
            free_bytes=float(holdings.free),
            pinned_bytes=float(self._residency.pinned_bytes()),
            blame=blame,
            oldest_since_s=_oldest(queues),
        )
        if cost is not None:
            view = replace(
                view,
                predicted_s=cost.predicted_s,
                in_step=in_step,
                prefill_cost_s=cost.prefill_s,
                decode_cost_s=cost.decode_s,
                prefill_tokens=plan.prefill_tokens,
                decode_rows=plan.decode_rows,
                context_tokens=plan.context_tokens,
                adapters=len(plan.adapters),
                cost_version=cost_version,
            )
        for tenant, lifts in self._counters.take_lifts().items():
            self._ledger.count(tenant, "vtc_lifts", lifts)
        self._ledger.begin(view, self._ledger.now)

    def evicted(self, evictions: Iterable[Eviction]) -> None:
        now = self._ledger.now
        for e in evictions:
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
        """Spread one event over tenants in proportion to pages above their fair share; the
        trigger stays in the event. Nobody above: the trigger has it all."""
        held = self._pool.holdings().by_tenant()
        weights = {t: self._counters.weight(t) for t in held}
        size = self._pool.pages * self._pool.page_bytes
        whole = sum(weights.values())
        above = {t: max(0.0, b - size * weights[t] / whole) for t, b in held.items()}
        total = sum(above.values())
        if not total:
            self._ledger.count(trigger, column, 1.0)
            return
        for tenant, excess in above.items():
            if excess:
                self._ledger.count(tenant, column, excess / total)

    def event(
        self,
        kind: str,
        tenant: str | None,
        *,
        adapter: str | None = None,
        request_id: str | None = None,
        cause: str | None = None,
        detail: str | None = None,
        value: float | None = None,
    ) -> None:
        who = self._ledger.identity
        self._events += 1
        self._ledger.log(
            EventRecord(
                engine=who.engine,
                run_id=who.run_id,
                pool=who.pool,
                event_id=f"s{self._events}",
                at=self._base.unix(self._ledger.now),
                kind=kind,
                tenant=tenant,
                adapter=adapter,
                request_id=request_id,
                cause_tenant=cause,
                detail=detail,
                value=value,
            )
        )


def _oldest(queues: Queues) -> dict[str, float]:
    """Since when each tenant's oldest wait lasts. Queues are in order of arrival; only the
    preempted at the front began to wait later than they arrived."""
    oldest: dict[str, float] = {}
    for tenant, queue in queues.items():
        for request in queue:
            since = request.waits.waiting_since_s
            if since is not None:
                oldest[tenant] = min(since, oldest.get(tenant, since))
            if not request.preemptions:
                break
    return oldest
