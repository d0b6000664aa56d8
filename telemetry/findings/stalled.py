"""Stalled: work waits, and for a while no token has come. Said while it lasts; `frozen` says it
afterwards, with what was lost."""

from __future__ import annotations

from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.findings.lately import Lately
from telemetry.findings.limits import DEFAULT, Limits
from telemetry.plain import name, span_s


def stalled(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where the age of the last token, work waiting, is 10 s or more at an engine's last
    word. Open buckets are what it is for: the age is a level, and a frozen step seals nothing."""
    ages = [(b.token_age_s, b.engine) for b in lately.beats if b.token_age_s is not None]
    if not lately.current or not ages:
        return missing("stalled", "the age of the last token is missing")
    age, engine = max(ages)
    evidence = (Evidence("time without a token", age, "s"),)
    if age < limits.stalled_s:
        said = f"NOT stalled: {span_s(age)} since the last token"
        return Finding("stalled", Holds.NO, said, None, None, evidence)
    return Finding(
        "stalled",
        Holds.YES,
        f"STALLED: no token for {span_s(age)} in engine {name(engine)}, and work waits",
        Strength.CHARGED,
        None,
        evidence,
    )
