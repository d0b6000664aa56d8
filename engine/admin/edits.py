"""Edits out of what a person wrote: every value is judged here, against what is in force. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.admin.errors import ChangeRefused
from engine.admin.in_force import Edit, InForce
from engine.config import POLICIES, Tenant
from engine.config_keys import LONGEST_NAME, Declared, declared, without_none

NO_LIMIT = "none"
TIERS = {"normal": 0, "low": 10, "lowest": 100}
LIMITS = ("rpm", "tpm", "concurrency")  # keys of which "none" means no limit
CHANGEABLE = (*LIMITS, "weight", "tier")
_MOST_FIGURES = 15  # a double holds each such number exactly


def tenant_edit(now: InForce, name: str, words: Mapping[str, str]) -> Edit:
    """Limits, weight and tier out of what a person wrote. Raises ChangeRefused."""
    known_tenant(now, name)
    values = {key: _value(key, word) for key, word in words.items()}
    if not values:
        raise ChangeRefused(f"nothing to change: give one of {', '.join(CHANGEABLE)}")
    return Edit("tenant", name, values)


def cap_edit(now: InForce, name: str, words: Mapping[str, str]) -> Edit:
    """Limits that lower and never raise. Raises ChangeRefused."""
    return replace(tenant_edit(now, name, words), kind="cap")


def move_edit(now: InForce, name: str, pool: str) -> Edit:
    """Another pool's workers serve it. Raises ChangeRefused."""
    known_tenant(now, name)
    pools = [p.name for p in now.settings.all_pools()]
    if pool not in pools:
        there = ", ".join(map(repr, pools))
        raise ChangeRefused(f"pool {pool!r} is not served here; there are {there}")
    if now.pool_of(name) == pool:
        alone = ", the only one of this engine" if len(pools) == 1 else ""
        raise ChangeRefused(f"tenant {name!r} is served by pool {pool!r}{alone} already")
    return Edit("move", name, {"pool": pool})


def drain_edit(now: InForce, name: str) -> Edit:
    known_tenant(now, name)
    if name in now.draining:
        raise ChangeRefused(f"tenant {name!r} drains already")
    return Edit("drain", name)


def policy_edit(now: InForce, policy: str) -> Edit:
    if policy not in POLICIES:
        raise ChangeRefused(f"policy {policy!r} is not known: use one of {', '.join(POLICIES)}")
    return Edit("policy", policy)


def load_edit(now: InForce, name: str, folder: str, tenants: tuple[str, ...]) -> Edit:
    """`folder` is a resolved path. Raises ChangeRefused."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ChangeRefused(f"an adapter's name has up to {LONGEST_NAME} printable characters")
    if any(n == name for n, _ in now.settings.adapters):
        raise ChangeRefused(f"adapter {name!r} is served already: `adapter reload` reads it again")
    if not tenants:
        raise ChangeRefused(f"nobody could name adapter {name!r}: say who with --tenant")
    for tenant in tenants:
        known_tenant(now, tenant)
    return Edit("load", name, {"folder": folder, "tenants": list(tenants)})


def unload_edit(now: InForce, name: str) -> Edit:
    _known_adapter(now, name)
    return Edit("unload", name)


def pin_edit(now: InForce, name: str) -> Edit:
    _known_adapter(now, name)
    if name in now.pinned:
        raise ChangeRefused(f"adapter {name!r} is pinned already")
    return Edit("pin", name)


def known_tenant(now: InForce, name: str) -> Tenant:
    """Raises ChangeRefused for one that is not in the settings."""
    tenant = now.settings.tenant(name)
    if tenant is None:
        raise ChangeRefused(f"tenant {name!r} is not in the settings: see `admin tenant show`")
    return tenant


def _known_adapter(now: InForce, name: str) -> None:
    if all(n != name for n, _ in now.settings.adapters):
        served = ", ".join(repr(n) for n, _ in now.settings.adapters) or "none"
        raise ChangeRefused(f"adapter {name!r} is not served here; served are {served}")


def _value(key: str, word: str) -> Any:
    if key == "pool":
        raise ChangeRefused("pool is no limit: `admin tenant move NAME --pool POOL` moves a tenant")
    if key not in CHANGEABLE:
        raise ChangeRefused(f"{key} cannot be changed live: one of {', '.join(CHANGEABLE)} can")
    rule = next(d for d in declared(Tenant) if d.name == key)
    if key in LIMITS and word == NO_LIMIT:
        return None
    if key == "tier" and word in TIERS:
        return TIERS[word]
    number = _number(rule, word)
    low, high = rule.key.at_least, rule.key.at_most
    if number is None or (low is not None and number < low) or (high is not None and number > high):
        long = f", in at most {_MOST_FIGURES} figures" if len(word) > _MOST_FIGURES else ""
        raise ChangeRefused(f"{key} {word!r}: expected {_expected(rule)}{long}")
    return number


def _number(rule: Declared, word: str) -> float | int | None:
    """Plain figures of our alphabet only: no sign, no exponent, no `inf`."""
    if not word.isascii() or not word.replace(".", "", 1).isdigit() or len(word) > _MOST_FIGURES:
        return None
    if without_none(rule.type) is int:
        return int(word) if word.isdigit() else None
    return float(word)


def _expected(rule: Declared) -> str:
    kind = "a whole number" if without_none(rule.type) is int else "a number"
    low, high = rule.key.at_least, rule.key.at_most
    bounds = f" of at least {low:g}" if low is not None else ""
    bounds += f" and at most {high:g}" if high is not None else ""
    extra = f", or {NO_LIMIT!r} for no limit" if rule.name in LIMITS else ""
    extra = f", or one of {', '.join(TIERS)}" if rule.name == "tier" else extra
    return f"{kind}{bounds}{extra}"
