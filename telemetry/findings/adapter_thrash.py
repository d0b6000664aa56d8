"""Adapter thrash: did loading adapters over and over hold the victims?"""

from __future__ import annotations

from telemetry.case import Case
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import percent
from telemetry.window import engine_total, observed_s

RELOAD_S = 60.0  # a load this soon after the eviction of the same adapter is a reload
LOADS_A_SECOND = 0.5
ADAPTER_SHARE = 0.3  # of the excess wait, for the adapter


def adapter_thrash(case: Case) -> Finding:
    """Holds where loads are frequent, twice the usual, and waits for adapters matter."""
    loads = engine_total(case.buckets, "loads")
    seen = observed_s(case.buckets)
    if loads is None or not seen:
        return missing("adapter_thrash", "the count of adapter loads is missing")
    rate = loads / seen
    usual = engine_total(case.baseline.buckets, "loads")
    usual_rate = (
        usual / case.baseline.observed_s if usual is not None and case.baseline.observed_s else None
    )
    whole = sum(x.excess_s for x in case.lines)
    waits = sum(s for x in case.lines for r, s in x.reasons if r == "adapter")
    share = waits / whole if whole else 0.0
    reloads = reload_count(case)
    evidence = (
        Evidence("adapter loads", rate, "1/s"),
        Evidence("adapter loads, usual", usual_rate, "1/s"),
        Evidence("reloads within 60 s of eviction", float(reloads), "1"),
        Evidence("share of the excess waiting for adapters", share if whole else None, "1"),
    )
    numbers = f"{rate:.2f} loads/s"
    if usual_rate is not None:
        numbers += f", usual {usual_rate:.2f}"
    numbers += f"; {percent(share)} of the excess waited for adapters" if whole else ""
    often = rate >= LOADS_A_SECOND and (usual_rate is None or rate >= 2 * usual_rate)
    if often and share >= ADAPTER_SHARE:
        return Finding(
            "adapter_thrash", Holds.YES, f"ADAPTERS thrash: {numbers}", Strength.CHARGED, None,
            evidence,
        )  # fmt: skip
    return Finding("adapter_thrash", Holds.NO, f"NOT adapters: {numbers}", None, None, evidence)


def reload_count(case: Case) -> int:
    """Loads of an adapter within 60 s of its own eviction, from the events."""
    evicted: dict[str, float] = {}
    count = 0
    for e in case.window.events:
        if e.adapter is None or e.at >= case.end:
            continue
        if e.kind == "evict":
            evicted[e.adapter] = e.at
        elif e.kind == "load" and e.at >= case.start:
            count += e.at - evicted.get(e.adapter, -RELOAD_S * 2) <= RELOAD_S
    return count
