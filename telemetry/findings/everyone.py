"""Everyone: did the whole pool ask for more at once?"""

from __future__ import annotations

from statistics import median

from telemetry.attribution import ROSE
from telemetry.baseline import demand_growths
from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import times

MIN_TENANTS = 3
MOST = 0.75


def everyone(case: Case) -> Finding:
    """Holds where three quarters of the tenants, three or more, offer half as much again."""
    if not case.baseline.usable:
        return missing("everyone", "no baseline to compare the demand with")
    growths = demand_growths(case.buckets, case.baseline, part=case.part)
    if len(growths) < MIN_TENANTS:
        return missing(
            "everyone", f"{len(growths)} active before, {MIN_TENANTS} tenants are needed"
        )
    middle = median(growths.values())
    grew = sum(g >= ROSE for g in growths.values())
    evidence = (
        Evidence("median growth of demand", middle, "1"),
        Evidence("tenants that grew", float(grew), "1"),
        Evidence("tenants", float(len(growths)), "1"),
    )
    numbers = f"{grew} of {len(growths)} tenants ask more; the median {times(middle)} the usual"
    if grew >= MIN_TENANTS and grew >= MOST * len(growths):
        return Finding(
            "everyone", Holds.YES, f"EVERYONE grew: {numbers}", Strength.ASSOCIATED, None, evidence
        )
    return Finding("everyone", Holds.NO, f"NOT everyone: {numbers}", None, None, evidence)
