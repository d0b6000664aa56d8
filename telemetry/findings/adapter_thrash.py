"""Adapter thrash and the cliff: did loading adapters over and over hold the victims, and because
those asked for no longer fit beside the KV?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from telemetry.case import Case
from telemetry.findings.causes import PART, share
from telemetry.findings.finding import Evidence, Finding, Holds, Strength, missing
from telemetry.plain import percent
from telemetry.window import Bucket, engine_total, observed_s

RELOAD_S = 60.0  # a load this soon after the eviction of the same adapter is a reload
LOADS_A_SECOND = 0.5
ADAPTER_SHARE = 0.3  # of the excess wait, for the adapter: the main cause
OVER_USUAL = 2.0


def adapter_thrash(case: Case) -> Finding:
    """Holds where loads are twice the usual and waits for adapters matter: loads are frequent, or
    adapters come back within a minute of their eviction because those in use do not fit."""
    loads = engine_total(case.buckets, "loads")
    seen = observed_s(case.buckets)
    if loads is None or not seen:
        return missing("adapter_thrash", "the count of adapter loads is missing")
    rate = loads / seen
    usual = engine_total(case.baseline.buckets, "loads")
    usual_rate = (
        usual / case.baseline.observed_s if usual is not None and case.baseline.observed_s else None
    )
    part = share(case, "adapter")
    reloads = reload_count(case)
    working, room = working_bytes(case, loads), room_bytes(case.buckets)
    cliff = working is not None and room is not None and working > room
    evidence = (
        Evidence("adapter loads", rate, "1/s"),
        Evidence("adapter loads, usual", usual_rate, "1/s"),
        Evidence("reloads within 60 s of eviction", float(reloads), "1"),
        Evidence("share of the excess waiting for adapters", part, "1"),
        Evidence("adapters asked for", working, "By"),
        Evidence("room beside the KV", room, "By"),
    )
    numbers = f"{rate:.2f} loads/s"
    if usual_rate is not None:
        numbers += f", usual {usual_rate:.2f}"
    numbers += f"; {percent(part)} of the excess waited for adapters" if part is not None else ""
    more = usual_rate is None or rate >= OVER_USUAL * usual_rate
    often = rate >= LOADS_A_SECOND and (part or 0.0) >= ADAPTER_SHARE
    back = (cliff or reloads > 0) and (part or 0.0) >= PART
    if loads and more and (often or back):
        what = "ADAPTER cliff" if cliff else "ADAPTERS thrash"
        return Finding(
            "adapter_thrash", Holds.YES, f"{what}: {numbers}", Strength.CHARGED, None, evidence
        )
    return Finding("adapter_thrash", Holds.NO, f"NOT adapters: {numbers}", None, None, evidence)


def working_bytes(case: Case, loads: float) -> float | None:
    """Adapters that requests of the incident named, times the bytes of a load. None where requests
    are not in the rows, or nothing was loaded: an estimate, and only of those loaded."""
    copied = sum(case.total(t, "swap_in_bytes") or 0.0 for t in case.tenants)
    named = {
        (r.tenant, r.adapter)
        for r in case.window.requests
        if r.adapter is not None and case.start <= r.arrived < case.end
    }
    return len(named) * copied / loads if named and copied and loads else None


def room_bytes(buckets: Sequence[Bucket]) -> float | None:
    """What the arena has left beside the KV, in the middle one of the buckets."""
    left = [
        b.engine.pool_bytes - b.engine.kv_bytes_avg
        for b in buckets
        if b.engine is not None and b.engine.pool_bytes and b.engine.kv_bytes_avg is not None
    ]
    return median(left) if left else None


def reload_count(case: Case) -> int:
    """Loads of an adapter within 60 s of its own eviction, from the events. An adapter that is
    evicted again was loaded in between, whether that has an event or not."""
    evicted: dict[str, float] = {}
    loaded: set[str] = set()
    count = 0
    for e in case.window.events:
        if e.adapter is None or e.at >= case.end:
            continue
        if e.kind == "evict":
            again = e.at - evicted.get(e.adapter, -RELOAD_S * 2) <= RELOAD_S
            count += again and e.adapter not in loaded and e.at >= case.start
            evicted[e.adapter] = e.at
            loaded.discard(e.adapter)
        elif e.kind == "load" and e.at >= case.start:
            loaded.add(e.adapter)
            count += e.at - evicted.get(e.adapter, -RELOAD_S * 2) <= RELOAD_S
    return count
