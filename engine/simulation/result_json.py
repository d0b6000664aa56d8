"""A simulation's result as JSON-ready values. The same inputs give the same but for `wall`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engine.simulation.results import Result, TenantResult

SERIES_TENANTS = 10  # by service; the others' curves stay out


def as_json(result: Result, top: int | None = None) -> dict[str, Any]:
    """`top`: only so many tenants, by service; None = all of them."""
    ordered = sorted(result.tenants, key=lambda t: (-t.service, t.tenant))
    number = {t.tenant: i for i, t in enumerate(result.tenants)}
    drawn = ordered[: SERIES_TENANTS if top is None else min(top, SERIES_TENANTS)]
    return {
        "name": result.name,
        "policy": result.policy,
        "seed": result.seed,
        "machine": result.machine,
        "simulated_s": result.simulated_s,
        "offered": result.offered,
        "tenant_count": len(result.tenants),
        "pools": [asdict(p) for p in result.pools],
        "accumulated_difference": result.accumulated_difference,
        "accumulated_difference_at_end": result.accumulated_difference_at_end,
        "compared": result.compared,
        "tenants": [_tenant(t) for t in ordered[:top]],
        "service_over_time": {
            "at_s": list(result.series_at_s),
            "tenants": [
                {"tenant": t.tenant, "service": [s[number[t.tenant]] for s in result.series]}
                for t in drawn
            ],
        },
        "wall": None if result.wall is None else asdict(result.wall),
    }


def _tenant(tenant: TenantResult) -> dict[str, Any]:
    return {**asdict(tenant), "hit_rate": tenant.hit_rate}
