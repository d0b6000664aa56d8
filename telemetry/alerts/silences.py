"""Silences: what is not delivered for a while, by alert, pool or tenant. Pure values.

A silenced incident is recorded all the same, and marked. A silence always ends and says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from telemetry.alerts.incident import Incident, Said
from telemetry.errors import StoreError

LONGEST_S = 30 * 86_400.0
_BURN = "TenantscopeGoodputBurn"


@dataclass(frozen=True, slots=True)
class Silence:
    """Matches where every one of `alert`, `pool`, `tenant` that is given is equal; None: any."""

    id: str
    alert: str | None
    pool: str | None
    tenant: str | None
    until: float
    reason: str
    who: str
    created: float
    removed_by: str | None = None
    seq: int = 1

    def active(self, now: float) -> bool:
        return self.removed_by is None and self.created - 1.0 <= now < self.until


def check(silence: Silence, known: Iterable[str], now: float) -> None:
    """Raises StoreError naming what is wrong with a silence that somebody asks for."""
    names = tuple(known)
    if silence.alert is None and silence.pool is None and silence.tenant is None:
        raise StoreError("a silence of everything is refused: give an alert, a pool or a tenant")
    if silence.alert is not None and silence.alert not in names:
        raise StoreError(f"no alert {silence.alert!r}: there are {', '.join(names)}")
    if not silence.reason.strip():
        raise StoreError("a silence needs a reason: who comes next must know why")
    if not now < silence.until <= now + LONGEST_S:
        raise StoreError(
            f"until = {silence.until:.0f} (now {now:.0f}): "
            f"expected within the next {LONGEST_S / 86_400:.0f} days"
        )


def is_silenced(incident: Incident, silences: Iterable[Silence], now: float) -> bool:
    """Whether all that fires is covered. With several tenants concerned each of them must be: a
    silence of one must not hide another."""
    active = [s for s in silences if s.active(now)]
    firing = [a for a in incident.alerts if a.firing] or list(incident.alerts)
    return bool(active and firing) and all(_covered(a, incident, active) for a in firing)


def _covered(alert: Said, incident: Incident, active: list[Silence]) -> bool:
    mine = [s for s in active if s.alert in (None, alert.alert)
            and s.pool in (None, incident.pool)]  # fmt: skip
    if any(s.tenant is None for s in mine):
        return True
    concerned = set(incident.hurt) if alert.alert.startswith(_BURN) else set()
    if alert.tenant is not None:
        concerned.add(alert.tenant)
    complete = incident.hurt_count <= len(incident.hurt)
    return bool(concerned) and complete and concerned <= {s.tenant for s in mine}
