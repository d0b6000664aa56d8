"""Reads `workload.toml` into a `Workload`. Owns the file's form and its errors; draws nothing.

Every error names file, table, key and value, and says what is allowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.config import (
    POLICIES,
    Limits,
    PolicyKnobs,
    PoolSpec,
    Tenant,
    read_limits,
    read_name,
    read_pools,
    read_tenant,
)
from engine.config_keys import read_keys
from engine.errors import WorkloadError
from engine.simulation.hardware import PRESETS
from engine.simulation.roofline import TARGETS
from engine.simulation.workload import (
    ADAPTERS_BY,
    FAULTS,
    INCIDENTS,
    AdapterSpec,
    Fault,
    Incident,
    Traffic,
    Workload,
)
from engine.simulation.workload_beside import read_beside, read_change, read_retry, read_start
from engine.simulation.workload_values import read_arrivals, read_lengths
from telemetry.settings import Reader, SettingsError, read_toml

MOST_TENANTS = MOST_ADAPTERS = 1_000_000
FOREVER = float("inf")
LONGEST_S = 366 * 86_400.0  # of the workload's own clock
LARGEST_ZIPF = 100.0  # the first gets everything long before
LONGEST_BUCKET_S = 86_400.0
SHORTEST_BUCKET_S = 0.01
LARGEST_FACTOR = 1_000.0  # slower than that is frozen


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Names made in bulk, most popular first; a stream says `prefix` where it means them all."""

    prefix: str
    names: tuple[str, ...]
    zipf: float


def read(path: Path) -> Workload:
    """Read and check. Raises WorkloadError."""
    try:
        raw = read_toml(path)
        return _workload(Reader(str(path), raw), raw, path.parent)
    except SettingsError as e:
        raise WorkloadError(str(e)) from None


def _workload(r: Reader, raw: Mapping[str, Any], folder: Path) -> Workload:
    many_adapters, adapter_crowd = _adapters_in_bulk(r.table("adapters"), r.has("adapters"))
    adapters = (*(_adapter(a) for a in r.tables("adapter")), *many_adapters)
    many_tenants, tenant_crowd = _tenants_in_bulk(r.table("tenants"), raw.get("tenants"))
    own = read_beside(r, raw, folder)
    tenants = (*(read_tenant(t) for t in r.tables("tenant")), *many_tenants)
    if own is not None:
        tenants = own.tenants
    _unique(r, "tenant", [t.name for t in tenants])
    _unique(r, "adapter", [a.name for a in adapters])
    names = _Names(
        frozenset(t.name for t in tenants),
        frozenset(a.name for a in adapters),
        tenant_crowd,
        adapter_crowd,
    )
    streams = _Streams(names, folder)
    for t, table in zip(r.tables("traffic"), raw.get("traffic", ()), strict=True):
        streams.traffic(t, table)
    for t, table in zip(r.tables("incident"), raw.get("incident", ()), strict=True):
        streams.incident(t, table)
    _unique(r, "traffic", [t.name for t in streams.made])
    hardware = r.text("hardware", None, choices=PRESETS)
    # What the file's limits leave out is the preset's, where one is named.
    preset = PRESETS[hardware].limits if hardware is not None else Limits()
    limits = own.limits if own is not None else read_limits(r.table("limits"), preset)
    pools = own.all_pools() if own is not None else read_pools(r, limits)
    for tenant in tenants:
        for name in tenant.adapters:
            if name not in names.adapters:
                raise SettingsError(
                    f"{r.where}: tenant {tenant.name!r} lists adapter {name!r}, "
                    "which no [[adapter]] names"
                )
        if tenant.pool is not None and tenant.pool not in {p.name for p in pools}:
            raise SettingsError(
                f"{r.where}: tenant {tenant.name!r}: pool = {tenant.pool!r}: "
                "no [[pool]] is named so"
            )
    end_s = max((t.end_s for t in streams.made), default=0.0)
    if not streams.made:
        raise SettingsError(f"{r.where}: no [[traffic]] and no [[incident]]: nothing would arrive")
    begins_s = min((i.at_s for i in streams.incidents), default=end_s)
    calm_s = r.number("calm_s", begins_s, above=0, at_most=LONGEST_S)
    workload = Workload(
        name=read_name(r),
        title=read_name(r, "title", read_name(r)),
        seed=r.integer("seed", 0, at_least=0),
        calm_s=calm_s,
        incident_s=r.number("incident_s", max(0.0, end_s - calm_s), above=0, at_most=LONGEST_S),
        suspect=_suspect(r, names, streams.incidents),
        bucket_s=own.bucket_s if own is not None else _bucket_s(r),
        reference_step_s=r.number("reference_step_s", 0.2, at_least=1e-6, at_most=3_600),
        limits=limits,
        tenants=tenants,
        adapters=adapters,
        traffic=tuple(streams.made),
        pools=pools,
        policy=own.policy if own is not None else r.text("policy", "vtc", choices=POLICIES),
        knobs=own.knobs if own is not None else read_keys(r.table("policies"), PolicyKnobs),
        hardware=hardware,
        incidents=tuple(streams.incidents),
        faults=tuple(_fault(f, pools) for f in r.tables("fault")),
        retries=tuple(read_retry(t, names.tenants) for t in r.tables("retry")),
        changes=tuple(
            read_change(t, table, tenants)
            for t, table in zip(r.tables("change"), raw.get("change", ()), strict=True)
        ),
        starts_unix_s=read_start(r),
    )
    _unique(r, "retry", [t.tenant for t in workload.retries])
    r.done()
    return workload


