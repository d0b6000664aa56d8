"""RPM gaming: does a tenant stay under its limit of requests with requests of another size?"""

from __future__ import annotations

from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent, times

LARGER = 2.0  # tokens a request, over the tenant's usual
HOLDS = 0.15  # of the excess: who holds less is not looked at
MIN_COUNT = 3


def rpm_gaming(case: Case) -> Finding:
    """Holds where a tenant that holds part of the excess has a limit of requests a minute, was
    refused none of them, and its requests are twice as large as they usually are."""
    held = [x for x in case.lines if x.holder.is_tenant and x.share >= HOLDS]
    if not held:
        said = f"NOT larger requests: no tenant holds {percent(HOLDS)} of the excess"
        most = max((x.share for x in case.lines if x.holder.is_tenant), default=0.0)
        largest = (Evidence("largest share", most, "1"),)
        return Finding("rpm_gaming", Holds.NO, said, None, None, largest)
    best: tuple[float, str, float, float, bool, float] | None = None
    for line in held:
        who = line.holder.name
        count = case.total(who, "offered_requests")
        tokens = case.total(who, "offered_tokens")
        usual_count = case.baseline.rate(who, "offered_requests")
        usual_tokens = case.baseline.rate(who, "offered_tokens")
        if not count or tokens is None or not usual_count or not usual_tokens:
            continue
        now, usual = tokens / count, usual_tokens / usual_count
        refused = case.total(who, "rejected_rpm_requests") or 0.0
        found = (now / usual, who, now, usual, _limited(case, who), refused)
        if count >= MIN_COUNT and (best is None or found > best):
            best = found
    if best is None:
        return missing("rpm_gaming", "what the holder offers now, or usually, is not in the rows")
    ratio, who, now, usual, limited, refused = best
    evidence = (
        Evidence("tokens a request", now, "token"),
        Evidence("tokens a request, usual", usual, "token"),
        Evidence("refused by requests a minute", refused, "1"),
    )
    numbers = f"{name(who)}'s are {now:.0f} tokens, {times(ratio)} the usual"
    if ratio >= LARGER and limited and not refused:
        said = f"UNDER ITS RPM with larger requests: {numbers}, none refused"
        return Finding("rpm_gaming", Holds.YES, said, Strength.ASSOCIATED, who, evidence)
    why = "" if limited else ", no limit of requests"
    said = f"NOT larger requests under an RPM: {numbers}{why}"
    return Finding("rpm_gaming", Holds.NO, said, None, None, evidence)


def _limited(case: Case, tenant: str) -> bool:
    """Whether the tenant has a limit of requests a minute: its level is in the rows."""
    return any(
        r.quota_rpm_level is not None
        for b in case.window.buckets
        if (r := b.tenants.get(tenant)) is not None
    )
