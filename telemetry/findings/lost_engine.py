"""Lost engine: did a worker of the pool fall silent while others went on?"""

from __future__ import annotations

from telemetry.baseline import usual_workers
from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import percent

MISSING = 0.75  # of a worker: less is a row cut short by a start or a stop
AT_LEAST = 0.5  # of a bucket's length


def lost_engine(case: Case) -> Finding:
    """Holds where, in a bucket of the incident, a worker less was heard than usual and others were
    heard. A silence of all of them is a gap of the record, and is said as one; the newest bucket
    alone may only be late."""
    usual = usual_workers(case.baseline)
    if usual is None:
        return missing("lost_engine", "it is not known how many workers there usually are")
    known = [b for b in case.buckets if b.workers is not None and b.known]
    if not known:
        return missing("lost_engine", "the rows do not say which workers were heard")
    short = [b for b in known if b.observed_s >= AT_LEAST * b.length_s
             and usual - (b.workers or 0.0) >= MISSING]  # fmt: skip
    newest = max((b.start for b in case.window.buckets if b.known), default=0.0)
    late = [b.start for b in short] == [newest]
    least = min(b.workers or 0.0 for b in known)
    evidence = (
        Evidence("workers heard, usual", usual, "1"),
        Evidence("workers heard, least", least, "1"),
        Evidence("buckets with a worker less", float(len(short)), "1"),
    )
    if late or not short:
        when = "throughout, but for the newest bucket: that may be late" if late else "throughout"
        said = f"NOT a lost engine: {round(usual)} of {round(usual)} workers heard {when}"
        return Finding("lost_engine", Holds.NO, said, None, None, evidence)
    gone = round(usual - least)
    lasted = sum(b.length_s for b in short)
    said = (
        f"ENGINE LOST: {gone} of {round(usual)} workers not heard for {lasted / 60:.0f} min, "
        f"{percent(gone / usual)} of the capacity"
    )
    return Finding("lost_engine", Holds.YES, said, Strength.CHARGED, None, evidence)
