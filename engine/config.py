"""Reads a settings file: one TOML file to frozen `Settings`. Owns the checks across keys.

The values, and what each key means, are `engine.config_values`; they are had from here as well.
Every message names file, table, key and value, and says what is allowed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.config_keys import from_plain, read_keys, read_name
from engine.config_pools import Limits, PoolSpec
from engine.config_values import (
    DTYPES,
    POLICIES,
    SHARE_BY,
    WINDOWS,
    AdapterFolder,
    Guard,
    PolicyKnobs,
    Settings,
    Slo,
    Tenant,
)
from engine.errors import ConfigError
from engine.key_digest import read_key_digest
from telemetry.settings import Reader, SettingsError, read_toml

__all__ = [
    "DEVICE",
    "DEVICE_EXPECTED",
    "DTYPES",
    "POLICIES",
    "SHARE_BY",
    "WINDOWS",
    "Guard",
    "Limits",
    "PolicyKnobs",
    "PoolSpec",
    "Settings",
    "Slo",
    "Tenant",
    "load_settings",
    "read_guard",
    "read_limits",
    "read_name",
    "read_pools",
    "read_settings",
    "read_slo",
    "read_tenant",
]

# What torch and the driver call a device; the form only, whether there is one is for `serve`.
DEVICE = re.compile(r"cpu|cuda:[0-9]{1,3}|(MIG-GPU|MIG|GPU)-[0-9a-fA-F][0-9a-fA-F/-]{7,99}")
DEVICE_EXPECTED = "expected cpu, cuda:0, or a UUID as 'nvidia-smi -L' prints it (MIG-..., GPU-...)"


def load_settings(text: str) -> Settings:
    """The inverse of `Settings.dump`."""
    settings: Settings = from_plain(Settings, json.loads(text))
    return settings


def read_settings(path: Path) -> Settings:
    """Read and check a settings file. Raises ConfigError naming file, key and value."""
    try:
        return _settings(Reader(str(path), read_toml(path)), path.parent)
    except SettingsError as e:
        raise ConfigError(str(e)) from None


def read_slo(r: Reader) -> Slo:
    """A table of targets. Raises SettingsError, as the readers below do."""
    return read_keys(r, Slo)


def read_tenant(r: Reader) -> Tenant:
    """One [[tenant]] table. Whether its pool and its adapters exist is the file's to check."""
    tenant = read_keys(r, Tenant)
    for text in tenant.key_sha256:
        try:
            read_key_digest(text)
        except ValueError as e:
            raise SettingsError(f"{r.where}: key_sha256: {e}") from None
    for what, limit, burst in (
        ("rpm", tenant.rpm, tenant.rpm_burst),
        ("tpm", tenant.tpm, tenant.tpm_burst),
    ):
        if burst is None:
            continue
        if limit is None:
            raise r.fail(f"{what}_burst", f"allowed only beside a limit: set {what} too")
        if limit == 0:
            raise r.fail(f"{what}_burst", f"{what} = 0 blocks the tenant: leave the burst out")
        if tenant.window != "bucket":
            only = 'allowed only with window = "bucket"'
            raise r.fail(f"{what}_burst", f"{only}, and it is {tenant.window!r}")
    return tenant


def read_limits(r: Reader, base: Limits | None = None) -> Limits:
    """A table of limits; what is left out is as in `base`, else it has its default."""
    limits = read_keys(r, Limits, base)
    floors = limits.kv_floor_bytes + limits.adapter_floor_bytes
    if floors > limits.pool_bytes:
        raise SettingsError(
            f"{r.where}: kv_floor_bytes = {limits.kv_floor_bytes} and adapter_floor_bytes = "
            f"{limits.adapter_floor_bytes} are {floors} bytes together: expected at most "
            f"pool_bytes = {limits.pool_bytes}"
        )
    return limits


def read_guard(r: Reader) -> Guard:
    """The table of guard rails."""
    guard = read_keys(r, Guard)
    if guard.mode != "off" and guard.rpm is guard.tpm is guard.concurrency is None:
        raise r.fail("mode", "caps nothing: set rpm, tpm or concurrency beside it")
    return guard


