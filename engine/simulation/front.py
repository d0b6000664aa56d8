"""The simulated front: takes arrivals one by one through the quota door to a replica.

Owns the requests under way and their reservations; the door decides who may enter, placement
where to. A feed of the world: an arrival that is not due yet is nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from engine.config import Tenant
from engine.errors import WorkloadError
from engine.scheduling.placement import Load, place
from engine.scheduling.quota import Admitted, QuotaDoor
from engine.scheduling.request import Ask, Outcome, Request
from engine.serving.front_book import FrontBook, Submit
from engine.simulation.blocks import prompt_of
from engine.simulation.columns import Columns, TenantCounts
from engine.simulation.popularity import fingerprint
from engine.simulation.replica import Replica, adapter_key
from engine.simulation.setup import Setup, adapter_pages, floor_pages
from engine.simulation.sharing import Sharing
from engine.simulation.workload import Arrival, Change, Retry
from engine.simulation.world import World

# Whom a request belongs to while it is under way: tenant's number, reservation, replica, when.
_Flight = tuple[int, Admitted, Replica, float]


class _Tenant:
    """What an arrival needs to know of its tenant, in one place. `number` -1: none came yet."""

    __slots__ = ("counts", "deadline_s", "number", "pool", "queue_timeout_s", "retries")

    def __init__(self, tenant: Tenant, pool: PoolFront, retries: Retry | None) -> None:
        self.retries = retries
        limits = pool.replicas[0].pool.limits
        own_queue_s, own_deadline_s = tenant.queue_timeout_s, tenant.deadline_s
        self.pool = pool
        self.number = -1
        self.counts = TenantCounts()
        self.queue_timeout_s = limits.queue_timeout_s if own_queue_s is None else own_queue_s
        self.deadline_s = limits.deadline_s if own_deadline_s is None else own_deadline_s


class PoolFront:
    """One pool's door, replicas and book."""

    def __init__(
        self, setup: Setup, replicas: Sequence[Replica], world: World, rows: Submit | None
    ) -> None:
        spec = replicas[0].pool
        settings = setup.settings(spec)
        limits = settings.limits
        self.replicas = replicas
        self.door = QuotaDoor(settings)
        self.page_tokens = limits.page_tokens
        self.max_context = limits.max_context
        page = setup.machine.page_bytes
        self.room_tokens = limits.pool_bytes // page * limits.page_tokens
        self.adapter_floor_pages = floor_pages(limits, page)[1]
        self.homes: dict[str, int] = {}
        self.sharing = Sharing(replicas, world) if len(replicas) > 1 else None
        self.book: FrontBook | None = None
        if rows is not None:
            self.book = FrontBook(settings, world.clock, replicas[0].run_id, rows, self._levels)

    def _levels(self, tenant: str, now_s: float) -> tuple[float | None, float | None, int]:
        levels = self.door.levels(tenant, now_s)
        return levels.rpm, levels.tpm, levels.concurrency


