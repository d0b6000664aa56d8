"""What is in force: settings with changes on top, and what each kind of change makes of them.

Pure values and functions; knows no clock, no order of changes (`overlay` does), no worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.config import Settings, Tenant

_BURST = {"rpm": "rpm_burst", "tpm": "tpm_burst"}


@dataclass(frozen=True, slots=True)
class Edit:
    """What a change does: one of `KINDS`, on whom, with which values."""

    kind: str
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InForce:
    """What holds now. `settings` are the file's with every change on top."""

    settings: Settings
    pinned: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()

    def pool_of(self, tenant: str) -> str | None:
        """The name of the pool that serves it; None for a tenant that is not in the settings."""
        found = self.settings.tenant(tenant)
        return None if found is None else self.settings.pool_of(found).name


def applied(now: InForce, edit: Edit) -> InForce:
    """What is in force with one edit more."""
    return KINDS[edit.kind](now, edit)


def served(now: InForce) -> Settings:
    """The settings as front and workers are to have them: a tenant that drains is let nothing new
    through, what it has under way goes on."""
    tenants = tuple(
        replace(t, concurrency=0) if t.name in now.draining else t for t in now.settings.tenants
    )
    return replace(now.settings, tenants=tenants)


# -- one kind each


def _set(now: InForce, edit: Edit) -> InForce:
    values = dict(edit.values)
    for key, burst in _BURST.items():
        if key in values:
            values[burst] = None  # a burst of the file's would let through what is now capped
    return _with_tenant(now, edit.name, lambda t: replace(t, **values))


def _cap(now: InForce, edit: Edit) -> InForce:
    tenant = now.settings.tenant(edit.name)
    own = {key: getattr(tenant, key, None) for key in edit.values}
    lower = {k: v for k, v in edit.values.items() if own[k] is None or v < own[k]}
    return _set(now, replace(edit, values=lower))


def _move(now: InForce, edit: Edit) -> InForce:
    pool = edit.values["pool"]
    if all(p.name != pool for p in now.settings.all_pools()):
        return now  # the settings have it no more: the tenant is where they say
    return _with_tenant(now, edit.name, lambda t: replace(t, pool=pool))


def _drain(now: InForce, edit: Edit) -> InForce:
    return replace(now, draining=now.draining | {edit.name})


def _policy(now: InForce, edit: Edit) -> InForce:
    return replace(now, settings=now.settings.with_policy(edit.name))


def _load(now: InForce, edit: Edit) -> InForce:
    settings = now.settings
    if any(n == edit.name for n, _ in settings.adapters):
        return now  # the settings file names it by now
    adapters = (*settings.adapters, (edit.name, str(edit.values["folder"])))
    whose = set(edit.values["tenants"])
    tenants = tuple(
        replace(t, adapters=(*t.adapters, edit.name)) if t.name in whose else t
        for t in settings.tenants
    )
    return replace(now, settings=replace(settings, adapters=adapters, tenants=tenants))


def _unload(now: InForce, edit: Edit) -> InForce:
    settings, name = now.settings, edit.name
    tenants = tuple(
        replace(t, adapters=tuple(a for a in t.adapters if a != name)) for t in settings.tenants
    )
    adapters = tuple(a for a in settings.adapters if a[0] != name)
    return replace(
        now,
        settings=replace(settings, adapters=adapters, tenants=tenants),
        pinned=now.pinned - {name},
    )


def _pin(now: InForce, edit: Edit) -> InForce:
    if all(n != edit.name for n, _ in now.settings.adapters):
        return now
    return replace(now, pinned=now.pinned | {edit.name})


def _with_tenant(now: InForce, name: str, edit: Callable[[Tenant], Tenant]) -> InForce:
    tenants = tuple(edit(t) if t.name == name else t for t in now.settings.tenants)
    return replace(now, settings=replace(now.settings, tenants=tenants))


KINDS: Mapping[str, Callable[[InForce, Edit], InForce]] = {
    "tenant": _set,
    "cap": _cap,
    "move": _move,
    "drain": _drain,
    "policy": _policy,
    "load": _load,
    "unload": _unload,
    "pin": _pin,
}
