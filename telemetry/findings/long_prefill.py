"""Long prefill: did running sequences stand still inside others' prefills, while hardly anybody
waited and the pool was as empty as ever?"""

from __future__ import annotations

from telemetry.attribution import STALL_REASONS
from telemetry.case import WAIT_FLOOR_S, Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent, span_s
from telemetry.window import told

ONE = 0.5  # of the stalls, behind one tenant


def long_prefill(case: Case) -> Finding:
    """Holds where the victims' excess is stall rather than wait and one tenant's prefill is most of
    it. With waits beside it stalls are what any prefill costs, and are excluded with their part."""
    if not told(case.buckets, ("stall_s",)):
        return missing("long_prefill", "the rows carry no stalls")
    names = [v.tenant for v in case.victims]
    stalls = sum(case.beyond(t, "stall_s") for t in names)
    waits = sum(case.accounts.accounts[t].net_s for t in names)
    evidence = (
        Evidence("excess stall", stalls, "s"),
        Evidence("excess wait", waits, "s"),
    )
    numbers = f"stalls {span_s(stalls)} beyond usual, waits {span_s(waits)}"
    if case.basis.reasons != STALL_REASONS or stalls < WAIT_FLOOR_S:
        return Finding(
            "long_prefill", Holds.NO, f"NOT long prefills: {numbers}", None, None, evidence
        )
    first = max((x for x in case.lines if x.holder.is_tenant), key=lambda x: x.share, default=None)
    if first is None or first.share < ONE:
        return Finding(
            "long_prefill", Holds.NO, f"NOT one tenant's prefills: {numbers}", None, None, evidence
        )
    who = first.holder.name
    said = f"LONG PREFILLS of {name(who)}: {percent(first.share)} of the stalls; {numbers}"
    return Finding("long_prefill", Holds.YES, said, Strength.CHARGED, who, evidence)