class Front:
    """All pools' front. `next_s` and `take` are the world's feed."""

    def __init__(
        self,
        arrivals: Iterator[Arrival],
        setup: Setup,
        world: World,
        columns: Columns,
        until_s: float,
    ) -> None:
        self._arrivals = arrivals
        self._setup = setup
        self._world = world
        self._clock = world.clock
        self._columns = columns
        self._until_s = until_s
        self._adapters = {
            a.name: (adapter_key(a.name), adapter_pages(setup.machine, a.rank, a.targets))
            for a in setup.adapters
        }
        self._tenants = setup.tenants
        self._again: dict[str, tuple[Arrival, int]] = {}  # under way, and would be tried again
        self._pools: dict[str, PoolFront] = {}
        self._known: dict[str, _Tenant] = {}
        self.live: dict[str, _Flight] = {}
        self.offered = 0
        self.error: Exception | None = None  # an arrival could not be taken: the run must end
        self.next_s = math.inf
        self._due: Arrival | None = None

    def open(self, pools: Sequence[PoolFront]) -> None:
        """Arrivals may come: the replicas are there."""
        self._pools = {p.replicas[0].pool.name: p for p in pools}
        retries = {r.tenant: r for r in self._setup.retries}
        for tenant in self._setup.tenants:
            pool = self._pools[self._setup.pool_of(tenant).name]
            self._known[tenant.name] = _Tenant(tenant, pool, retries.get(tenant.name))
        for change in sorted(self._setup.changes, key=lambda c: c.at_s):
            self._world.at(change.at_s, partial(self._change, change))
        self._fetch()

    def _change(self, change: Change) -> None:
        """Somebody changes limits, or the policy: at the door, and on every worker's record."""
        now = self._clock.now()
        self._tenants = tuple(change.apply(t) for t in self._tenants)
        for pool in self._pools.values():
            for tenant in self._tenants:
                if tenant.name == change.tenant and self._known[tenant.name].pool is pool:
                    pool.door.change(tenant, now)
            for replica in pool.replicas:
                replica.change(change, self._tenants)

    def _fetch(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is None or arrival.at_s >= self._until_s:
            self._due, self.next_s = None, math.inf
        else:
            self._due, self.next_s = arrival, arrival.at_s

    def take(self) -> None:
        """The arrival that is due: in through the door, or away."""
        arrival = self._due
        if arrival is None:
            raise ValueError("nothing is due: `next_s` is infinite")
        try:
            self._arrive(arrival)
            self._fetch()
        except Exception as e:
            # A step may be under way, and its core would take this for the step's own failure.
            self.error = e
            self.next_s = math.inf

    def _retry(self, a: Arrival, attempt: int, retries: Retry) -> None:
        """A client that was turned away waits, and asks again."""
        if attempt >= retries.most:
            return
        now = self._clock.now()
        part = fingerprint(f"{a.seed}/{a.tenant}/retry {attempt}") / 2**64
        wait_s = retries.after_s * retries.factor**attempt
        at_s = now + wait_s * (1.0 + retries.spread * (2.0 * part - 1.0))
        again = replace(a, at_s=at_s)
        self._world.at(at_s, lambda: self._come_again(again, attempt + 1))

    def _come_again(self, a: Arrival, attempt: int) -> None:
        try:
            self._arrive(a, attempt)
        except Exception as e:
            self.error = e
            self.next_s = math.inf

    def _arrive(self, a: Arrival, attempt: int = 0) -> None:
        tenant, prompt_tokens, max_tokens = a.tenant, a.prompt_tokens, a.max_tokens
        known = self._known.get(tenant)
        if known is None:
            raise WorkloadError(f"an arrival at {a.at_s:g} s is of tenant {tenant!r}: not known")
        if known.number < 0:
            known.number = self._columns.add(tenant, known.counts)
        pool, counts = known.pool, known.counts
        book = pool.book
        now = self._clock.now()
        tokens = prompt_tokens + max_tokens
        self.offered = offered = self.offered + 1
        counts.offered += 1
        counts.offered_tokens += tokens
        key, pages = None, 0
        if a.adapter is not None:
            try:
                key, pages = self._adapters[a.adapter]
            except KeyError:
                raise WorkloadError(
                    f"an arrival at {a.at_s:g} s names adapter {a.adapter!r}: not known"
                ) from None
        replicas = pool.replicas
        if len(replicas) == 1:
            replica = replicas[0] if replicas[0].up else None
        else:
            home = None if key is None else pool.homes.get(key)
            chosen = place([Load(r.tokens, r.up) for r in replicas], home)
            replica = None if chosen is None else replicas[chosen]
        if replica is None:  # a front without a worker answers 503, and reserves nothing
            counts.rejected["unserved"] = counts.rejected.get("unserved", 0) + 1
            return
        if book is not None:  # as the engine's front: what it answers 503 stands in no row
            book.offered(tenant, tokens, attempt > 0, now)
        beside = max(pages, pool.adapter_floor_pages) * pool.page_tokens
        if pool.room_tokens - beside < tokens <= pool.max_context:
            self._reject(pool, counts, a, "impossible", now, attempt)
            return
        ticket = pool.door.admit(tenant, prompt_tokens, max_tokens, now)
        if not isinstance(ticket, Admitted):
            self._reject(pool, counts, a, ticket.reason, now, attempt)
            if known.retries is not None and ticket.reason != "impossible":
                self._retry(a, attempt, known.retries)
            return
        counts.admitted += 1
        if book is not None:
            book.admitted(tenant, tokens, 0.0, now)
        if key is not None and len(replicas) > 1:
            pool.homes[key] = replica.place
        request_id = f"r{offered}"
        replica.tokens += tokens
        self.live[request_id] = (known.number, ticket, replica, a.at_s)
        if known.retries is not None and known.retries.timeouts:
            self._again[request_id] = (a, attempt)
        if pool.sharing is not None:
            pool.sharing.wanted()
        replica.core.submit(
            Ask(
                request_id,
                tenant,
                prompt_of(a, offered),
                max_tokens,
                a.at_s,
                now,
                key,
                a.adapter,
                queue_timeout_s=known.queue_timeout_s,
                deadline_s=known.deadline_s,
                is_retry=attempt > 0,
            )
        )

    def _reject(
        self,
        pool: PoolFront,
        counts: TenantCounts,
        a: Arrival,
        reason: str,
        now: float,
        attempt: int,
    ) -> None:
        rejected = counts.rejected
        rejected[reason] = rejected.get(reason, 0) + 1
        if pool.book is not None:
            pool.book.rejected(
                request_id=f"r{self.offered}",
                tenant=a.tenant,
                adapter=a.adapter,
                reason=reason,
                prompt_tokens=a.prompt_tokens,
                max_tokens=a.max_tokens,
                arrived_s=a.at_s,
                is_retry=attempt > 0,
                now_s=now,
            )

    # -- endings

    def ended(self, replica: Replica, request: Request, outcome: Outcome) -> None:
        """A core has ended a request: settle what it had reserved, keep what became of it."""
        now = self._world.clock.now()
        number, ticket, _, _ = self.live.pop(request.ask.request_id)
        replica.tokens -= ticket.tokens
        self._columns.ended(number, request, outcome, now)
        door = self._pools[replica.pool.name].door
        computed = min(request.high_water, request.prompt_tokens)
        door.settle(ticket, request.produced, now, prompt_tokens=computed)
        if self._again:
            again = self._again.pop(request.ask.request_id, None)
            retries = self._known[ticket.tenant].retries
            if again is not None and retries is not None and outcome is Outcome.TIMED_OUT:
                self._retry(*again, retries)

    def lost(self, replica: Replica) -> None:
        """Everything under way there has failed; nobody else can say so."""
        now = self._world.clock.now()
        pool = self._pools[replica.pool.name]
        gone = [(i, flight) for i, flight in self.live.items() if flight[2] is replica]
        if pool.book is not None:
            pool.book.worker_down(len(gone), now)
        for request_id, (number, ticket, _, arrived_s) in gone:
            del self.live[request_id]
            self._again.pop(request_id, None)
            pool.door.refund(ticket, now)
            self._columns.lost(number, ticket.prompt_tokens, arrived_s, now)
            if pool.book is not None:
                pool.book.lost(
                    request_id=request_id,
                    tenant=ticket.tenant,
                    adapter=None,
                    prompt_tokens=ticket.prompt_tokens,
                    max_tokens=ticket.tokens - ticket.prompt_tokens,
                    output_tokens=0,
                    arrived_s=arrived_s,
                    admitted_s=arrived_s,
                    is_retry=False,
                    now_s=now,
                )

    def seal(self, *, closing: bool = False) -> None:
        """A bucket has ended: the front's rows leave."""
        now = self._world.clock.now()
        for pool in self._pools.values():
            if pool.book is not None:
                pool.book.flush(now, closing=closing)
