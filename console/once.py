"""The overview for scripts: one picture as text or JSON, and whether an incident is open.

Reads one picture and the store's incidents; decides nothing that the verdict and the alerts have
not decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from console.account import Account, TenantNow
from console.gather import Asked
from console.panels import Level, Snapshot


def open_incidents(source: Asked, now: float) -> tuple[str, ...]:
    """Ids of the incidents that the store's alerts hold open; none where only a worker answers."""
    from telemetry.alerts.state import recall

    known = recall(source, now)
    return tuple(sorted(i.id for i in known.incidents.values() if i.live))


def newest_incident(source: Asked, now: float, pool: str, *, live: bool = True) -> str | None:
    """The id of a pool's newest incident; `live`: only of one that is open."""
    from telemetry.alerts.state import recall

    found = recall(source, now).latest().get(pool)
    return None if found is None or (live and not found.live) else found.id


def is_open(s: Snapshot, incidents: tuple[str, ...]) -> bool:
    """Whether somebody should look: an alert's incident, or a verdict that somebody is hurt now, in
    whichever pool. Old figures say nothing about now."""
    here = not s.stale and s.verdict.level is Level.HURT
    return bool(incidents) or here or any(o.is_hurt for o in s.others)


def as_json(s: Snapshot, incidents: tuple[str, ...]) -> dict[str, Any]:
    """The overview as data. Seconds, shares of 1, unix seconds; null is not known. The waits of
    `tenants` sum to `total_s`, and so do their `held_s` with `not_tenants`."""
    lamps = s.lamps
    shaped = {
        "at": s.now,
        "mode": s.mode,
        "pool": s.pool,
        "pools": list(s.pools),
        "incident_open": is_open(s, incidents),
        "incidents": list(incidents),
        "data_age_s": s.data_age_s,
        "stale": s.stale,
        "provisional": s.provisional,
        "engines": {"heard": lamps.heard, "known": lamps.known},
        "store_down_s": lamps.store_down_s,
        "lost": lamps.lost,
        "notes": list(lamps.notes),
        "verdict": {
            "level": s.verdict.level.value,
            "lines": list(s.verdict.lines),
            "named": s.verdict.named,
            "victims": sorted(s.verdict.victims),
            "since": s.verdict.since,
        },
        "others": [
            {
                "pool": o.pool,
                "level": o.level.value,
                "line": o.line,
                "named": o.named,
                "victims": o.victims,
                "data_age_s": o.age_s,
                "stale": o.stale,
            }
            for o in s.others
        ],
        "pool_shares": {
            "kv": s.strip.kv_share,
            "adapter": s.strip.adapter_share,
            "cache": s.strip.cached_share,
            "free": s.strip.free_share,
        },
        "slots": {"running": s.strip.running, "all": s.strip.slots},
        "waiting": s.wait.waiting,
        "oldest_wait_s": s.wait.oldest_s,
        "account": None if s.account is None else _account(s.account),
        "changes": [{"at": t.at, "kind": t.kind, "text": t.text} for t in s.ticker],
    }
    made: dict[str, Any] = known(shaped)
    return made


def known(value: Any) -> Any:
    """JSON has no NaN and no infinity: what is no number is not known."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: known(v) for k, v in value.items()}
    return [known(v) for v in value] if isinstance(value, list) else value


def _account(a: Account) -> Mapping[str, Any]:
    return {
        "basis": a.basis,
        "no_baseline": a.no_baseline,
        "span_s": a.span_s,
        "gaps": a.gaps,
        "short": a.short,
        "total_s": a.total_s,
        "not_tenants": dict(a.not_tenants),
        "tenants": [_tenant(t) for t in a.hurt],
    }


def _tenant(t: TenantNow) -> Mapping[str, Any]:
    ttft = t.ttft
    behind = t.behind
    return {
        "tenant": t.name,
        "mark": t.row.mark.name.lower(),
        "wait_s": t.wait_s,
        "held_s": t.held_s,
        "share": t.row.service_share,
        "fair_share": t.row.fair_share,
        "kv_share": t.row.kv_share,
        "running": t.row.running,
        "waiting": t.row.waiting,
        "oldest_wait_s": t.row.oldest_wait_s,
        "missed": t.missed,
        "eligible": t.eligible,
        "refused": t.row.rejected,
        "ttft": {"n": ttft.n, "p50_s": ttft.p50_s, "p99_s": ttft.p99_s, "few": ttft.few},
        "behind": None
        if behind is None
        else {
            "kind": behind.kind,
            "tenant": behind.name,
            "share": behind.share,
            "reason": t.behind_reason,
        },
    }
