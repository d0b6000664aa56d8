"""Frozen: work was waiting, no token came, and the step took the time."""

from __future__ import annotations

from telemetry.case import Case
from telemetry.evidence import stuck
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import span_s
from telemetry.window import Bucket

FROZEN_S = 3.0
LOST_PART = 0.5  # of the silence must be time beyond the model, else a long prefill explains it


def frozen(case: Case) -> Finding:
    """Holds where no token came for 3 s with work waiting, and as much capacity was lost."""
    known = [(b, a) for b in case.buckets if (a := age_s(b)) is not None]
    if not known:
        return missing("frozen", "the age of the last token is missing")
    bucket, age = max(known, key=lambda p: p[1])
    if age >= FROZEN_S and stuck(case.window, "last_token_age_max_s"):
        return missing("frozen", f"the age of the last token reads {span_s(age)} in every bucket")
    # A silence that crosses buckets is lost in each of them.
    lost = sum(_lost(b) for b in case.buckets if bucket.start - age - b.length_s <= b.start
               and b.start <= bucket.start)  # fmt: skip
    evidence = (
        Evidence("longest time without a token", age, "s"),
        Evidence("capacity lost meanwhile", lost, "s"),
        Evidence("bucket", bucket.start, "s"),
    )
    if age < FROZEN_S:
        return Finding(
            "frozen", Holds.NO, f"NOT frozen: at most {span_s(age)} without a token", None, None,
            evidence,
        )  # fmt: skip
    if lost < LOST_PART * age:
        return Finding(
            "frozen",
            Holds.NO,
            f"NOT frozen: {span_s(age)} without a token, but the steps went on as expected",
            None,
            None,
            evidence,
        )
    return Finding(
        "frozen",
        Holds.YES,
        f"FROZEN: no token for {span_s(age)} with work waiting, {span_s(lost)} of capacity lost",
        Strength.CHARGED,
        None,
        evidence,
    )


def age_s(bucket: Bucket) -> float | None:
    """Longest time without a token in the bucket, work waiting."""
    if bucket.engine is None:
        return None
    ages = (bucket.engine.last_token_age_max_s, bucket.engine.last_token_age_s)
    return max((a for a in ages if a is not None), default=None)


def _lost(bucket: Bucket) -> float:
    return (bucket.engine.capacity_s or 0.0) if bucket.engine else 0.0
