"""Own growth: does a tenant that is hurt wait behind what it asks for itself?"""

from __future__ import annotations

from telemetry.attribution import SELF_HELD
from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength
from telemetry.findings.holder import describe
from telemetry.plain import name, percent


def own_growth(case: Case) -> Finding:
    """Holds where a tenant whose own use rose is hurt, and by itself more than by anybody."""
    own = [v for v in case.hurt if v.self_inflicted and case.rose(v.tenant)]
    if not own:
        most = max((case.basis.held.share(v.tenant, SELF_HELD) for v in case.hurt), default=0.0)
        said = f"NOT its own growth: those hurt wait at most {percent(most)} behind themselves"
        largest = Evidence("largest share behind oneself", most, "1")
        return Finding("own_growth", Holds.NO, said, None, None, (largest,))
    worst = max(own, key=lambda v: (v.excess_s, v.tenant))
    share = case.basis.held.share(worst.tenant, SELF_HELD)
    rise = case.rose(worst.tenant)
    evidence = (
        Evidence("share behind itself", share, "1"),
        Evidence("tenants", float(len(own)), "1"),
        *(Evidence(f"{r.resource} over usual", r.ratio, "1") for r in rise),
    )
    said = (
        f"OWN GROWTH: {percent(share)} of {name(worst.tenant)}'s excess is behind itself; "
        f"{describe(rise)}"
    )
    return Finding("own_growth", Holds.YES, said, Strength.CHARGED, worst.tenant, evidence)
