"""Engine: were the steps slower than the cost model expects, and than usual?"""

from __future__ import annotations

from telemetry.case import Case
from telemetry.findings.causes import ENGINE, PART, shares
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import percent, times

MOST = 0.5  # of the excess: capacity is the answer whatever the pace says


def engine(case: Case) -> Finding:
    """Holds where slow steps hold half of the excess; or where steps are a fifth slower than usual
    at equal batch, over the incident or up to the worst of it, and hold part of the excess (or
    nobody waited at all)."""
    pace = case.pace
    whole = sum(x.excess_s for x in case.lines)
    share = shares(case).get(ENGINE, 0.0)
    evidence = (
        Evidence("step time over the model, now", pace.now, "1"),
        Evidence("step time over the model, up to the worst", case.onset_pace.now, "1"),
        Evidence("step time over the model, usual", pace.usual, "1"),
        Evidence("capacity's share of the excess", share if whole else None, "1"),
    )
    if pace.now is None:
        return missing("engine", "busy or predicted step time is missing")
    against = f"steps {times(pace.now)} the model"
    if pace.usual is not None:
        against += f", usual {times(pace.usual)}"
    part = f"; capacity {percent(share)} of the excess" if whole else ""
    worst = case.onset_pace.now
    if case.slow and worst is not None and worst > pace.now:
        against += f", {times(worst)} up to the worst"
    slow = case.slow
    holds = (whole > 0 and share >= MOST) or (
        slow and bool(case.hurt) and (whole == 0 or share > PART)
    )
    if holds:
        return Finding(
            "engine", Holds.YES, f"ENGINE slow: {against}{part}", Strength.CHARGED, None, evidence
        )
    if slow and not case.hurt:
        return Finding("engine", Holds.NO, f"engine slow, nobody hurt: {against}", None, None,
                       evidence)  # fmt: skip
    return Finding("engine", Holds.NO, f"NOT the engine: {against}{part}", None, None, evidence)
