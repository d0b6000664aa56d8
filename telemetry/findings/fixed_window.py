"""Fixed window: do a tenant's arrivals bunch at the edge of the minute? A limit counted from whole
minute to whole minute lets two minutes' worth through at once there."""

from __future__ import annotations

from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent

MINUTE_S = 60.0  # what limits are counted over
EDGE_S = 5.0  # on either side
BUNCHED = 0.5  # of the arrivals; evenly spread it is a sixth
MIN_COUNT = 30
HOLDS = 0.15  # of the excess: who holds less is not looked at


def fixed_window(case: Case) -> Finding:
    """Holds where half of the arrivals of a tenant that holds part of the excess lie within 5 s of
    a minute's edge, on both sides of it."""
    if not case.window.requests:
        return missing("fixed_window", "there are no rows of requests")
    held = [x.holder.name for x in case.lines if x.holder.is_tenant and x.share >= HOLDS]
    arrived: dict[str, list[float]] = {t: [] for t in held}
    first = case.start - EDGE_S
    for r in case.window.requests:
        if r.tenant in arrived and first <= r.arrived < case.end:
            arrived[r.tenant].append(r.arrived % MINUTE_S)
    most, who, numbers = 0.0, None, (0.0, 0.0, 0)
    for tenant, at in arrived.items():
        if len(at) < MIN_COUNT:
            continue
        before = sum(a >= MINUTE_S - EDGE_S for a in at) / len(at)
        after = sum(a < EDGE_S for a in at) / len(at)
        if who is None or before + after > most:
            most, who, numbers = before + after, tenant, (before, after, len(at))
    before, after, count = numbers
    evidence = (
        Evidence("arrivals within 5 s of a minute's edge", most if who else None, "1"),
        Evidence("before the edge", before if who else None, "1"),
        Evidence("after the edge", after if who else None, "1"),
        Evidence("arrivals", float(count), "1"),
    )
    if who is None:
        said = f"NOT a fixed window: no holder with {MIN_COUNT} arrivals"
        return Finding("fixed_window", Holds.NO, said, None, None, evidence)
    if most < BUNCHED or min(before, after) < BUNCHED / 5:
        said = f"NOT a fixed window: {percent(most)} of {name(who)}'s arrivals at a minute's edge"
        return Finding("fixed_window", Holds.NO, said, None, None, evidence)
    said = f"FIXED WINDOW: {percent(most)} of {name(who)}'s {count} arrivals at a minute's edge"
    return Finding("fixed_window", Holds.YES, said, Strength.ASSOCIATED, who, evidence)
