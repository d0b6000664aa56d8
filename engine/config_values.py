"""The settings of one `serve`, as frozen values: what each key means and may be. Reads no file.

A limit that is absent is "no limit"; 0 means blocked, never unlimited. Every key's meaning and
bounds stand beside its field: `tenantscope config explain` and docs/config.md are made from them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engine.config_keys import key
from engine.errors import ConfigError

POLICIES = ("vtc", "vtc-predicted", "fcfs", "round-robin", "lcf", "deficit-round-robin")
WINDOWS = ("bucket", "fixed", "sliding")
SHARE_BY = ("none", "adapter", "key")
DTYPES = ("auto", "bfloat16", "float32")
_LONGEST_S = 86_400.0 * 365
_NO_LIMIT = "no limit"
_NO_TARGET = "no target of that kind"


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets of one tenant; None = no target of that kind."""

    ttft_s: float | None = field(
        default=None,
        metadata=key("time to first token", above=0, at_most=_LONGEST_S, absent=_NO_TARGET),
    )
    tpot_s: float | None = field(
        default=None,
        metadata=key("time per output token", above=0, at_most=_LONGEST_S, absent=_NO_TARGET),
    )
    max_gap_s: float | None = field(
        default=None,
        metadata=key(
            "longest time between two tokens", above=0, at_most=_LONGEST_S, absent=_NO_TARGET
        ),
    )


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant: its share, its limits, what it was promised, which adapters it may name.

    `key_sha256` are hex digests of its API keys; the keys themselves are never kept.
    """

    name: str = field(metadata=key("the tenant's name, printable", is_name=True))
    weight: float = field(
        default=1.0,
        metadata=key("its share against the others'", at_least=0.001, at_most=1_000_000),
    )
    tier: int = field(
        default=0,
        metadata=key(
            "lower tiers go first, whatever the policy; equal ones share by it",
            at_least=0,
            at_most=1_000,
        ),
    )
    share_by: str = field(
        default="none",
        metadata=key(
            "inside the tenant: first come, or a fair share each adapter or key", choices=SHARE_BY
        ),
    )
    pool: str | None = field(
        default=None,
        metadata=key("which [[pool]] serves it", absent="the first", is_name=True),
    )
    prefix_group: str | None = field(
        default=None,
        metadata=key(
            "tenants of one group share cached prefixes", absent="shares with nobody", is_name=True
        ),
    )
    rpm: int | None = field(
        default=None,
        metadata=key("requests a minute; 0 = blocked", at_least=0, absent=_NO_LIMIT),
    )
    tpm: int | None = field(
        default=None,
        metadata=key(
            "tokens a minute, prompt + max_tokens, settled to the real count; 0 = blocked",
            at_least=0,
            absent=_NO_LIMIT,
        ),
    )
    rpm_burst: int | None = field(
        default=None,
        metadata=key(
            "requests the bucket holds; needs rpm", at_least=1, absent="one minute's worth"
        ),
    )
    tpm_burst: int | None = field(
        default=None,
        metadata=key("tokens the bucket holds; needs tpm", at_least=1, absent="one minute's worth"),
    )
    window: str = field(
        default="bucket",
        metadata=key(
            "how rpm and tpm are counted: a token bucket, minutes aligned to the engine's clock, "
            "or a log of the last 60 s",
            choices=WINDOWS,
        ),
    )
    concurrency: int | None = field(
        default=None,
        metadata=key("requests under way at once; 0 = blocked", at_least=0, absent=_NO_LIMIT),
    )
    queue: int | None = field(
        default=None,
        metadata=key(
            "requests in the pool or waiting for it; 0 = blocked",
            at_least=0,
            absent="the pool's queue_per_tenant",
        ),
    )
    queue_timeout_s: float | None = field(
        default=None,
        metadata=key(
            "without a first step until then a request is timed out",
            above=0,
            at_most=_LONGEST_S,
            absent="the pool's",
        ),
    )
    deadline_s: float | None = field(
        default=None,
        metadata=key(
            "not finished until then a request is timed out",
            above=0,
            at_most=_LONGEST_S,
            absent="the pool's",
        ),
    )
    slo: Slo = field(
        default_factory=Slo, metadata=key("what it was promised", table="[tenant.slo]")
    )
    adapters: tuple[str, ...] = field(
        default=(), metadata=key("names of the [[adapter]] tables it may use")
    )
    key_sha256: tuple[str, ...] = field(
        default=(),
        metadata=key(
            "digests of its API keys, as 'tenantscope keys new' prints them; "
            '"DIGEST until 2027-01-31T00:00:00Z" for one on its way out'
        ),
    )


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
            at_most=_LONGEST_S,
            absent=_NO_LIMIT,
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
            at_most=_LONGEST_S,
            absent=_NO_LIMIT,
        ),
    )
    deadline_s: float | None = field(
        default=None,
        metadata=key(
            "a tenant's deadline_s where it sets none",
            above=0,
            at_most=_LONGEST_S,
            absent=_NO_LIMIT,
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
class PolicyKnobs:
    """What some policies want to know beside weights and tiers."""

    quantum_tokens: int = field(
        default=512,
        metadata=key("deficit-round-robin: service a round, times weight", at_least=1),
    )
    first_prediction_tokens: int = field(
        default=256,
        metadata=key("vtc-predicted: before a tenant has finished a request", at_least=1),
    )


@dataclass(frozen=True, slots=True)
class Guard:
    """Guard rails: a cap on whoever holds the pool in an incident, for a while."""

    mode: str = field(
        default="off",
        metadata=key(
            "off; dry-run: write down what it would cap; act: cap it",
            choices=("off", "dry-run", "act"),
        ),
    )
    rpm: int | None = field(
        default=None,
        metadata=key("requests a minute under the cap", at_least=1, absent="not capped"),
    )
    tpm: int | None = field(
        default=None, metadata=key("tokens a minute under the cap", at_least=1, absent="not capped")
    )
    concurrency: int | None = field(
        default=None,
        metadata=key("requests under way at once under the cap", at_least=1, absent="not capped"),
    )
    ttl_s: float = field(
        default=900.0,
        metadata=key("how long a cap holds; then it reverts", above=0, at_most=86_400),
    )
    least_share: float = field(
        default=0.6,
        metadata=key(
            "of the victims' excess wait the holder must be charged with so much",
            at_least=0,
            at_most=1,
        ),
    )
    spare: tuple[str, ...] = field(default=(), metadata=key("tenants that are never capped"))


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """One [[adapter]] table, as it is written."""

    name: str = field(metadata=key("what requests call it", is_name=True))
    path: str = field(metadata=key("its folder, from the settings file's own"))


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool of one or several replicas that share its tenants; each has these limits."""

    name: str = field(metadata=key("the pool's name", is_name=True))
    replicas: int = field(default=1, metadata=key("workers", at_least=1, at_most=1_000))
    limits: Limits = field(
        default_factory=Limits,
        metadata=key("its own sizes", absent="as in [limits]", table="[pool.limits]"),
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a `serve` needs to know at start."""

    engine: str = field(default="engine", metadata=key("names this `serve`", is_name=True))
    pool: str = field(
        default="main",
        metadata=key("names the only pool, where there is no [[pool]]", is_name=True),
    )
    model: str = field(
        default="smollm2-135m", metadata=key("the base model: a known name, or a folder")
    )
    dtype: str = field(default="auto", metadata=key("of weights and KV", choices=DTYPES))
    policy: str = field(
        default="vtc", metadata=key("who goes first; it can be switched live", choices=POLICIES)
    )
    bucket_s: float = field(
        default=60.0,
        metadata=key("telemetry's interval, seconds", at_least=0.01, at_most=86_400),
    )
    provisional_s: float = field(
        default=10.0,
        metadata=key(
            "how often the open interval goes out, so that a crash loses no more",
            at_least=0.01,
            at_most=86_400,
        ),
    )
    limits: Limits = field(
        default_factory=Limits, metadata=key("sizes of a pool's worker", table="[limits]")
    )
    knobs: PolicyKnobs = field(
        default_factory=PolicyKnobs, metadata=key("knobs of some policies", table="[policies]")
    )
    guard: Guard = field(
        default_factory=Guard,
        metadata=key("a cap on who holds the pool in an incident", table="[guard]"),
    )
    pools: tuple[PoolSpec, ...] = field(
        default=(),
        metadata=key("pools", absent="one, with [limits]", table="[[pool]]"),
    )
    tenants: tuple[Tenant, ...] = field(
        default=(), metadata=key("who may ask and what they get", table="[[tenant]]")
    )
    adapters: tuple[tuple[str, str], ...] = field(  # (name, folder)
        default=(), metadata=key("LoRA adapters", table="[[adapter]]")
    )

    def tenant(self, name: str) -> Tenant | None:
        return next((t for t in self.tenants if t.name == name), None)

    def all_pools(self) -> tuple[PoolSpec, ...]:
        """The pools, one at least; the first serves the tenants that name none."""
        return self.pools or (PoolSpec(self.pool, 1, self.limits),)

    def one_pool(self) -> Settings:
        """The same with the only pool's name and limits as the engine's own. Raises ConfigError
        where there are several workers: one `serve` runs one."""
        pools = self.all_pools()
        if len(pools) > 1 or pools[0].replicas > 1:
            named = ", ".join(f"{p.name!r} x {p.replicas}" for p in pools)
            raise ConfigError(
                f"the settings name {sum(p.replicas for p in pools)} workers ({named}), and "
                "'tenantscope serve' runs one pool with one worker: give each its own file and "
                "'serve'; 'tenantscope simulate' runs several together"
            )
        return replace(self, pool=pools[0].name, limits=pools[0].limits, pools=())

    def with_policy(self, policy: str) -> Settings:
        return replace(self, policy=policy)

    def public(self) -> dict[str, Any]:
        """What telemetry may carry: no keys, no key hashes, no paths."""
        return {
            "policy": self.policy,
            "limits": asdict(self.limits),
            "knobs": asdict(self.knobs),
            "pools": [asdict(p) for p in self.pools],
            "tenants": [
                {k: v for k, v in asdict(t).items() if k != "key_sha256"} for t in self.tenants
            ],
        }

    def dump(self) -> str:
        """As JSON, for handing to a child process; `engine.config.load_settings` reads it back."""
        return json.dumps(asdict(self))
