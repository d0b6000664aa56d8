"""KV pressure: was the pool full, and did requests wait for its pages?"""

from __future__ import annotations

from collections.abc import Sequence

from telemetry.case import Case
from telemetry.evidence import stuck
from telemetry.findings.causes import PART, SOME, holder_of, share
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import name, percent
from telemetry.window import Bucket

FULL = 0.75  # of the pool, on average: a request of any size may have to wait


def kv_pressure(case: Case) -> Finding:
    """Holds where part of the excess was waited for pages, and the pool was three quarters full
    where that is known; and where most was, whatever the level says."""
    part = share(case, "kv")
    frozen = stuck(case.window, "kv_bytes_avg")
    level = None if frozen else occupancy(case.buckets)
    usual = None if frozen else occupancy(case.baseline.buckets)
    evidence = (
        Evidence("share of the excess", part, "1"),
        Evidence("pool in use", level, "1"),
        Evidence("pool in use, usual", usual, "1"),
    )
    if part is None and level is None:
        return missing("kv_pressure", "neither waits for pages nor the pool's level are known")
    full = "level not known" if level is None else f"pool {percent(level)} full"
    full += f", usual {percent(usual)}" if usual is not None and level is not None else ""
    numbers = f"{full}; {percent(part)} of the excess" if part is not None else full
    pressed = part is not None and (
        part >= SOME or (part >= PART and (level is None or level >= FULL))
    )
    if not pressed:
        return Finding("kv_pressure", Holds.NO, f"NOT KV: {numbers}", None, None, evidence)
    behind = holder_of(case, "kv")
    most = f", {percent(behind[1])} of it {name(behind[0])}'s" if behind else ""
    said = f"KV pressure: {numbers}{most}"
    return Finding("kv_pressure", Holds.YES, said, Strength.CHARGED, None, evidence)


def occupancy(buckets: Sequence[Bucket]) -> float | None:
    """KV and adapters in use over the arena, weighed by time; None where a part is missing."""
    held, whole = 0.0, 0.0
    for b in buckets:
        e = b.engine
        if e is None or e.kv_bytes_avg is None or e.kv_bytes_avg < 0 or not e.pool_bytes:
            continue
        used = e.kv_bytes_avg + max(0.0, e.adapter_bytes_avg or 0.0)
        held += used / e.pool_bytes * b.observed_s
        whole += b.observed_s
    return held / whole if whole else None
