"""A pool as the settings say it: its sizes, its workers, whom it serves. Reads no file.

Each key's meaning and bounds stand beside its field, as everywhere in `engine.config_values`;
`engine.config` hands these on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.config_keys import key

if TYPE_CHECKING:
    from engine.config_values import Tenant

LONGEST_S = 86_400.0 * 365
NO_LIMIT = "no limit"


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the pool's worker."""

    slots: int = field(default=32, metadata=key("sequences running at once", at_least=1))
    step_tokens: int = field(
        default=512,
        metadata=key("tokens of one step, prefill chunks and decode rows together", at_least=1),
    )
    step_s: float | None = field(
        default=None,
        metadata=key(
            "most a step may be expected to take while somebody decodes",
            above=0,
            at_most=LONGEST_S,
            absent=NO_LIMIT,
        ),
    )
    adapters_per_step: int = field(
        default=16, metadata=key("distinct adapters in one step", at_least=1)
    )
    page_tokens: int = field(default=16, metadata=key("tokens of KV a page", at_least=1))
    pool_bytes: int = field(default=1 << 30, metadata=key("the arena: KV and adapters", at_least=1))
    kv_floor_bytes: int = field(
        default=0, metadata=key("of the arena, never taken by adapters", at_least=0)
    )
    adapter_floor_bytes: int = field(
        default=0, metadata=key("of the arena, never taken by KV", at_least=0)
    )
    prefix_cache: bool = field(
        default=True,
        metadata=key("keep the KV of prompts' whole pages for those who repeat them"),
    )
    host_adapters: int = field(
        default=256, metadata=key("adapters kept in host memory", at_least=1)
    )
    host_adapter_bytes: int | None = field(
        default=None,
        metadata=key("bytes of them at most, in whole pages", at_least=1, absent=NO_LIMIT),
    )
    max_context: int = field(
        default=4096, metadata=key("prompt + output of one request", at_least=1)
    )
    prefetch: int = field(
        default=8,
        metadata=key("heads, in policy order, whose adapters are fetched ahead", at_least=0),
    )
    bypass: int = field(
        default=8, metadata=key("times a KV-short head may be passed by", at_least=0)
    )
    preemptions: int = field(
        default=3, metadata=key("times one request may be preempted", at_least=0)
    )
    queue_per_tenant: int = field(
        default=1024,
        metadata=key("requests of one tenant in the pool or waiting for it", at_least=1),
    )
    queue: int = field(
        default=4096,
        metadata=key("requests in the pool or waiting for it, a replica", at_least=1),
    )
    queue_timeout_s: float | None = field(
        default=None,
        metadata=key(
            "a tenant's queue_timeout_s where it sets none",
            above=0,
            at_most=LONGEST_S,
            absent=NO_LIMIT,
        ),
    )
    deadline_s: float | None = field(
        default=None,
        metadata=key(
            "a tenant's deadline_s where it sets none",
            above=0,
            at_most=LONGEST_S,
            absent=NO_LIMIT,
        ),
    )
    concurrency_retry_s: int = field(
        default=2,
        metadata=key(
            "Retry-After of a full concurrency or queue: an estimate, nobody knows when a running "
            "request will end",
            at_least=1,
            at_most=86_400,
        ),
    )


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool of one or several replicas that share its tenants; each has these limits."""

    name: str = field(metadata=key("the pool's name", is_name=True))
    replicas: int = field(default=1, metadata=key("workers", at_least=1, at_most=1_000))
    limits: Limits = field(
        default_factory=Limits,
        metadata=key("its own sizes", absent="as in [limits]", table="[pool.limits]"),
    )
    tiers: tuple[int, ...] = field(
        default=(),
        metadata=key(
            "tenants of these tiers that name no pool are served here",
            at_least=0,
            at_most=1_000,
            absent="of no tier",
        ),
    )
    tp: int = field(
        default=1,
        metadata=key(
            "processes that a worker's model is cut into (tensor parallel); divides its heads, "
            "KV heads and MLP columns",
            at_least=1,
            at_most=64,
        ),
    )
    device: str = field(
        default="cpu",
        metadata=key(
            "what its workers compute on: cpu, or a GPU that torch sees: cuda:1, or a UUID as "
            "'nvidia-smi -L' prints it"
        ),
    )
    cpus: tuple[int, ...] = field(
        default=(),
        metadata=key(
            "cores its workers keep to, split evenly among its replicas and their ranks",
            at_least=0,
            at_most=4_095,
            absent="all there are",
        ),
    )


def pool_of(pools: Sequence[PoolSpec], tenant: Tenant) -> PoolSpec:
    """Which of the pools serves the tenant: the one it names, else the one of its tier, else the
    first."""
    if tenant.pool is not None:
        return next((p for p in pools if p.name == tenant.pool), pools[0])
    return next((p for p in pools if tenant.tier in p.tiers), pools[0])
