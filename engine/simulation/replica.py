"""One worker of a pool in virtual time: its core and what befalls it (slow, frozen, lost).

Owns the making of cores, how long steps really take, and the life of a replica. The core decides;
who sends the requests is the front's business.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.chronicle import KnownAdapter
from engine.config import PoolSpec, Settings, Tenant
from engine.core import EngineCore
from engine.memory.pool import PagePool
from engine.quiet_ledger import QuietLedger
from engine.scheduling.request import Outcome, Request
from engine.simulation.lanes import Lane
from engine.simulation.setup import Machine, Setup, adapter_bytes, adapter_pages
from engine.simulation.workload import Change, Fault
from engine.simulation.world import CostRunner, VirtualLink, World
from telemetry.ledger.ledger import Ledger
from telemetry.ledger.views import Identity
from telemetry.records import Batch, EngineRun

Ended = Callable[["Replica", Request, Outcome], None]


class ReplicaLost(BaseException):
    """The worker dies in the middle of a step. No `Exception`: a core calls that a bad step."""


class Trouble:
    """How much longer steps take than they should, by the faults of one replica."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._slow = [(f.at_s, f.at_s + f.duration_s, f.factor) for f in faults if f.kind == "slow"]
        self._freezes = deque(sorted((f.at_s, f.duration_s) for f in faults if f.kind == "freeze"))
        self.some = bool(self._slow or self._freezes)

    def stretch(self, now: float, duration_s: float) -> float:
        """What a step begun now takes instead of `duration_s`; a freeze falls on one step only."""
        for start, end, factor in self._slow:
            if start <= now < end:
                duration_s *= factor
        while self._freezes and self._freezes[0][0] <= now:
            duration_s += self._freezes.popleft()[1]
        return duration_s

    def calm_until(self, now: float) -> float:
        """Steps that begin and end before this instant take what they should; `now` = none do."""
        calm = math.inf
        for start, end, _ in self._slow:
            if now < end:
                calm = min(calm, max(start, now))
        if self._freezes:
            calm = min(calm, max(self._freezes[0][0], now))
        return calm


