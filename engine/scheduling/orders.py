"""What a person has done to a scheduler that runs: other rights, preemption, adapters come and go.

Owns the list of adapters that leave once nobody needs them; everything else is the other rooms'.
Every call between two steps, at the ledger's present instant, under its lock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from engine.config import Limits, Tenant
from engine.memory.moves import LoadOrder, Place
from engine.memory.pool import PagePool, Short
from engine.memory.residency import Residency
from engine.scheduling.endings import Endings
from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Request, State
from engine.scheduling.rights import Rights
from engine.scheduling.running import Running
from engine.scheduling.telling import Teller
from engine.scheduling.waiting import Waiting
from telemetry.ledger.ledger import Ledger
from telemetry.ledger.views import Targets

# A request that the front let through a moment ago may still be on its way here.
LATE_S = 1.0


@dataclass(frozen=True, slots=True)
class Excess:
    """A tenant's running sequences against its fair share of the slots in use."""

    running: int
    fair: int
    may_go: int  # of those above the share, how many were not preempted too often already


class Orders:
    """One scheduler's."""

    def __init__(
        self,
        limits: Limits,
        pool: PagePool,
        residency: Residency,
        counters: Counters,
        rights: Rights,
        waiting: Waiting,
        running: Running,
        endings: Endings,
        ledger: Ledger,
        tell: Teller,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._residency = residency
        self._counters = counters
        self._rights = rights
        self._waiting = waiting
        self._running = running
        self._endings = endings
        self._ledger = ledger
        self._tell = tell
        self._leaving: dict[str, float] = {}  # adapter -> not before this instant
        self._looked_s = -math.inf  # when `leave_now` last was asked

    # -- questions

    def present(self) -> dict[str, tuple[int, int]]:
        """Tenant -> (running, waiting) of those that have a request here."""
        running = Counter(r.tenant for r in self._running.sequences.values())
        waiting = {t: len(q) for t, q in self._waiting.queues.items()}
        return {t: (running[t], waiting.get(t, 0)) for t in sorted({*running, *waiting})}

    def users(self, key: str) -> int:
        """Requests under way with an adapter, waiting ones included."""
        return sum(r.ask.adapter == key for r in self._endings.live.values())

    def place(self, key: str) -> str:
        """The word for where an adapter is."""
        return "draining" if key in self._leaving else self._residency.place(key).value

    def excess(self, tenant: str) -> Excess:
        """Its sequences above ceil(weight ÷ Σ weights of those present × slots in use)."""
        present = self.present()
        weight = self._counters.weight
        total = sum(map(weight, present)) or 1.0
        mine = present.get(tenant, (0, 0))[0]
        in_use = len(self._running)
        others_wait = any(w for t, (_, w) in present.items() if t != tenant)
        slots = self._limits.slots if others_wait else in_use
        fair = math.ceil(weight(tenant) / total * min(slots, self._limits.slots))
        above = max(0, mine - fair)
        return Excess(mine, fair, min(above, len(self._preemptible(tenant))))

    # -- tenants

    def use_tenants(self, tenants: Mapping[str, Tenant]) -> None:
        """Weights and tiers are as here. The policy is to be made anew after it: its order stands
        on them."""
        owed: Counter[str] = Counter()
        here = {r.tenant for r in self._endings.live.values()}
        for t in tenants.values():
            if t.share_by != "none" and t.name not in here and not self._rights.knows(t.name):
                self._rights.share_by[t.name] = t.share_by
                self._waiting.queues.shares(t.name, self._counters.steps)
        for r in self._endings.live.values():
            if r.charged_prompt:
                owed[r.tenant] += r.prompt_tokens - min(r.high_water, r.prompt_tokens)
        for t in tenants.values():
            self._counters.reweigh(t.name, t.weight, owed[t.name])
            self._counters.retier(t.name, t.tier)
            self._ledger.reweigh(t.name, t.weight)
            self._ledger.promise(t.name, Targets(t.slo.ttft_s, t.slo.tpot_s, t.slo.max_gap_s))
        self._rights.take(tenants)

    def preempt(self, tenant: str) -> int:
        """Its sequences above its fair share give their pages back and wait again, those first
        that lose least. Who was preempted as often as a request may be stays. Returns how many."""
        now = self._ledger.now
        for row in self._running.cohort.rows.values():
            self._running.cohort.sync(row)
        most = self.excess(tenant).may_go
        victims = sorted(self._preemptible(tenant), key=lambda r: (r.computed, -r.sequence))
        for victim in victims[:most]:
            self._running.put_back(victim, now, None)
            self._end_if_homeless(victim)
        return most

    def _preemptible(self, tenant: str) -> list[Request]:
        bound = self._limits.preemptions
        running = self._running.sequences.values()
        return [r for r in running if r.tenant == tenant and r.preemptions < bound]

    def _end_if_homeless(self, request: Request) -> None:
        """Its adapter drained, and may have left with it: it could never start again."""
        adapter = request.ask.adapter
        if adapter is not None and not self._residency.knows(adapter):
            self._endings.unloaded(request)

    # -- adapters

    def take_in(self, key: str, pages: int) -> None:
        """An adapter whose copy is in host memory is known from now on."""
        self._leaving.pop(key, None)
        self._residency.register(key, pages, in_host=True)

    def let_leave(self, key: str) -> None:
        """It goes once no request here uses it; until then it serves those that do."""
        self._residency.let_go(key)
        self._leaving.setdefault(key, self._ledger.now + LATE_S)

    @property
    def next_due_s(self) -> float | None:
        """When an adapter may leave that has been waiting for late requests only."""
        # Against the last look, not the present: a timer may have let time pass without a plan.
        late = (at for at in self._leaving.values() if at > self._looked_s)
        return min(late, default=None)

    def leave_now(self) -> None:
        """Those go that are to leave and are needed by nobody. Once a plan."""
        if not self._leaving:
            return
        self._looked_s = now = self._ledger.now
        due = [key for key, at in self._leaving.items() if at <= now]
        used = {r.ask.adapter for r in self._endings.live.values()} if due else set()
        for key in due:
            if key not in used:
                del self._leaving[key]
                self._residency.unload(key, now)
                self._ledger.adapter(key).resident.set(0, now)

    def most_pinned_pages(self, largest: int) -> int:
        """The most that pinned adapters may take, when the largest adapter has `largest` pages:
        beside them the longest request with it must find room, or it would wait for ever."""
        longest = -(-self._limits.max_context // self._limits.page_tokens)
        return self._pool.pages - longest - max(self._pool.adapter_floor_pages, largest)

    @property
    def held(self) -> frozenset[str]:
        """Adapters that a person pinned."""
        return self._residency.held

    def pin(self, keys: Mapping[str, str]) -> tuple[LoadOrder, ...]:
        """Exactly these adapters (key -> the tenant whose load it is) stay on the device, once
        they are there. Returns the loads that find room now; the others come with their next
        request."""
        now, residency = self._ledger.now, self._residency
        for key in residency.held - keys.keys():
            residency.let_go(key)
        orders = []
        for key, tenant in keys.items():
            residency.hold(key)
            if residency.place(key) not in (Place.HOST, Place.DISK) or not residency.knows(key):
                continue
            outcome, evictions = residency.try_order(key, tenant, now)
            self._tell.evicted(evictions)
            if outcome is not None and not isinstance(outcome, Short):
                orders.append(outcome)
        return tuple(orders)

    def is_live(self, request_id: str) -> bool:
        request = self._endings.live.get(request_id)
        return request is not None and request.state is not State.ENDED
