"""Outside: were targets missed without waiting in this pool? Then it was the front, or beyond."""

from __future__ import annotations

from telemetry.case import WAIT_FLOOR_S, Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import percent, span_s

MOST = 0.5  # of all that the victims waited beyond usual


def outside(case: Case) -> Finding:
    """Holds where the victims missed targets and most of what they waited beyond usual was in the
    front; or nothing was waited anywhere, and the steps took what they always take."""
    victims = [v.tenant for v in case.victims]
    if not victims:
        none = (Evidence("tenants hurt", 0.0, "1"),)
        return Finding("outside", Holds.NO, "NOT outside: 0 tenants hurt", None, None, none)
    fronts = [case.total(t, "wait_front_s") for t in victims]
    front = None
    if any(f is not None for f in fronts):
        front = sum(case.beyond(t, "wait_front_s") for t in victims)
    pool = sum(case.accounts.accounts[t].net_s for t in victims)
    pool += sum(case.beyond(t, "stall_s") for t in victims)
    evidence = (
        Evidence("waited in the front, beyond usual", front, "s"),
        Evidence("waited and stalled in the pool, beyond usual", pool, "s"),
    )
    if pool >= WAIT_FLOOR_S and (front is None or front < MOST * (front + pool)):
        part = "" if front is None else f", {percent(front / (front + pool))} in the front"
        said = f"NOT outside: {span_s(pool)} beyond usual in this pool{part}"
        return Finding("outside", Holds.NO, said, None, None, evidence)
    if front is None:
        return missing("outside", "what was waited in the front is not in the rows")
    if front >= WAIT_FLOOR_S:
        said = f"FRONT END: {span_s(front)} waited before the pool, {span_s(pool)} in it"
        return Finding("outside", Holds.YES, said, Strength.CHARGED, None, evidence)
    if case.slow:
        said = f"NOT outside: the steps are slow, {span_s(pool)} waited in this pool"
        return Finding("outside", Holds.NO, said, None, None, evidence)
    said = (
        f"OUTSIDE: targets missed, {span_s(front)} waited in the front, {span_s(pool)} in the pool"
    )
    return Finding("outside", Holds.YES, said, Strength.ASSOCIATED, None, evidence)
