"""What differs between two settings, in words; what a new file would lift by leaving it out. Pure.

Owns which keys of a settings file take effect live and which wait for a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from engine.config import Settings, Tenant

_LIFTABLE = ("rpm", "tpm", "concurrency", "queue", "queue_timeout_s", "deadline_s")
# Of a tenant: made for the life of its queue, or read by the ledger at the start.
_TENANT_AT_START = ("share_by", "slo")
_SECRET = "key_sha256"
_AT_START = (
    "engine", "pool", "model", "dtype", "bucket_s", "provisional_s", "hung_s", "limits", "knobs",
    "pools",
)  # fmt: skip


def lifted(old: Settings, new: Settings) -> list[str]:
    """Limits that are set in the old settings and left out in the new ones, of tenants in both: a
    line lost while a file is edited would mean no limit."""
    out = []
    for was, now in _both(old, new):
        for key in _LIFTABLE:
            if getattr(was, key) is not None and getattr(now, key) is None:
                out.append(f"{key} = {getattr(was, key)} of tenant {was.name!r}")
    return out


def live_part(old: Settings, new: Settings) -> tuple[Settings, list[str]]:
    """The new settings as far as they can take effect now, and what waits for a restart."""
    waits = [k for k in _AT_START if getattr(old, k) != getattr(new, k)]
    settings = replace(new, **{k: getattr(old, k) for k in _AT_START})
    if old.guard.mode == "off" != new.guard.mode:  # nobody watches the incidents yet
        waits.append("guard")
        settings = replace(settings, guard=old.guard)
    before = {t.name: t for t in old.tenants}
    pools = {p.name for p in old.all_pools()}
    tenants = []
    for tenant in new.tenants:
        was = before.get(tenant.name)
        if tenant.pool is not None and tenant.pool not in pools:
            waits.append(f"pool of tenant {tenant.name!r}")
            tenant = replace(tenant, pool=None if was is None else was.pool)
        if was is not None:
            late = [k for k in _TENANT_AT_START if getattr(was, k) != getattr(tenant, k)]
            waits += [f"{k} of tenant {tenant.name!r}" for k in late]
            tenant = replace(tenant, **{k: getattr(was, k) for k in late})
        tenants.append(tenant)
    return replace(settings, tenants=tuple(tenants)), waits


def differences(old: Settings, new: Settings) -> list[str]:
    """One line a difference that takes effect: `tenant 'a': rpm 60 -> 30`. No key is shown."""
    out = []
    if old.policy != new.policy:
        out.append(f"policy {old.policy} -> {new.policy}")
    if old.guard != new.guard:
        out.append(f"guard rails: {old.guard.mode} -> {new.guard.mode}, or other caps")
    before, after = {t.name for t in old.tenants}, {t.name for t in new.tenants}
    out += [f"tenant {t.name!r} comes" for t in new.tenants if t.name not in before]
    out += [f"tenant {t.name!r} goes" for t in old.tenants if t.name not in after]
    for was, now in _both(old, new):
        changed = list(_tenant_differences(was, now))
        came, goes_to = old.pool_of(was).name, new.pool_of(now).name
        if came != goes_to:
            changed.append(f"moves from pool {came!r} to {goes_to!r}")
        if changed:
            out.append(f"tenant {was.name!r}: {', '.join(changed)}")
    folders, next_folders = dict(old.adapters), dict(new.adapters)
    out += [f"adapter {n!r} comes" for n in next_folders if n not in folders]
    out += [f"adapter {n!r} goes" for n in folders if n not in next_folders]
    out += [
        f"adapter {n!r} is read from another folder"
        for n, f in next_folders.items()
        if n in folders and folders[n] != f
    ]
    return out


def _tenant_differences(was: Tenant, now: Tenant) -> Iterator[str]:
    for f in fields(Tenant):
        a, b = getattr(was, f.name), getattr(now, f.name)
        if a == b:
            continue
        if f.name == _SECRET:
            yield f"{len(b)} keys instead of {len(a)}" if len(a) != len(b) else "other keys"
        elif f.name == "pool":
            continue  # where it is served by that is what counts
        elif f.name == "adapters":
            yield from (f"may name {n!r}" for n in b if n not in a)
            yield from (f"may no longer name {n!r}" for n in a if n not in b)
        else:
            yield f"{f.name} {_word(a)} -> {_word(b)}"


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _both(old: Settings, new: Settings) -> Iterator[tuple[Tenant, Tenant]]:
    after = {t.name: t for t in new.tenants}
    for was in old.tenants:
        now = after.get(was.name)
        if now is not None:
            yield was, now
