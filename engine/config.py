"""The settings of one `serve`: frozen values, read from one TOML file. Decides nothing.

A limit that is absent is "no limit"; 0 means blocked, never unlimited.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from telemetry.settings import Reader, SettingsError, read_toml

POLICIES = ("vtc", "fcfs")
DTYPES = ("auto", "bfloat16", "float32")
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets of one tenant; None = no target of that kind."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    max_gap_s: float | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant: its share, its limits, what it was promised, which adapters it may name.

    `key_sha256` are hex digests of its API keys; the keys themselves are never kept.
    """

    name: str
    weight: float = 1.0
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    slo: Slo = field(default_factory=Slo)
    adapters: tuple[str, ...] = ()
    key_sha256: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of the pool's worker."""

    slots: int = 32  # sequences running at once
    step_tokens: int = 512  # tokens of one step, prefill chunks and decode rows together
    adapters_per_step: int = 16  # distinct adapters in one step
    page_tokens: int = 16  # tokens of KV a page
    pool_bytes: int = 1 << 30  # the arena: KV and adapters
    host_adapters: int = 256  # adapters kept in host memory
    max_context: int = 4096  # prompt + output of one request
    prefetch: int = 8  # heads, in policy order, whose adapters are fetched ahead
    bypass: int = 8  # times a KV-short head may be passed by
    preemptions: int = 3  # times one request may be preempted
    queue_per_tenant: int = 1024  # requests in the pool or waiting for it
    queue: int = 4096


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a `serve` needs to know at start."""

    engine: str = "engine"
    pool: str = "main"
    model: str = "smollm2-135m"
    dtype: str = "auto"
    policy: str = "vtc"
    bucket_s: float = 60.0
    provisional_s: float = 10.0
    limits: Limits = field(default_factory=Limits)
    tenants: tuple[Tenant, ...] = ()
    adapters: tuple[tuple[str, str], ...] = ()  # (name, folder)

    def tenant(self, name: str) -> Tenant | None:
        return next((t for t in self.tenants if t.name == name), None)

    def with_policy(self, policy: str) -> Settings:
        return replace(self, policy=policy)

    def public(self) -> dict[str, Any]:
        """What telemetry may carry: no keys, no key hashes, no paths."""
        return {
            "policy": self.policy,
            "limits": asdict(self.limits),
            "tenants": [
                {k: v for k, v in asdict(t).items() if k != "key_sha256"} for t in self.tenants
            ],
        }

    def dump(self) -> str:
        """As JSON, for handing to a child process; `load_settings` reads it back."""
        return json.dumps(asdict(self))


def load_settings(text: str) -> Settings:
    """The inverse of `Settings.dump`."""
    raw = json.loads(text)
    tenants = tuple(
        Tenant(
            **{
                **t,
                "slo": Slo(**t["slo"]),
                "adapters": tuple(t["adapters"]),
                "key_sha256": tuple(t["key_sha256"]),
            }
        )
        for t in raw.pop("tenants")
    )
    adapters = tuple((n, p) for n, p in raw.pop("adapters"))
    limits = Limits(**raw.pop("limits"))
    return Settings(**raw, limits=limits, tenants=tenants, adapters=adapters)


def read_settings(path: Path) -> Settings:
    """Read and check a settings file. Raises ConfigError naming file, key and value."""
    try:
        return _settings(Reader(str(path), read_toml(path)), path.parent)
    except SettingsError as e:
        raise ConfigError(str(e)) from None


def read_slo(r: Reader) -> Slo:
    slo = Slo(
        r.number("ttft_s", None, above=0),
        r.number("tpot_s", None, above=0),
        r.number("max_gap_s", None, above=0),
    )
    r.done()
    return slo


def read_name(r: Reader, key: str = "name") -> str:
    """A name is data: any printable text up to 200 characters."""
    name: str = r.text(key)
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise r.fail(key, f"expected up to {LONGEST_NAME} printable characters")
    return name


def read_tenant(r: Reader) -> Tenant:
    tenant = Tenant(
        name=read_name(r),
        weight=r.number("weight", 1.0, above=0),
        rpm=r.integer("rpm", None, at_least=0),
        tpm=r.integer("tpm", None, at_least=0),
        concurrency=r.integer("concurrency", None, at_least=0),
        slo=read_slo(r.table("slo")),
        adapters=r.texts("adapters"),
        key_sha256=r.texts("key_sha256"),
    )
    for digest in tenant.key_sha256:
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise r.fail("key_sha256", "expected 64 lower-case hex digits each")
    r.done()
    return tenant


def read_limits(r: Reader) -> Limits:
    names = {f: getattr(Limits(), f) for f in Limits.__slots__}
    zero_allowed = {"bypass", "preemptions", "prefetch"}
    limits = Limits(
        **{n: r.integer(n, d, at_least=0 if n in zero_allowed else 1) for n, d in names.items()}
    )
    r.done()
    return limits


def _settings(r: Reader, folder: Path) -> Settings:
    tenants = tuple(read_tenant(t) for t in r.tables("tenant"))
    adapters: list[tuple[str, str]] = []
    for a in r.tables("adapter"):
        adapters.append((read_name(a), str((folder / a.text("path")).resolve())))
        a.done()
    settings = Settings(
        engine=r.text("engine", "engine"),
        pool=r.text("pool", "main"),
        model=r.text("model", "smollm2-135m"),
        dtype=r.text("dtype", "auto", choices=DTYPES),
        policy=r.text("policy", "vtc", choices=POLICIES),
        bucket_s=r.number("bucket_s", 60.0, above=0),
        provisional_s=r.number("provisional_s", 10.0, above=0),
        limits=read_limits(r.table("limits")),
        tenants=tenants,
        adapters=tuple(adapters),
    )
    r.done()
    _unique(r, "tenant", [t.name for t in tenants])
    _unique(r, "adapter", [n for n, _ in adapters])
    known = {n for n, _ in adapters}
    for t in tenants:
        for name in t.adapters:
            if name not in known:
                raise SettingsError(
                    f"{r.where}: tenant {t.name!r} lists adapter {name!r}, "
                    "which no [[adapter]] names"
                )
    return settings


def _unique(r: Reader, what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{r.where}: two [[{what}]] tables are named {name!r}")