def read_pools(r: Reader, base: Limits) -> tuple[PoolSpec, ...]:
    """The [[pool]] tables of a file; what a pool's limits leave out is as in `base`."""
    tables = r.tables("pool")
    pools = tuple(_pool(t, base) for t in tables)
    _unique(tables, "name", [(p.name,) for p in pools])
    _one_pool_a_tier(tables, pools)
    return pools


def _pool(r: Reader, base: Limits) -> PoolSpec:
    pool = read_keys(r, PoolSpec, limits=read_limits(r.table("limits"), base))
    if not DEVICE.fullmatch(pool.device):
        raise r.fail("device", DEVICE_EXPECTED)
    each = pool.replicas * pool.tp
    if len(pool.cpus) % each:
        ranks = f" and tp = {pool.tp}" if pool.tp > 1 else ""
        raise r.fail(
            "cpus",
            f"{len(pool.cpus)} cores are not the same for each of replicas = {pool.replicas}"
            f"{ranks}: name {each}, or a multiple of it",
        )
    return pool


def _one_pool_a_tier(tables: Sequence[Reader], pools: Sequence[PoolSpec]) -> None:
    seen: dict[int, Reader] = {}
    for r, pool in zip(tables, pools, strict=True):
        for tier in pool.tiers:
            if tier in seen:
                raise r.fail("tiers", f"{tier} is served by {seen[tier].inside} already")
            seen[tier] = r


def _settings(r: Reader, folder: Path) -> Settings:
    limits = read_limits(r.table("limits"))
    # `pool = "main"` names the only one; [[pool]] tables stand under the same word.
    pools = read_pools(r, limits) if r.has_tables("pool") else ()
    if len(pools) == 1:
        limits = pools[0].limits
    named: dict[str, Any] = {"pool": pools[0].name} if pools else {}
    tenant_tables, adapter_tables = r.tables("tenant"), r.tables("adapter")
    tenants = tuple(read_tenant(t) for t in tenant_tables)
    adapters = [read_keys(a, AdapterFolder) for a in adapter_tables]
    settings: Settings = read_keys(
        r,
        Settings,
        limits=limits,
        knobs=read_keys(r.table("policies"), PolicyKnobs),
        guard=read_guard(r.table("guard")),
        pools=pools,
        tenants=tenants,
        adapters=tuple((a.name, os.path.realpath(folder / a.path)) for a in adapters),
        **named,
    )
    _unique(tenant_tables, "name", [(t.name,) for t in tenants])
    _unique(adapter_tables, "name", [(a.name,) for a in adapters])
    _known(tenant_tables, settings)
    _one_owner(r, tenants)
    return settings


def _known(tables: Sequence[Reader], settings: Settings) -> None:
    """What a tenant refers to must be there."""
    adapters = {name for name, _ in settings.adapters}
    pools = [p.name for p in settings.all_pools()]
    for r, tenant in zip(tables, settings.tenants, strict=True):
        for name in tenant.adapters:
            if name not in adapters:
                raise SettingsError(
                    f"{r.where}: tenant {tenant.name!r} lists adapter {name!r}, "
                    "which no [[adapter]] names"
                )
        if tenant.pool is not None and tenant.pool not in pools:
            raise r.fail("pool", f"expected one of the pools: {', '.join(map(repr, pools))}")


def _unique(tables: Sequence[Reader], key: str, values: Sequence[tuple[str, ...]]) -> None:
    seen: dict[str, Reader] = {}
    for r, mine in zip(tables, values, strict=True):
        for value in mine:
            if value in seen:
                raise r.fail(key, f"taken already, by {seen[value].inside}")
            seen[value] = r


def _one_owner(r: Reader, tenants: Sequence[Tenant]) -> None:
    """A key says who calls, so it may be one tenant's only."""
    owners: dict[str, str] = {}
    for tenant in tenants:
        for digest, _ in map(read_key_digest, tenant.key_sha256):
            owner = owners.setdefault(digest, tenant.name)
            if owner != tenant.name:
                raise SettingsError(
                    f"{r.where}: tenants {owner!r} and {tenant.name!r} have one key_sha256, "
                    f"{digest[:8]}...: a key says who calls; give each its own"
                )