def _bucket_s(r: Reader) -> float:
    length: float = r.number("bucket_s", 60.0, at_least=SHORTEST_BUCKET_S, at_most=LONGEST_BUCKET_S)
    return length


def _suspect(r: Reader, names: _Names, incidents: list[Incident]) -> str | None:
    default = incidents[0].tenant if incidents else None
    suspect: str | None = r.text("suspect", default)
    if suspect is not None and suspect not in names.tenants:
        raise r.fail("suspect", "no [[tenant]] is named so")
    return suspect


@dataclass(frozen=True, slots=True)
class _Names:
    """What a stream may name."""

    tenants: frozenset[str]
    adapters: frozenset[str]
    tenant_crowd: _Crowd | None
    adapter_crowd: _Crowd | None

    def tenant(self, r: Reader) -> str:
        name: str = r.text("tenant")
        if name not in self.tenants:
            raise r.fail("tenant", "no [[tenant]] is named so")
        return name

    def whose(self, r: Reader) -> tuple[tuple[str, ...], float]:
        """`tenant` = one, or `tenants` = the prefix of those made in bulk."""
        if r.has("tenant") == r.has("tenants"):
            raise SettingsError(f"{r.where}: expected either tenant or tenants")
        if r.has("tenant"):
            return (self.tenant(r),), 0.0
        return _crowd(r, "tenants", self.tenant_crowd)

    def with_adapters(self, r: Reader, raw: object) -> tuple[tuple[str, ...], float]:
        """`adapters` = a list of names, or the prefix of those made in bulk."""
        if isinstance(raw, str):
            return _crowd(r, "adapters", self.adapter_crowd)
        named = r.texts("adapters")
        for name in named:
            if name not in self.adapters:
                raise r.fail("adapters", f"no [[adapter]] is named {name!r}")
        return named, r.number("adapters_zipf", 0.0, at_least=0, at_most=LARGEST_ZIPF)


def _crowd(r: Reader, key: str, crowd: _Crowd | None) -> tuple[tuple[str, ...], float]:
    prefix = r.text(key)
    if crowd is None:
        raise r.fail(key, f"no [{key}] table makes them in bulk; one is named by {key[:-1]} = ..."
                     if key == "tenants" else f"no [{key}] table makes them in bulk; a list names "
                     "those of [[adapter]]")  # fmt: skip
    if prefix != crowd.prefix:
        raise r.fail(key, f"expected {crowd.prefix!r}, the prefix of [{key}]: it means all of them")
    return crowd.names, r.number(f"{key}_zipf", crowd.zipf, at_least=0, at_most=LARGEST_ZIPF)


class _Streams:
    """Gathers streams from [[traffic]] and [[incident]]; gives each without a name one."""

    def __init__(self, names: _Names, folder: Path) -> None:
        self._names = names
        self._folder = folder
        self._seen: Counter[str] = Counter()
        self.made: list[Traffic] = []
        self.incidents: list[Incident] = []

    def traffic(self, r: Reader, raw: Mapping[str, Any]) -> None:
        tenants, tenant_zipf = self._names.whose(r)
        start_s = r.number("start_s", 0.0, at_least=0, at_most=LONGEST_S)
        end_s = r.number("end_s", above=0, at_most=LONGEST_S)
        if end_s <= start_s:
            raise r.fail("end_s", f"expected more than start_s = {start_s:g}")
        kind = raw["tenant"] if "tenant" in raw else f"{raw['tenants']}*"
        self._add(r, raw, kind, tenants, tenant_zipf, start_s, end_s, "poisson")

    def incident(self, r: Reader, raw: Mapping[str, Any]) -> None:
        kind = r.text("kind", choices=INCIDENTS)
        tenant = self._names.tenant(r)
        at_s = r.number("at_s", at_least=0, at_most=LONGEST_S)
        end_s = at_s + r.number("duration_s", above=0, at_most=LONGEST_S)
        self.incidents.append(Incident(kind, tenant, at_s, end_s))
        self._add(r, raw, f"{kind} of {tenant}", (tenant,), 0.0, at_s, end_s, "even")

    def _add(
        self,
        r: Reader,
        raw: Mapping[str, Any],
        kind: str,
        tenants: tuple[str, ...],
        tenant_zipf: float,
        start_s: float,
        end_s: float,
        spacing: str,
    ) -> None:
        adapters, adapter_zipf = self._names.with_adapters(r, raw.get("adapters"))
        self._seen[kind] += 1
        self.made.append(
            Traffic(
                # Not the place in the file: another stream added above must change no draws here.
                name=read_name(r, "name", f"{kind} {self._seen[kind]}"),
                tenants=tenants,
                adapters=adapters,
                start_s=start_s,
                end_s=end_s,
                arrivals=read_arrivals(r, raw, self._folder, end_s - start_s, spacing),
                prompt_tokens=read_lengths(r, "prompt_tokens", raw, self._folder),
                output_tokens=read_lengths(r, "output_tokens", raw, self._folder),
                tenant_zipf=tenant_zipf,
                adapter_zipf=adapter_zipf,
                adapters_by=r.text("adapters_by", "request", choices=ADAPTERS_BY),
            )
        )
        r.done()


