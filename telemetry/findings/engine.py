"""Engine: were the steps slower than the cost model expects, and than usual?"""

from __future__ import annotations

from telemetry.attribution import CAPACITY_HELD
from telemetry.case import SLOW, Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import percent, times

SOME = 0.15  # of the excess: capacity is more than a side effect
MOST = 0.5  # of the excess: capacity is the answer whatever the pace says


def engine(case: Case) -> Finding:
    """Holds where capacity holds half of the excess; or where steps are a fifth slower than usual
    at equal batch and capacity holds more than a side effect (or nobody waited at all)."""
    pace = case.pace
    lines = case.lines
    whole = sum(x.excess_s for x in lines)
    share = sum(x.share for x in lines if x.holder == CAPACITY_HELD)
    evidence = (
        Evidence("step time over the model, now", pace.now, "1"),
        Evidence("step time over the model, usual", pace.usual, "1"),
        Evidence("capacity's share of the excess", share if whole else None, "1"),
    )
    if pace.now is None:
        return missing("engine", "busy or predicted step time is missing")
    against = f"steps {times(pace.now)} the model"
    if pace.usual is not None:
        against += f", usual {times(pace.usual)}"
    part = f"; capacity {percent(share)} of the excess" if whole else ""
    slow = pace.slowdown is not None and pace.slowdown >= SLOW
    holds = (whole > 0 and share >= MOST) or (
        slow and bool(case.hurt) and (whole == 0 or share > SOME)
    )
    if holds:
        return Finding(
            "engine", Holds.YES, f"ENGINE slow: {against}{part}", Strength.CHARGED, None, evidence
        )
    if slow and not case.hurt:
        return Finding("engine", Holds.NO, f"engine slow, nobody hurt: {against}", None, None,
                       evidence)  # fmt: skip
    return Finding("engine", Holds.NO, f"NOT the engine: {against}{part}", None, None, evidence)
