"""Reads what stands beside a workload's traffic: a settings file, clients' retries, changes.

Owns the form of `settings = "..."`, [[retry]] and [[change]]; every error names file, table, key
and value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.config import POLICIES, Settings, Tenant, read_settings
from engine.errors import ConfigError
from engine.simulation.workload import CHANGED_LIMITS, Change, Retry
from telemetry.settings import Reader, SettingsError

LONGEST_S = 366 * 86_400.0
MOST_RETRIES = 1_000
# What a settings file says, and a workload that names one may not say again.
_OF_SETTINGS = ("tenant", "tenants", "limits", "pool", "policy", "policies", "bucket_s")


def read_beside(r: Reader, raw: Mapping[str, Any], folder: Path) -> Settings | None:
    """The settings file that `settings` names; None where the workload names none."""
    if not r.has("settings"):
        return None
    path = folder / r.text("settings")
    for key in _OF_SETTINGS:
        if key in raw:
            raise r.fail(key, f"stands in the settings file {path.name}: leave it out here")
    try:
        settings = read_settings(path)
    except ConfigError as e:
        raise r.fail("settings", str(e)) from None
    if not settings.tenants:
        raise r.fail("settings", f"{path.name} names no [[tenant]]")
    return settings


def read_start(r: Reader) -> float | None:
    """`starts = "2026-11-25T16:00:00Z"`: the instant of second 0, unix seconds."""
    if not r.has("starts"):
        return None
    try:
        at = datetime.fromisoformat(r.text("starts"))
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or at.year < 1971 or at.year > 9000:
        raise r.fail("starts", "expected an instant with its zone, like 2026-11-25T16:00:00Z")
    return at.timestamp()


def read_retry(r: Reader, names: Collection[str]) -> Retry:
    """One [[retry]] table."""
    retry = Retry(
        tenant=_known(r, names),
        after_s=r.number("after_s", above=0, at_most=LONGEST_S),
        most=r.integer("most", at_least=1, at_most=MOST_RETRIES),
        factor=r.number("factor", 1.0, at_least=1, at_most=100),
        spread=r.number("spread", 0.5, at_least=0, at_most=1),
        timeouts=r.flag("timeouts", False),
    )
    r.done()
    return retry


def read_change(r: Reader, raw: Mapping[str, Any], tenants: Collection[Tenant]) -> Change:
    """One [[change]] table: a `policy`, or of a `tenant` new limits and a `lift` of old ones."""
    names = [t.name for t in tenants]
    at_s = r.number("at_s", at_least=0, at_most=LONGEST_S)
    policy = r.text("policy", None, choices=POLICIES)
    tenant = _known(r, names) if r.has("tenant") else None
    limits: dict[str, int | None] = {
        key: r.integer(key, at_least=0) for key in CHANGED_LIMITS if key in raw
    }
    for key in r.texts("lift"):
        if key not in CHANGED_LIMITS or key in limits:
            raise r.fail("lift", f"expected of {', '.join(CHANGED_LIMITS)}, each once: {key!r}")
        limits[key] = None
    if policy is None and not limits:
        raise SettingsError(f"{r.where}: expected a policy, or a tenant with new limits or a lift")
    if bool(limits) != (tenant is not None):
        raise SettingsError(f"{r.where}: limits and tenant go together")
    change = Change(
        at_s, policy, tenant, tuple(limits.items()), r.text("who", "operator"), r.text("why", "")
    )
    r.done()
    return change


def _known(r: Reader, names: Collection[str]) -> str:
    name: str = r.text("tenant")
    if name not in names:
        raise r.fail("tenant", "no [[tenant]] is named so")
    return name
