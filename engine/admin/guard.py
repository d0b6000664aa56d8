"""Guard rails: whether an incident is reason to cap a tenant for a while, and to what. Pure.

Only a holder that is named with strength is capped: `counterfactual`, or `charged` at high
confidence, with most of the victims' excess, while somebody is hurt enough to page for. A cap
lowers limits and raises none; at most a few hold at once in a pool, so that a wrong verdict empties
none. Nobody is capped for a pool that it has been moved away from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.admin.in_force import InForce
from engine.admin.overlay import Overlay
from engine.config import Guard, Tenant

WHO = "guard rail"
MOST_CAPS = 3
_PAGE = "page"
_LIVE = ("open", "acknowledged")
_LIMITS = ("rpm", "tpm", "concurrency")


@dataclass(frozen=True, slots=True)
class Held:
    """An incident as far as a guard rail looks at it."""

    incident: str
    pool: str
    engine: str
    live: bool
    severity: str
    tenant: str = ""
    strength: str = ""
    confidence: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Cap:
    """What to cap, and the reason that is written down with it."""

    tenant: str
    words: Mapping[str, str]
    why: str


def held(detail: str) -> Held:
    """Out of an event of kind `incident_state`. Raises ValueError for what is none."""
    try:
        raw: dict[str, Any] = json.loads(detail)
        first: dict[str, Any] = (raw.get("holders") or [{}])[0]
        share = first.get("share")
        return Held(
            incident=str(raw["id"]),
            pool=str(raw["pool"]),
            engine=str(raw["engine"]),
            live=raw["state"] in _LIVE,
            severity=str(raw["severity"]),
            tenant=str(first.get("tenant") or ""),
            strength=str(first.get("strength") or ""),
            confidence=str(first.get("confidence") or ""),
            share=None if share is None else float(share),
        )
    except (AttributeError, KeyError, TypeError) as e:
        raise ValueError(f"an incident of another version: {e!r}") from None


def judge(found: Held, guard: Guard, now: InForce, overlay: Overlay) -> Cap | str:
    """The cap, or why there is none."""
    settings = now.settings
    if not found.live:
        return "the incident is over"
    here = [p.name for p in settings.all_pools()]
    if found.pool not in here or found.engine not in ("", settings.engine):
        return f"it is of pool {found.pool!r}, engine {found.engine!r}"
    if found.severity != _PAGE:
        return f"it is no reason to page for ({found.severity})"
    if not found.tenant:
        return "it names no holder"
    strong = found.strength == "counterfactual" or (
        found.strength == "charged" and found.confidence == "high"
    )
    if not strong:
        confidence = f" at {found.confidence} confidence" if found.confidence else ""
        return f"{found.tenant!r} is only {found.strength or 'named'}{confidence}"
    if found.share is None or found.share < guard.least_share:
        return f"{found.tenant!r} holds less of the excess than least_share"
    tenant = settings.tenant(found.tenant)
    if tenant is None:
        return f"{found.tenant!r} is not in the settings"
    served_by = settings.pool_of(tenant).name
    if served_by != found.pool:
        return f"{found.tenant!r} is served by pool {served_by!r} by now"
    if tenant.name in guard.spare:
        return f"{found.tenant!r} is spared by the settings"
    own = [c for c in overlay.changes if c.who == WHO]
    caps = [c for c in own if c.in_force]
    if any(c.edit.name == tenant.name for c in caps):
        return f"{found.tenant!r} is capped already"
    mark = f"{found.incident}: "
    if any(
        c.state == "undone" and c.edit.name == tenant.name and c.why.startswith(mark) for c in own
    ):
        return f"an operator took the cap of {found.tenant!r} back"
    if sum(now.pool_of(c.edit.name) == found.pool for c in caps) >= MOST_CAPS:
        return f"{MOST_CAPS} caps hold already"
    words = _lower(guard, tenant)
    if not words:
        return f"{found.tenant!r} has limits as low already"
    return Cap(tenant.name, words, f"{mark}holds {found.share:.0%} of the excess wait")


def _lower(guard: Guard, tenant: Tenant) -> dict[str, str]:
    """The guard's limits that are below the tenant's own."""
    words = {}
    for key in _LIMITS:
        cap, own = getattr(guard, key), getattr(tenant, key)
        if cap is not None and (own is None or cap < own):
            words[key] = str(cap)
    return words
