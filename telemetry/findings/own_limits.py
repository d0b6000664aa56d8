"""Own limits: who was refused by its own quota? A tenant's own 429s are not another's work.

A limit of requests or tokens a minute is met by what the tenant sends. One of concurrency is met
also by requests that stay longer than usual: then the refusals are a consequence, and it is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.attribution import ASKED
from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent

LIMITS = ("rpm", "tpm", "concurrency")
MIN_COUNT = 3
MIN_SHARE = 0.05  # of what it offered


@dataclass(frozen=True, slots=True)
class _Refused:
    tenant: str
    limit: str
    count: float
    offered: float
    beyond: float  # more than usual


def own_limits(case: Case) -> Finding:
    """Holds where a tenant saw three refusals or more, a twentieth of what it offered, beyond what
    its own quota usually refuses it."""
    if not _counted(case):
        return missing("own_limits", "the front's counts of refusals are missing")
    found = [r for t in case.tenants if (r := _refused(case, t)) is not None]
    many = sum(r.count for r in found)
    holds = [r for r in found if r.beyond >= MIN_COUNT and r.beyond >= MIN_SHARE * r.offered]
    evidence = [Evidence("refused by own limits", many, "1")]
    if not holds:
        said = f"NOT own limits: {many:.0f} refused by them"
        return Finding("own_limits", Holds.NO, said, None, None, tuple(evidence))
    worst = max(holds, key=lambda r: (r.beyond, r.tenant))
    evidence += [
        Evidence("refused of the tenant", worst.count, "1"),
        Evidence("part of what it offered", worst.count / worst.offered, "1"),
        Evidence("tenants refused", float(len(holds)), "1"),
    ]
    rose = any(r.resource in ASKED for r in case.rose(worst.tenant))
    why = "by what it sent itself"
    if worst.limit == "concurrency" and not rose:
        why = "as its requests stayed longer"
    elif not rose:
        why = "though it sent no more than usual"
    said = (
        f"OWN LIMIT of {name(worst.tenant)} ({worst.limit}): {worst.count:.0f} of "
        f"{worst.offered:.0f} refused ({percent(worst.count / worst.offered)}), {why}"
    )
    return Finding("own_limits", Holds.YES, said, Strength.CHARGED, worst.tenant, tuple(evidence))


def _counted(case: Case) -> bool:
    return any(r.admitted_requests is not None for b in case.buckets for r in b.tenants.values())


def _refused(case: Case, tenant: str) -> _Refused | None:
    columns = {limit: f"rejected_{limit}_requests" for limit in LIMITS}
    counts = {limit: case.total(tenant, c) or 0.0 for limit, c in columns.items()}
    count = sum(counts.values())
    if not count:
        return None
    seen = case.part.observed_s
    by = {
        limit: (n, n - (case.baseline.rate(tenant, columns[limit]) or 0.0) * seen)
        for limit, n in counts.items()
    }
    most = max(by, key=lambda limit: by[limit][0])
    offered = max(count, case.total(tenant, "offered_requests") or 0.0)
    return _Refused(tenant, most, count, offered, sum(b for _, b in by.values()))
