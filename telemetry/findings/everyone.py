"""Everyone: did the whole pool ask for more at once?

Asked up to the worst of the incident: in the drain after it all still wait and nobody asks for
more, and minutes of it hide what they asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from telemetry.attribution import ROSE
from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.growth import Demand, demands, typical
from telemetry.plain import times
from telemetry.rising import DEVIATIONS, LENGTHS_VARY
from telemetry.window import observed_s

MIN_TENANTS = 3
MOST = 0.75
OUTGREW = 3.0  # times the typical growth: then it is more than one of them


def everyone(case: Case) -> Finding:
    """Holds where three quarters of the tenants, three or more, offer half as much again; or where
    more of them than chance lifts offer more, and all but the one that grew most and those that
    outgrew them offer half as much again together: of a few requests each, what a single tenant
    asks for is mostly chance."""
    if not case.baseline.usable:
        return missing("everyone", "no baseline to compare the demand with")
    span = case.to_worst
    asked = demands(span, case.baseline, part=case.window.part(span))
    if len(asked) < MIN_TENANTS:
        return missing("everyone", f"{len(asked)} active before, {MIN_TENANTS} tenants are needed")
    middle = typical(asked)
    grew = sum(d.growth >= ROSE for d in asked)
    more = sum(d.growth > 1.0 for d in asked)
    together = _together(asked, middle, observed_s(span), case.baseline.observed_s)
    evidence = (
        Evidence("median growth of demand", middle, "1"),
        Evidence("tenants that grew", float(grew), "1"),
        Evidence("tenants", float(len(asked)), "1"),
    )
    few = any(len(d.tenants) > 1 for d in asked)
    whom = f"{len(asked)} tenants{' and groups of small ones' if few else ''}"
    numbers = f"{grew} of {whom} ask more; the median {times(middle)} the usual"
    yes = grew >= MIN_TENANTS and grew >= MOST * len(asked)
    # Half of those that are as usual ask for more; twice that count's deviation is beyond chance.
    beyond = more >= 0.5 * len(asked) + math.sqrt(len(asked))
    if not yes and together is not None and beyond:
        yes = True
        numbers = f"{more} of {whom} ask more; together {times(together)} the usual"
    if yes:
        said = f"EVERYONE grew: {numbers}"
        return Finding("everyone", Holds.YES, said, Strength.ASSOCIATED, None, evidence)
    return Finding("everyone", Holds.NO, f"NOT everyone: {numbers}", None, None, evidence)


def _together(
    asked: Sequence[Demand], middle: float, seen_s: float, before_s: float
) -> float | None:
    """What all but the largest rise, and those that outgrew the others, have grown by together;
    None where that is less than half as much again, or may be chance, or is not counted."""
    largest = max(asked, key=lambda d: d.now - d.usual)
    bound = OUTGREW * max(1.0, middle)
    rest = [d for d in asked if d is not largest and d.growth < bound]
    counted = sum(d.requests or 0.0 for d in rest)
    usual = sum(d.usual for d in rest)
    if not counted or not usual:
        return None
    growth = sum(d.now for d in rest) / usual
    chance = DEVIATIONS * LENGTHS_VARY * math.sqrt((1.0 + seen_s / before_s) / counted)
    return growth if growth >= ROSE and growth - 1.0 > chance else None
