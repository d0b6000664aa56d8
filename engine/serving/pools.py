"""The pools behind one front: which tenant is served where, and by which worker. Owns the links.

A pool is one worker or several replicas. Who may enter is the door's to say, the choice among
replicas is `placement`'s; here is what both need to know, and what a dead worker leaves behind.
All of it belongs to the front's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from engine.clock import Clock
from engine.config import PoolSpec, Settings, Tenant
from engine.errors import ConfigError
from engine.scheduling.placement import Load, place
from engine.serving import charges
from engine.serving.api.ready import STALLED_S
from engine.serving.error_place import error_place
from engine.serving.flight import Flight
from engine.serving.front_book import FrontBook, Levels, Submit
from engine.serving.launch import WorkerPlace
from engine.serving.link import WorkerLink
from engine.serving.replica import OnUp, Replica
from engine.worker_names import WorkerNames
from telemetry.proto import tenantscope_pb2 as pb

_log = logging.getLogger(__name__)


class Pool:
    """One pool as the front sees it: its sizes, its book, its replicas.

    Rows of a pool carry the run of its first replica, so nothing is let in before that one has
    answered for the first time.
    """

    def __init__(
        self,
        spec: PoolSpec,
        places: Sequence[WorkerPlace],
        book: FrontBook,
        clock: Clock,
        on_up: OnUp,
        stalled_s: float,
        names: WorkerNames,
    ) -> None:
        self.name = spec.name
        self.limits = spec.limits
        self.book = book
        self.replicas = tuple(
            Replica(
                where,
                names.name(where.pool, where.replica),
                clock,
                book,
                on_up=on_up,
                take_over=self.take_over,
                charged=self.charged,
                stalled_s=stalled_s,
            )
            for where in places
        )
        self.links = tuple(r.link for r in self.replicas)
        self._homes: dict[str, int] = {}  # adapter -> the replica it went to last

    @property
    def open_requests(self) -> int:
        return sum(link.open_requests for link in self.links)

    @property
    def answers(self) -> bool:
        """A request could be handed over now."""
        return self.replicas[0].was_up and any(r.answers for r in self.replicas)

    def route(self, adapter: str | None) -> WorkerLink | None:
        """The worker for a request with this adapter; None when none answers."""
        if not self.answers:
            return None
        links = self.links
        if len(links) == 1:
            return links[0]
        home = None if adapter is None else self._homes.get(adapter)
        replicas = self.replicas
        moving = [Load(r.link.tokens, r.answers and not r.stalls) for r in replicas]
        chosen = place(moving, home)
        if chosen is None:  # all that answer stall: perhaps not for long
            chosen = place([Load(r.link.tokens, r.answers) for r in replicas], home)
        return None if chosen is None else links[chosen]

    def went(self, adapter: str | None, link: WorkerLink) -> None:
        """A request with this adapter was handed to `link`: the adapter is at home there."""
        if adapter is not None and len(self.replicas) > 1:
            self._homes[adapter] = self.links.index(link)

    def forget_homes(self, adapters: set[str]) -> None:
        """These are all the adapters there are."""
        for name in self._homes.keys() - adapters:
            del self._homes[name]

    def take_over(self, flight: Flight) -> bool:
        """A flight whose worker is lost begins again on another; False when there is none. A
        choice follows the first of its answer: the worker of that one counts their prompt."""
        adapter = flight.ask.adapter or None
        first = flight.ask.counted_with
        link = self._carrier(first) if first else None
        link = link or self.route(adapter)
        if link is None:
            return False
        flight.begin_again()
        link.carry(flight)
        self.went(adapter, link)
        return True

    def _carrier(self, request_id: str) -> WorkerLink | None:
        """The worker that has this request now; None when none that answers does."""
        there = (r.link for r in self.replicas if r.answers)
        return next((link for link in there if link.carries(request_id)), None)

    def charged(self, by: WorkerLink, told: pb.Charges) -> None:
        """What one replica has charged is known to the others."""
        others = [link for link in self.links if link is not by]
        if others:
            service = charges.of_proto(told)
            for link in others:
                link.charge(service)

    def why_not_ready(self, now_s: float) -> str | None:
        """Why the pool gets nowhere, in a sentence; None when one replica at least does."""
        reasons = [replica.why_not_ready(now_s) for replica in self.replicas]
        if None in reasons:
            return None
        if len(reasons) == 1 or len(set(reasons)) == 1:
            return reasons[0]
        return "; ".join(f"worker {i + 1}: {why}" for i, why in enumerate(reasons))

    def state(self, now_s: float) -> dict[str, object]:
        """What GET /ready says of it."""
        reason = self.why_not_ready(now_s)
        workers = [r.why_not_ready(now_s) is None for r in self.replicas]
        said: dict[str, object] = {"status": "ready" if reason is None else "waiting"}
        if reason is not None:
            said["reason"] = reason
        if len(workers) > 1:
            said["workers"] = {"ready": sum(workers), "of": len(workers)}
        return said


class Pools:
    """All of them, by the settings in force. `on_up` hears whenever a worker answers."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        run_id: str,
        places: Sequence[WorkerPlace],
        *,
        exporter: Submit,
        levels: Levels,
        on_up: OnUp = lambda place: None,
        stalled_s: float = STALLED_S,
    ) -> None:
        """`run_id`: until the first workers have said theirs. Raises ConfigError for a pool
        without a worker, or a worker of no pool."""
        self._settings = settings
        self._pools: dict[str, Pool] = {}
        names = WorkerNames((p.pool, p.replica) for p in places)
        for spec in settings.all_pools():
            mine = sorted((p for p in places if p.pool == spec.name), key=lambda p: p.replica)
            if not mine:
                raise ConfigError(f"pool {spec.name!r} has no worker: the launch names none")
            book = FrontBook(settings.of_pool(spec.name), clock, run_id, exporter, levels)
            self._pools[spec.name] = Pool(spec, mine, book, clock, on_up, stalled_s, names)
        if stray := {p.pool for p in places} - set(self._pools):
            raise ConfigError(f"workers of pools {sorted(stray)} that the settings do not name")
        self._clock = clock
        self._tenants = {t.name: t for t in settings.tenants}

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())

    def of(self, tenant: Tenant) -> Pool:
        """Where a request of the tenant goes now. `tenant` may be as it was when the request began:
        its pool is as the settings in force say."""
        now = self._tenants.get(tenant.name, tenant)
        return self._pools[self._settings.pool_of(now).name]

    def named(self, name: str) -> Pool | None:
        return self._pools.get(name)

    def take(self, settings: Settings) -> None:
        """These are in force: who comes from now on goes where they say. What is under way stays
        where it is. Pools and their sizes are as at the start."""
        self._settings = settings
        self._tenants = {t.name: t for t in settings.tenants}
        adapters = {name for name, _ in settings.adapters}
        for pool in self:
            pool.forget_homes(adapters)

    @property
    def links(self) -> list[WorkerLink]:
        return [link for pool in self for link in pool.links]

    @property
    def open_requests(self) -> int:
        return sum(pool.open_requests for pool in self)

    def start(self) -> None:
        for link in self.links:
            link.start()

    async def wait_up(self, timeout_s: float) -> WorkerLink | None:
        """None once every worker has answered; else one that has not."""
        links = self.links
        answers = await asyncio.gather(*(link.wait_up(timeout_s) for link in links))
        return next((link for link, up in zip(links, answers, strict=True) if not up), None)

    async def close(self) -> None:
        """Half-close every stream, together: bounded by the slowest one."""
        await asyncio.gather(*(link.close() for link in self.links))
        now_s = self._clock.now()
        for pool in self:
            pool.book.flush(now_s, closing=True)

    def let_go(self) -> None:
        """The front is stopping: every open request is told so."""
        for link in self.links:
            link.let_go()

    def tick(self) -> None:
        """Now and then: what is due of the books leaves, stalls are noticed."""
        now_s = self._clock.now()
        for pool in self:
            for replica in pool.replicas:
                replica.observe(now_s)
            try:
                pool.book.tick(now_s)
            except Exception as e:
                # A book must not end with one tick, nor serving, nor another pool's book with it.
                _log.error("the front's book: %s", error_place(e))

    def ready(self) -> tuple[bool, dict[str, object]]:
        """Whether any pool serves, and what GET /ready says."""
        now_s = self._clock.now()
        states = {pool.name: pool.state(now_s) for pool in self}
        works = any(state["status"] == "ready" for state in states.values())
        if len(states) == 1:
            return works, next(iter(states.values()))
        return works, {"status": "ready" if works else "waiting", "pools": states}
