"""Retry storm: is a good part of what a tenant asks for asked for again?"""

from __future__ import annotations

from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent

MIN_COUNT = 10
MIN_SHARE = 0.2  # of what the tenant offers
OVER_USUAL = 3.0


def retry_storm(case: Case) -> Finding:
    """Holds where a fifth of a tenant's requests, ten or more, are retries: three times its usual
    part."""
    rows = [r for b in case.buckets for r in b.tenants.values()]
    if rows and all(r.offered_retries is None for r in rows):
        return missing("retry_storm", "retries were not counted")
    worst: tuple[float, float, float, str] | None = None
    every, asked = 0.0, 0.0
    for tenant in case.tenants:
        retries = case.total(tenant, "offered_retries") or 0.0
        offered = case.total(tenant, "offered_requests") or 0.0
        every, asked = every + retries, asked + offered
        usual = _usual(case, tenant)
        if retries < MIN_COUNT or retries < MIN_SHARE * offered:
            continue
        if retries < OVER_USUAL * usual * offered:
            continue
        worst = max(worst or (0.0, 0.0, 0.0, ""), (retries, offered, usual, tenant))
    part = every / asked if asked else 0.0
    evidence = [Evidence("retries", every, "1"), Evidence("part of what was offered", part, "1")]
    if worst is None:
        said = f"NOT retries: {every:.0f}, {percent(part)} of what was offered"
        return Finding("retry_storm", Holds.NO, said, None, None, tuple(evidence))
    retries, offered, usual, who = worst
    evidence += [
        Evidence("retries of the tenant", retries, "1"),
        Evidence("part of what the tenant offered", retries / offered, "1"),
        Evidence("that part, usual", usual, "1"),
    ]
    said = (
        f"RETRY storm of {name(who)}: {retries:.0f} of {offered:.0f} offered are retries "
        f"({percent(retries / offered)}, usual {percent(usual)})"
    )
    return Finding("retry_storm", Holds.YES, said, Strength.ASSOCIATED, who, tuple(evidence))


def _usual(case: Case, tenant: str) -> float:
    retries = case.baseline.rate(tenant, "offered_retries") or 0.0
    offered = case.baseline.rate(tenant, "offered_requests") or 0.0
    return retries / offered if offered else 0.0
