"""Hurt: who missed targets or waited beyond the baseline, and since when."""

from __future__ import annotations

from telemetry.case import Case, Victim
from telemetry.conventions import WAIT_REASONS
from telemetry.findings.finding import Evidence, Finding, Holds, missing
from telemetry.plain import name, percent, span_s
from telemetry.window import told

TOLD_BY = ("slo_eligible", "slo_missed", *(f"wait_{r}_s" for r in WAIT_REASONS))


def hurt(case: Case) -> Finding:
    """Holds where a tenant other than by itself was hurt, beyond the floors and minimum counts."""
    if not case.buckets:
        return missing("hurt", "no engine was heard in this window")
    if not case.baseline.usable:
        return missing("hurt", case.baseline.problem or "no baseline")
    if not told(case.buckets, TOLD_BY):
        return missing("hurt", "the rows carry neither waits nor targets kept or missed")
    victims = case.victims
    if not victims:
        numbers = (
            Evidence("tenants hurt", 0.0, "1"),
            Evidence("tenants hurt by themselves", float(len(case.hurt)), "1"),
        )
        said = f"0 of {len(case.tenants)} tenants missed targets or waited beyond the usual"
        if case.hurt:
            said = f"nobody else is hurt; {one(case.hurt[0])}"
        return Finding("hurt", Holds.NO, said, None, None, numbers)
    worst = max(victims, key=lambda v: (v.missed, v.excess_s))
    many = f"{len(victims)} tenants" if len(victims) > 1 else "1 tenant"
    return Finding(
        "hurt",
        Holds.YES,
        f"{many} hurt; {one(worst)}",
        None,
        worst.tenant,
        (
            Evidence("tenants hurt", float(len(victims)), "1"),
            Evidence("misses", float(sum(v.missed for v in victims)), "1"),
            Evidence("excess wait", sum(v.excess_s for v in victims), "s"),
        ),
    )


def one(victim: Victim) -> str:
    """A victim in a few words."""
    who = name(victim.tenant)
    if victim.missed:
        return (
            f"{who} missed {victim.missed} of {victim.eligible} "
            f"({percent(victim.miss_share)}, usual {percent(victim.usual_miss_share)})"
        )
    return f"{who} waited {span_s(victim.excess_s)} more than usual"