def _adapter(r: Reader) -> AdapterSpec:
    adapter = AdapterSpec(read_name(r), r.integer("rank", at_least=1), r.integer("seed", 0))
    r.done()
    return adapter


def _adapters_in_bulk(r: Reader, wanted: bool) -> tuple[tuple[AdapterSpec, ...], _Crowd | None]:
    """[adapters]: `count` of them, ranks from a list in turn, all on the same `targets`."""
    if not wanted:
        return (), None
    count = r.integer("count", at_least=1, at_most=MOST_ADAPTERS)
    ranks = r.numbers("ranks", (16.0,))
    if not ranks or any(rank < 1 or rank != int(rank) for rank in ranks):
        raise r.fail("ranks", "expected a list of whole numbers >= 1")
    targets = r.text("targets", "all", choices=TARGETS)
    prefix = read_name(r, "prefix") if r.has("prefix") else r.text("prefix", "a")
    zipf = r.number("zipf", 0.0, at_least=0, at_most=LARGEST_ZIPF)
    crowd = _Crowd(prefix, tuple(f"{prefix}{i}" for i in range(count)), zipf)
    r.done()
    made = (
        AdapterSpec(n, int(ranks[i % len(ranks)]), i, targets) for i, n in enumerate(crowd.names)
    )
    return tuple(made), crowd


def _tenants_in_bulk(r: Reader, raw: object) -> tuple[tuple[Tenant, ...], _Crowd | None]:
    """[tenants]: `count` of them, alike: what else the table holds is each tenant's."""
    if not isinstance(raw, Mapping):
        return (), None
    count = r.integer("count", at_least=1, at_most=MOST_TENANTS)
    prefix = read_name(r, "prefix") if r.has("prefix") else r.text("prefix", "t")
    zipf = r.number("zipf", 0.0, at_least=0, at_most=LARGEST_ZIPF)
    if r.has("name"):
        raise r.fail("name", "tenants made in bulk are called after prefix")
    crowd = _Crowd(prefix, tuple(f"{prefix}{i}" for i in range(count)), zipf)
    common = {k: v for k, v in raw.items() if k not in ("count", "prefix", "zipf")}
    one = read_tenant(Reader(r.where, {**common, "name": prefix}))
    return tuple(replace(one, name=name) for name in crowd.names), crowd


def _fault(r: Reader, pools: tuple[PoolSpec, ...]) -> Fault:
    kind = r.text("kind", choices=FAULTS)
    pool = r.text("pool", None, choices=[p.name for p in pools])
    if pool is not None and not pools:
        raise r.fail("pool", "the file has no [[pool]]")
    if kind != "slow" and r.has("factor"):
        raise r.fail("factor", f"goes with kind = 'slow' only, and it is {kind!r}")
    lasts = FOREVER if kind == "lost" else ...
    fault = Fault(
        kind=kind,
        at_s=r.number("at_s", at_least=0, at_most=LONGEST_S),
        duration_s=r.number("duration_s", lasts, above=0, at_most=LONGEST_S),
        factor=r.number("factor", above=1, at_most=LARGEST_FACTOR) if kind == "slow" else 1.0,
        pool=pool,
        replica=r.integer("replica", 0, at_least=0),
    )
    where = next((p for p in pools if p.name == pool), pools[0] if pools else None)
    replicas = where.replicas if where is not None else 1
    if fault.replica >= replicas:
        raise r.fail("replica", f"expected less than the pool's replicas = {replicas}")
    r.done()
    return fault


def _unique(r: Reader, what: str, names: list[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise SettingsError(f"{r.where}: two of [[{what}]] are named {name!r}")
