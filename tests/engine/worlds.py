"""A simulated pool for tests: the real core in virtual time, and what it told the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.chronicle import KnownAdapter
from engine.clock import TurnedClock
from engine.config import Limits, Settings, Slo, Tenant
from engine.core import EngineCore
from engine.costs import CostModel
from engine.memory.pool import PagePool
from engine.scheduling.request import Ask
from engine.simulation.world import CostRunner, VirtualLink, World, simulate
from telemetry.ledger.views import Identity
from telemetry.records import Batch, EngineMinute, InterferenceMinute, RequestRecord, TenantMinute

COSTS = CostModel(0.010, 0.0002, 0.0005, 1e-7, 0.001)
PAGE_BYTES = 1 << 16


@dataclass
class Pool:
    core: EngineCore
    world: World
    clock: TurnedClock
    batches: list[Batch] = field(default_factory=list)

    def ask(
        self,
        at: float,
        tenant: str,
        prompt: int,
        out: int,
        adapter: str | None = None,
        *,
        link_s: float = 0.0,
        **kw,
    ):
        """A request that arrives at `at` and reaches the pool `link_s` later."""
        name = f"{tenant}-{len(self._asked)}"
        self._asked.append(name)
        key = None if adapter is None else "key-" + adapter
        ask = Ask(name, tenant, tuple(range(prompt)), out, at, at, key, adapter, **kw)
        self.world.at(at + link_s, lambda: self.core.submit(ask))
        return name

    def run(self, until: float = float("inf"), ticks: float | None = None, jumping: bool = True):
        if ticks:
            self.world.every(ticks, until if until < 1e6 else 200.0, self.core.tick)
        ran = simulate(self.core, self.world, until, jumping=jumping)
        self.batches += self.core.ledger.collect(self.clock.now())
        return ran

    _asked: list[str] = field(default_factory=list)

    def rows(self, kind):
        """Final rows of one kind: of each key the last delivery."""
        last = {}
        for batch in self.batches:
            for row in batch.minutes:
                if isinstance(row, kind):
                    last[(row.bucket_start, getattr(row, "tenant", ""))] = row
        return list(last.values())

    def tenants(self) -> list[TenantMinute]:
        return self.rows(TenantMinute)

    def engine(self) -> list[EngineMinute]:
        return self.rows(EngineMinute)

    def charges(self) -> list[InterferenceMinute]:
        """Rows of the last delivery of each bucket."""
        by_bucket = {}
        for batch in self.batches:
            if batch.minutes:
                by_bucket[batch.minutes[0].bucket_start] = [
                    r for r in batch.minutes if isinstance(r, InterferenceMinute)
                ]
        return [r for rows in by_bucket.values() for r in rows]

    def requests(self) -> list[RequestRecord]:
        return [r for b in self.batches for r in b.logs if isinstance(r, RequestRecord)]

    def logs(self, kind):
        return [r for b in self.batches for r in b.logs if isinstance(r, kind)]

    def total(self, column: str, tenant: str | None = None) -> float:
        return sum(
            getattr(r, column) or 0 for r in self.tenants() if tenant is None or r.tenant == tenant
        )


def make_pool(
    tenants=("a", "b"),
    *,
    policy: str = "vtc",
    pages: int = 256,
    bucket_s: float = 10.0,
    adapters: dict[str, int] | None = None,
    slowdown=None,
    slo: Slo | None = None,
    costs: CostModel = COSTS,
    link_bytes_per_s: float = 1e7,
    weights: dict[str, float] | None = None,
    freeze: tuple[float, float] | None = None,
    runner=None,
    share_every_s: float | None = None,
    **limits,
) -> Pool:
    clock = TurnedClock(wall_s=1_800_000_003.0)
    world = World(clock)
    weights = weights or {}
    settings = Settings(
        policy=policy,
        bucket_s=bucket_s,
        provisional_s=2.0,
        limits=Limits(**{"slots": 8, "step_tokens": 64, "page_tokens": 16, **limits}),
        tenants=tuple(
            Tenant(t, weights.get(t, 1.0), slo=slo or Slo()) if isinstance(t, str) else t
            for t in tenants
        ),
    )
    known = tuple(
        KnownAdapter("key-" + name, name, n, n * PAGE_BYTES, 8, True)
        for name, n in (adapters or {}).items()
    )
    slower = {"slowdown": slowdown} if slowdown else {}
    pool = Pool.__new__(Pool)
    batches: list[Batch] = []
    core = EngineCore(
        settings,
        Identity("test", "run", "main"),
        clock,
        runner or CostRunner(world, costs, **slower, freeze=freeze),
        VirtualLink(world, PAGE_BYTES, link_bytes_per_s),
        PagePool(
            pages,
            PAGE_BYTES,
            kv_floor_pages=settings.limits.kv_floor_bytes // PAGE_BYTES,
            adapter_floor_pages=settings.limits.adapter_floor_bytes // PAGE_BYTES,
        ),
        costs,
        known,
        emit=batches.append,
        share_every_s=share_every_s,
    )
    pool.__init__(core, world, clock, batches)
    return pool
