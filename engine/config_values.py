"""The settings of one `serve`, as frozen values: what each key means and may be. Reads no file.

A limit that is absent is "no limit"; 0 means blocked, never unlimited. Every key's meaning and
bounds stand beside its field: `tenantscope config explain` and docs/config.md are made from them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from engine.config_keys import key
from engine.config_pools import LONGEST_S, NO_LIMIT, Limits, PoolSpec, pool_of
from engine.errors import ConfigError

POLICIES = ("vtc", "vtc-predicted", "fcfs", "round-robin", "lcf", "deficit-round-robin")
WINDOWS = ("bucket", "fixed", "sliding")
SHARE_BY = ("none", "adapter", "key")
DTYPES = ("auto", "bfloat16", "float16", "float32")
_NO_TARGET = "no target of that kind"


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets of one tenant; None = no target of that kind."""

    ttft_s: float | None = field(
        default=None,
        metadata=key("time to first token", above=0, at_most=LONGEST_S, absent=_NO_TARGET),
    )
    tpot_s: float | None = field(
        default=None,
        metadata=key("time per output token", above=0, at_most=LONGEST_S, absent=_NO_TARGET),
    )
    max_gap_s: float | None = field(
        default=None,
        metadata=key(
            "longest time between two tokens", above=0, at_most=LONGEST_S, absent=_NO_TARGET
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
        metadata=key(
            "which [[pool]] serves it", absent="that of its tier, else the first", is_name=True
        ),
    )
    prefix_group: str | None = field(
        default=None,
        metadata=key(
            "tenants of one group share cached prefixes", absent="shares with nobody", is_name=True
        ),
    )
    rpm: int | None = field(
        default=None,
        metadata=key("requests a minute; 0 = blocked", at_least=0, absent=NO_LIMIT),
    )
    tpm: int | None = field(
        default=None,
        metadata=key(
            "tokens a minute, prompt + max_tokens, settled to the real count; 0 = blocked",
            at_least=0,
            absent=NO_LIMIT,
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
        metadata=key("requests under way at once; 0 = blocked", at_least=0, absent=NO_LIMIT),
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
            at_most=LONGEST_S,
            absent="the pool's",
        ),
    )
    deadline_s: float | None = field(
        default=None,
        metadata=key(
            "not finished until then a request is timed out",
            above=0,
            at_most=LONGEST_S,
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
class Settings:
    """Everything a `serve` needs to know at start."""

    engine: str = field(default="engine", metadata=key("names this `serve`", is_name=True))
    pool: str = field(
        default="main",
        metadata=key("names the only pool, where there is no [[pool]]", is_name=True),
    )
    model: str = field(
        default="smollm2-135m",
        metadata=key("the base model: a known name, `hf:org/name`, a .gguf file, or a folder"),
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
    hung_s: float = field(
        default=120.0,
        metadata=key(
            "a process that gives no sign of life for so long, or a worker whose step is not over, "
            "is ended and started again (the front: `serve` ends)",
            at_least=5,
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

    def pool_of(self, tenant: Tenant) -> PoolSpec:
        """Which pool serves the tenant: the one it names, else the one of its tier, else the
        first."""
        return pool_of(self.all_pools(), tenant)

    def of_pool(self, name: str) -> Settings:
        """What a worker of the pool is started with: its sizes, its tenants and the adapters that
        they may name (and those that nobody may). Raises ConfigError for an unknown pool."""
        spec = next((p for p in self.all_pools() if p.name == name), None)
        if spec is None:
            known = ", ".join(repr(p.name) for p in self.all_pools())
            raise ConfigError(f"pool {name!r} is not in the settings: there are {known}")
        mine = tuple(t for t in self.tenants if self.pool_of(t).name == name)
        here = {t.name for t in mine}
        elsewhere = {a for t in self.tenants if t.name not in here for a in t.adapters}
        elsewhere -= {a for t in mine for a in t.adapters}
        return replace(
            self,
            pool=name,
            limits=spec.limits,
            pools=(spec,),
            tenants=mine,
            adapters=tuple(a for a in self.adapters if a[0] not in elsewhere),
        )

    def without_keys(self) -> Settings:
        """The same without a digest of any key: for whoever lets nobody in."""
        bare = tuple(replace(t, key_sha256=()) if t.key_sha256 else t for t in self.tenants)
        return replace(self, tenants=bare)

    def with_tp(self, tp: int) -> Settings:
        """The same with every pool's workers cut into so many ranks. Raises ConfigError where a
        pool's cores are not the same for each."""
        pools = tuple(replace(p, tp=tp) for p in self.all_pools())
        for p in pools:
            if len(p.cpus) % (p.replicas * tp):
                raise ConfigError(
                    f"pool {p.name!r}: cpus: {len(p.cpus)} cores are not the same for each of "
                    f"replicas = {p.replicas} and tp = {tp}: name {p.replicas * tp}, or a multiple"
                )
        return replace(self, pools=pools)

    def with_device(self, device: str) -> Settings:
        """The same with every pool's workers on this device."""
        return replace(self, pools=tuple(replace(p, device=device) for p in self.all_pools()))

    def cut_as(self, other: Settings) -> Settings:
        """The same with each pool's `tp` as in `other`, and its `device` where none is named: the
        command line may have said them."""
        theirs = {p.name: p for p in other.pools}
        if not theirs:
            return self
        pools = []
        for p in self.all_pools():
            was = theirs.get(p.name, p)
            device = was.device if p.device == "cpu" else p.device
            pools.append(replace(p, tp=was.tp, device=device))
        return replace(self, pools=tuple(pools))

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
        return json.dumps(self, default=_fields)  # ten thousand tenants, so no copy of each first


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass's own, for `json` to go on with."""
    return {f.name: getattr(value, f.name) for f in fields(value)}
