"""Dead man: does telemetry itself still speak? Silence, missing minutes, skewed clocks, loss.

Silence is measured by a clock that nobody sets, from what was heard: no jump makes an engine
silent. Missing evidence is unknown, never alive and never dead.
"""

from __future__ import annotations

from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.findings.lately import Beat, Lately
from telemetry.findings.limits import DEFAULT, Limits
from telemetry.plain import name, span_s


def silent(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where an engine that did not say it stops has not been heard for a minute."""
    beats = [b for b in lately.beats if b.silent_s is not None]
    if not beats:
        return missing("silent", "no engine is known")
    gone = [b for b in beats if not b.stopped and (b.silent_s or 0.0) >= limits.silent_s]
    if not gone:
        return Finding("silent", Holds.NO, f"NOT silent: {len(beats)} of {len(beats)} are heard")
    worst = max(gone, key=lambda b: b.silent_s or 0.0)
    return _holds(
        "silent",
        f"SILENT: engine {name(worst.engine)} has not been heard for "
        f"{span_s(worst.silent_s or 0.0)}; what it does is unknown",
        "silent for",
        worst.silent_s,
        len(gone),
    )


def minutes_missing(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where an engine gave batches up, or 2 min of its last hour were not observed. What was
    late fills them, and it no longer holds. Open buckets count with what they have observed."""
    lost = max(((b.lost or 0, b.engine) for b in lately.beats), default=(0, ""))
    if lost[0]:
        said = f"LOST: engine {name(lost[1])} gave up {lost[0]} batches on the way to the store"
        return _holds("minutes_missing", said, "batches", float(lost[0]), 1)
    return _worst(
        "minutes_missing",
        [(b.missing_s, b) for b in lately.beats if b.missing_s is not None],
        limits.missing_s,
        "of the last hour of engine {} were not observed",
        "missing",
    )


def clock_skew(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where an engine's clock and the store's are 30 s apart, or its rows come that late."""
    beats = [(abs(b.skew_s), b) for b in lately.beats if b.skew_s is not None]
    return _worst(
        "clock_skew",
        beats,
        limits.skew_s,
        "between the clock of engine {} and the store's, or its rows come that late",
        "skew",
    )


def refused(lately: Lately, limits: Limits = DEFAULT) -> Finding:
    """Holds where points or records of the last quarter of an hour were refused."""
    counts = [(b.refused, b) for b in lately.beats if b.refused is not None]
    if not counts:
        return missing("refused", "no engine is known")
    count, beat = max(counts, key=lambda c: c[0])
    if not count:
        return Finding("refused", Holds.NO, "NOT refused: all points were taken")
    said = f"REFUSED: {count} points of engine {name(beat.engine)} were not taken"
    return _holds("refused", said, "points", float(count), 1)


def _worst(
    called: str, found: list[tuple[float, Beat]], limit: float, words: str, number: str
) -> Finding:
    if not found:
        return missing(called, "no engine was heard")
    worst, beat = max(found, key=lambda f: f[0])
    said = f"{span_s(worst)} {words.format(name(beat.engine))}"
    if worst < limit:
        evidence = (Evidence(number, worst, "s"),)
        return Finding(called, Holds.NO, f"only {said}", None, None, evidence)
    return _holds(called, said, number, worst, sum(v >= limit for v, _ in found))


def _holds(called: str, said: str, number: str, value: float | None, engines: int) -> Finding:
    return Finding(
        called,
        Holds.YES,
        said,
        Strength.ASSOCIATED,
        None,
        (Evidence(number, value, "1" if number in ("points", "batches") else "s"),
         Evidence("engines", float(engines), "1")),
    )  # fmt: skip
