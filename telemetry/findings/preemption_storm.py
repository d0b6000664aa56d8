"""Preemption storm: were running sequences thrown out over and over, and computed again?"""

from __future__ import annotations

from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent
from telemetry.window import engine_total, observed_s

A_MINUTE = 1.0
OVER_USUAL = 3.0
MIN_COUNT = 3
ONE = 0.5  # of them, caused by one tenant


def preemption_storm(case: Case) -> Finding:
    """Holds where there is a preemption a minute or more, three times the usual."""
    count, seen = engine_total(case.buckets, "preemptions"), observed_s(case.buckets)
    if count is None or not seen:
        return missing("preemption_storm", "the count of preemptions is missing")
    before = engine_total(case.baseline.buckets, "preemptions")
    rate = 60.0 * count / seen
    length = case.baseline.observed_s
    usual = 60.0 * before / length if before is not None and length else None
    again = sum(case.total(t, "recomputed_tokens") or 0.0 for t in case.tenants)
    computed = sum(case.total(t, "prompt_tokens") or 0.0 for t in case.tenants)
    redone = again / (computed + again) if computed + again else None
    evidence = (
        Evidence("preemptions", count, "1"),
        Evidence("preemptions a minute", rate, "1/min"),
        Evidence("preemptions a minute, usual", usual, "1/min"),
        Evidence("part of the prefill done again", redone, "1"),
    )
    numbers = f"{rate:.1f} a minute" + (f", usual {usual:.1f}" if usual is not None else "")
    numbers += f"; {percent(redone)} of the prefill again" if redone is not None else ""
    often = count >= MIN_COUNT and rate >= A_MINUTE
    if not often or (usual is not None and rate < OVER_USUAL * usual):
        return Finding(
            "preemption_storm", Holds.NO, f"NOT preemption: {numbers}", None, None, evidence
        )
    who = _causer(case, count)
    by = f", most by {name(who)}" if who is not None else ""
    return Finding(
        "preemption_storm", Holds.YES, f"PREEMPTION storm: {numbers}{by}", Strength.CHARGED, who,
        evidence,
    )  # fmt: skip


def _causer(case: Case, count: float) -> str | None:
    caused = {t: case.total(t, "preemptions_caused") or 0.0 for t in case.tenants}
    first = max(sorted(caused), key=lambda t: caused[t], default=None)
    return first if first is not None and caused[first] >= ONE * count else None
