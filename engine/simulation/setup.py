"""What is simulated, as values: pools, tenants, adapters, the machine under them, faults.

Owns how a workload and a hardware preset become one setup; draws no arrival and runs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache

from engine.config import POLICIES, Limits, PolicyKnobs, PoolSpec, Settings, Tenant
from engine.config_pools import pool_of
from engine.costs import CostModel, StepFeatures
from engine.errors import WorkloadError
from engine.simulation.hardware import PRESETS, Preset
from engine.simulation.workload import AdapterSpec, Change, Fault, Retry, Workload

START_UNIX_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC: a simulation's own, so that it repeats

# A small model on two CPU cores, as one was measured; scaled to the workload's reference step.
_SHAPE = CostModel(0.0554, 0.00099, 0.00506, 3.99e-7, 0.0012)
_PAGE_BYTES_A_TOKEN = 23_040  # 30 layers x 2 x 3 heads x 64 x 2 B
_RANK_BYTES = 610_560  # one rank on all of its projections: 30 x 10,176 values of 2 B
_ATTENTION_RANK_BYTES = 230_400  # on those of attention: 30 x 3,840
_LINK_BYTES_PER_S = 5e8

MOST_PAGES = 1 << 25  # each is kept account of: a few gigabytes of this machine's memory


@dataclass(frozen=True, slots=True)
class Machine:
    """What one replica runs on. `page_bytes` is a KV page; `rank_bytes` a rank of an adapter on
    all projections, `attention_rank_bytes` on those of attention (None = not known apart).
    `preset`: the hardware it was made from, which knows how an adapter's blocks lie in pages."""

    name: str
    costs: CostModel
    page_bytes: int
    link_bytes_per_s: float
    rank_bytes: int
    preset: Preset | None = None
    attention_rank_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """One simulation's fixed part. `bucket_s` is the ledger's; times are the workload's clock."""

    name: str
    machine: Machine
    pools: tuple[PoolSpec, ...]
    tenants: tuple[Tenant, ...]
    adapters: tuple[AdapterSpec, ...] = ()
    policy: str = "vtc"
    seed: int = 0
    bucket_s: float = 60.0
    knobs: PolicyKnobs = field(default_factory=PolicyKnobs)
    faults: tuple[Fault, ...] = ()
    retries: tuple[Retry, ...] = ()
    changes: tuple[Change, ...] = ()
    start_unix_s: float = START_UNIX_S

    def settings(self, pool: PoolSpec) -> Settings:
        """What the pool's workers and its front are started with; rows leave at bucket ends."""
        return Settings(
            engine="simulation",
            pool=pool.name,
            model=self.machine.name,
            policy=self.policy,
            bucket_s=self.bucket_s,
            provisional_s=math.inf,
            limits=pool.limits,
            knobs=self.knobs,
            tenants=tuple(t for t in self.tenants if self.pool_of(t).name == pool.name),
        )

    def pool_of(self, tenant: Tenant) -> PoolSpec:
        """Which pool serves the tenant, as `serve` places it."""
        return pool_of(self.pools, tenant)


def reference_machine(workload: Workload) -> Machine:
    """The machine the workload was sized for: a busy step takes its `reference_step_s`."""
    limits = workload.limits
    chunk = limits.step_tokens
    # The busy step of `Workload.pace`: a full chunk deep in a context, six rows, three adapters.
    busy_s = _SHAPE.predict(StepFeatures(chunk, 6, chunk * 600 + 6 * 300, 3))
    costs = replace(_SHAPE.scaled(workload.reference_step_s / busy_s), version=1)
    page_bytes = _PAGE_BYTES_A_TOKEN * limits.page_tokens
    return Machine(
        "reference",
        costs,
        page_bytes,
        _LINK_BYTES_PER_S,
        _RANK_BYTES,
        attention_rank_bytes=_ATTENTION_RANK_BYTES,
    )


def machine_of(preset: Preset) -> Machine:
    """A hardware preset as a machine."""
    return Machine(
        preset.name,
        preset.costs,
        preset.page_bytes,
        preset.link_bytes_per_s,
        preset.adapter_bytes(1),
        preset,
        preset.adapter_bytes(1, "attention"),
    )