class Replica:
    """`number` counts over all pools, `place` inside the pool. `tokens` are those handed to it
    that have not ended: the front keeps them up to date."""

    def __init__(
        self,
        setup: Setup,
        pool: PoolSpec,
        place: int,
        number: int,
        world: World,
        *,
        emit: Callable[[Batch], None] | None,
        ended: Ended,
        lost: Callable[[Replica], None],
    ) -> None:
        """`emit` None: nobody reads the ledger's rows, and none are built."""
        self.place, self.number, self.tokens = place, number, 0
        self.pool = pool
        self._setup, self._settings, self._world = setup, setup.settings(pool), world
        self._emit, self._ended, self._lost = emit, ended, lost
        first = setup.pools[0].name
        own = [f for f in setup.faults if (f.pool or first) == pool.name and f.replica == place]
        self._trouble = Trouble(own)
        self._starts = 0
        self._name = f"{setup.seed}-{setup.policy}-{pool.name}-{place}"
        self._in_step = False
        self._went_s = deque(sorted(f.at_s for f in own if f.kind == "lost"))
        self._back_s = 0.0  # when it answers again
        self.lane: Lane | None = None
        self.up = True
        self.steps_before = 0  # of cores that were lost
        self.service_before: dict[str, float] = {}
        self.core = self._start()
        for fault in own:
            if fault.kind == "lost":
                self._arm(fault)

    # -- stepping

    @property
    def has_work(self) -> bool:
        return self.up and self.core.wait_for_work(0)

    def work(self, until_s: float | None) -> bool:
        """One step, or a run of identical ones that ends by `until_s` (None: one step only);
        False = nothing to do."""
        if not self.has_work:
            return False
        if self._trouble.some and until_s is not None:
            until_s = min(until_s, self._trouble.calm_until(self._world.clock.now()))
        self._in_step = True
        try:
            result = self.core.step(until_s)
        except ReplicaLost:
            self._in_step = False
            self._drop()
            return True
        self._in_step = False
        for ending in result.ended:
            self._ended(self, ending.request, ending.outcome)
        return True

    def _sleep(self, end_s: float) -> None:
        """The time of a step passes: in a lane of its own, or the world with it."""
        now = self._world.clock.now()
        if self._trouble.some:
            usual_s = end_s - now
            longer_s = self._trouble.stretch(now, usual_s)
            if longer_s != usual_s:  # else `end_s` stays what it was, to the last bit
                end_s = now + longer_s
        if self._went_s and self._went_s[0] < end_s:
            end_s = max(now, self._went_s[0])
        if self.lane is None:
            self._world.run_to(end_s)
        else:
            self.lane.sleep_until(end_s)
        if not self.up:
            raise ReplicaLost

    def change(self, change: Change, tenants: tuple[Tenant, ...]) -> None:
        """The policy, or limits that the front applies: in force here and on the record. A worker
        that is down starts with them."""
        policy = change.policy or self._setup.policy
        self._setup = replace(self._setup, policy=policy, tenants=tenants)
        self._settings = self._setup.settings(self.pool)
        if self.up:
            self.core.set_policy(
                policy, who=change.who, why=change.why, tenants=self._settings.tenants
            )

    # -- being lost

    def _arm(self, fault: Fault) -> None:
        self._world.at(fault.at_s, lambda: self._go_down(fault.duration_s))

    def _go_down(self, duration_s: float) -> None:
        self._went_s.popleft()
        self._back_s = max(self._back_s, self._world.clock.now() + duration_s)
        if self._back_s < math.inf:
            self._world.at(self._back_s, self._come_back)
        if not self.up:
            return
        self.up = False
        if not self._in_step:  # else the step finds out when its time has passed
            self._drop()

    def _drop(self) -> None:
        """What the core knew is gone with it, but for what it had told."""
        self._keep_sums()
        if self._emit is not None:
            ledger, now = self.core.ledger, self._world.clock.now()
            with ledger.lock:
                ledger.tick(now)
                batches = ledger.collect(now)
            for batch in batches:
                self._emit(batch)
        self._lost(self)
        self.tokens = 0

    def _come_back(self) -> None:
        if not self.up and self._world.clock.now() >= self._back_s:
            self.core = self._start()
            self.up = True

    def _keep_sums(self) -> None:
        counters = self.core.scheduler.counters
        before = self.service_before
        for tenant in self._settings.tenants:
            name = tenant.name
            before[name] = before.get(name, 0.0) + counters.service(name)
        self.steps_before += self.core.status().steps

    # -- questions, housekeeping

    @property
    def steps(self) -> int:
        return self.steps_before + (self.core.status().steps if self.up else 0)

    def services(self, tenants: Sequence[str]) -> list[float]:
        """Everything each tenant was charged here, unweighted: W of fairness."""
        before = self.service_before
        past = [before.get(t, 0.0) for t in tenants] if before else [0.0] * len(tenants)
        if not self.up:
            return past
        served = map(self.core.scheduler.counters.service, tenants)
        return [p + s for p, s in zip(past, served, strict=True)]

    def seal(self) -> None:
        """A bucket has ended: send its rows."""
        if self.up and self._emit is not None:
            self.core.tick()

    def close(self) -> None:
        """Send what is left."""
        self.abandon()
        if self._emit is not None and self.up:
            self.core.close()

    def abandon(self) -> None:
        """End the lane, where there is one, and tell nobody."""
        if self.lane is not None:
            self.lane.close()

    # -- a core

    @property
    def run_id(self) -> str:
        """The run of the present core; another one after it was lost."""
        return f"{self._name}.{self._starts}"

    def _start(self) -> EngineCore:
        self._starts += 1
        setup, settings, machine = self._setup, self._settings, self._setup.machine
        core = EngineCore(
            settings,
            Identity(settings.engine, self.run_id, settings.pool),
            self._world.clock,
            CostRunner(self._world, machine.costs, sleep=self._sleep),
            VirtualLink(self._world, machine.page_bytes, machine.link_bytes_per_s),
            make_pages(machine, settings),
            machine.costs,
            tuple(
                KnownAdapter(
                    adapter_key(a.name),
                    a.name,
                    adapter_pages(machine, a.rank, a.targets),
                    adapter_bytes(machine, a.rank, a.targets),
                    a.rank,
                    True,
                )
                for a in setup.adapters
            ),
            emit=self._emit or _nobody,
            book=QuietLedger if self._emit is None else Ledger,
            share_every_s=math.inf if self.pool.replicas > 1 else None,
        )
        if self._emit is not None:
            core.announce(self._run_row(settings, machine))
        return core

    def _run_row(self, settings: Settings, machine: Machine) -> EngineRun:
        limits, clock = settings.limits, self._world.clock
        return EngineRun(
            engine=settings.engine,
            run_id=self.run_id,
            pool=settings.pool,
            started=clock.base.unix(clock.now()),
            model=machine.name,
            synthetic=True,
            page_bytes=machine.page_bytes,
            pages=limits.pool_bytes // machine.page_bytes,
            slots=limits.slots,
            step_tokens=limits.step_tokens,
            bucket_s=settings.bucket_s,
            cost_version=machine.costs.version,
            costs=machine.costs.dump(),
            config=json.dumps(settings.public()),
        )


def adapter_key(name: str) -> str:
    """Identity of a simulated adapter, in place of a content hash."""
    return f"simulated:{name}"


def make_pages(machine: Machine, settings: Settings) -> PagePool:
    limits, page = settings.limits, machine.page_bytes
    return PagePool.of_bytes(
        limits.pool_bytes, page, limits.kv_floor_bytes, limits.adapter_floor_bytes
    )


def _nobody(batch: Batch) -> None:
    """Nobody reads the rows."""
