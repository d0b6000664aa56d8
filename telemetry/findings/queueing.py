"""Queueing: did the victims wait for a free sequence slot, or for the step's budget?"""

from __future__ import annotations

from telemetry.case import Case
from telemetry.conventions import WAIT_REASONS
from telemetry.findings.causes import PART, holder_of, share
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent
from telemetry.window import engine_total, told

_WORDS = {"slot": "sequence slots", "budget": "the step's budget"}


def slot_queueing(case: Case) -> Finding:
    """Holds where a twentieth of the excess, or more, was waited for a slot."""
    return _queueing(case, "slot", "slot_queueing")


def budget_queueing(case: Case) -> Finding:
    """Holds where a twentieth of the excess, or more, was waited for tokens of a step."""
    return _queueing(case, "budget", "budget_queueing")


def _queueing(case: Case, reason: str, called: str) -> Finding:
    if not told(case.buckets, (f"wait_{r}_s" for r in WAIT_REASONS)):
        return missing(called, "the rows carry no waits")
    part = share(case, reason)
    busy = engine_total(case.buckets, "busy_s")
    evidence = (
        Evidence("share of the excess", part, "1"),
        Evidence("time inside steps", busy, "s"),
    )
    if part is None or part < PART:
        said = f"NOT {_WORDS[reason]}: "
        said += "0s of excess wait" if part is None else f"{percent(part)} of the excess"
        return Finding(called, Holds.NO, said, None, None, evidence)
    behind = holder_of(case, reason)
    most = f", {percent(behind[1])} of it behind {name(behind[0])}" if behind else ""
    said = f"QUEUE for {_WORDS[reason]}: {percent(part)} of the excess{most}"
    return Finding(called, Holds.YES, said, Strength.CHARGED, None, evidence)