def make_setup(
    workload: Workload,
    *,
    machine: Machine | None = None,
    limits: Limits | None = None,
    policy: str | None = None,
    seed: int | None = None,
    prefixes: bool = False,
) -> Setup:
    """`machine` and `limits` of a preset replace the workload's own sizes. `prefixes`: arrivals
    say which prompts begin alike; without that no prefix can be cached. Raises WorkloadError."""
    policy = policy or workload.policy
    if policy not in POLICIES:
        raise WorkloadError(f"policy {policy!r} is not known: use one of {', '.join(POLICIES)}")
    if machine is None and workload.hardware is not None:
        machine = machine_of(PRESETS[workload.hardware])
    pools = workload.pools or (PoolSpec("main", 1, workload.limits),)
    if limits is not None:
        pools = tuple(replace(p, limits=limits) for p in pools)
    if not prefixes:
        pools = tuple(replace(p, limits=replace(p.limits, prefix_cache=False)) for p in pools)
    setup = Setup(
        name=workload.name,
        machine=machine or reference_machine(workload),
        pools=pools,
        tenants=workload.tenants,
        adapters=workload.adapters,
        policy=policy,
        seed=workload.seed if seed is None else seed,
        bucket_s=workload.bucket_s,
        knobs=workload.knobs,
        faults=workload.faults,
        retries=workload.retries,
        changes=workload.changes,
        start_unix_s=(START_UNIX_S if workload.starts_unix_s is None else workload.starts_unix_s),
    )
    check(setup)
    return setup


def check(setup: Setup) -> None:
    """Raises WorkloadError for what no pool could hold or what nothing is named."""
    names = [p.name for p in setup.pools]
    page = setup.machine.page_bytes
    for pool in setup.pools:
        limits, where = pool.limits, f"pool {pool.name!r}"
        pages = limits.pool_bytes // page
        if pages < 2:
            raise WorkloadError(
                f"{where}: pool_bytes = {limits.pool_bytes} is less than two pages of {page} bytes "
                f"(page_tokens = {limits.page_tokens}) on {setup.machine.name}: give at least "
                f"{16 * page} bytes, or smaller pages"
            )
        if pages * pool.replicas > MOST_PAGES:
            raise WorkloadError(
                f"{where}: pool_bytes = {limits.pool_bytes} is {pages} pages of {page} bytes on "
                f"each of replicas = {pool.replicas}: at most {MOST_PAGES} together are "
                "simulated; lower pool_bytes, or take larger pages"
            )
        kv_floor, adapter_floor = floor_pages(limits, page)
        if kv_floor + adapter_floor > pages:
            raise WorkloadError(
                f"{where}: kv_floor_bytes = {limits.kv_floor_bytes} and adapter_floor_bytes = "
                f"{limits.adapter_floor_bytes} are {kv_floor} and {adapter_floor} whole pages, it "
                f"has {pages}: lower a floor or raise pool_bytes"
            )
        most = pages - max(1, kv_floor)
        for spec in setup.adapters:
            needs = adapter_pages(setup.machine, spec.rank, spec.targets)
            if needs > most:
                raise WorkloadError(
                    f"{where}: adapter {spec.name!r}, rank = {spec.rank}, needs {needs} pages, and "
                    f"adapters may take {most} of its {pages}: raise pool_bytes = "
                    f"{limits.pool_bytes} by {(needs - most) * page} or lower kv_floor_bytes = "
                    f"{limits.kv_floor_bytes}"
                )
    for tenant in setup.tenants:
        if tenant.pool is not None and tenant.pool not in names:
            raise WorkloadError(
                f"tenant {tenant.name!r}: pool = {tenant.pool!r}; expected one of "
                f"{', '.join(map(repr, names))}"
            )
    for fault in setup.faults:
        named = fault.pool or names[0]
        replicas = next((p.replicas for p in setup.pools if p.name == named), 0)
        if fault.replica >= replicas:
            raise WorkloadError(
                f"fault at {fault.at_s:g} s: pool {named!r} has {replicas} replicas, there is "
                f"no replica {fault.replica} (they count from 0)"
            )


def floor_pages(limits: Limits, page_bytes: int) -> tuple[int, int]:
    """(KV's floor, adapters' floor) in whole pages, rounded up as the pool does."""
    return -(-limits.kv_floor_bytes // page_bytes), -(-limits.adapter_floor_bytes // page_bytes)


@cache
def adapter_pages(machine: Machine, rank: int, targets: str = "all") -> int:
    """Pages an adapter of the rank fills, at true rank."""
    if machine.preset is not None:
        return machine.preset.adapter_pages(rank, targets)
    return -(-adapter_bytes(machine, rank, targets) // machine.page_bytes)


def adapter_bytes(machine: Machine, rank: int, targets: str = "all") -> int:
    """Bytes of the adapter itself, without what its pages leave free."""
    per_rank = machine.attention_rank_bytes if targets == "attention" else None
    return rank * (machine.rank_bytes if per_rank is None else per_rank)
