"""Two windows of one pool side by side: what changed, most first. Numbers only; prints nothing.

Rates are per observed second, so that windows of different length, or with gaps, compare. What is
not known on one side is None there, and no change is claimed of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from postmortem.report.model import Latency
from postmortem.report.requests import NONE, of_span
from postmortem.summed import Sums
from telemetry.baseline import pace_of
from telemetry.conventions import TENANT, WAIT_REASONS
from telemetry.source import Source
from telemetry.window import (
    Bucket,
    Window,
    engine_total,
    observed_s,
    read_window,
    rejected,
    tenants_of,
    total,
)

FLOOR = 0.01  # of the pool's total: what is less is noise, and no change is infinite
MOST_OCTAVES = 4.0  # a change of sixteen times is as much as any
MISS_FLOOR = 0.01  # of the judged requests
LATENCY_FLOOR_S = 0.02


@dataclass(frozen=True, slots=True)
class Side:
    """One window's numbers of one tenant, or of the pool (`tenant` None). Rates are a second."""

    tenant: str | None
    offered: float | None
    refused_share: float | None
    service: float | None
    service_share: float | None
    waits: tuple[float, ...]  # waiting seconds a second, by WAIT_REASONS: requests waiting
    held: float  # seconds of others' waits charged to it, a second
    miss_share: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_max_s: float | None
    n: int

    @property
    def waiting(self) -> float:
        return sum(self.waits)


@dataclass(frozen=True, slots=True)
class Changed:
    """One number of one tenant (None: of the pool), before and after. `ratio` None = from nothing,
    or to nothing. `score` ranks: octaves of change x the part of the pool that it is about."""

    tenant: str | None
    what: str
    unit: str
    before: float | None
    after: float | None
    ratio: float | None
    score: float


@dataclass(frozen=True, slots=True)
class Engine:
    """The pool's own numbers: step time, its ratio to the model, the part of the bytes in KV."""

    step_s: float | None
    pace: float | None
    kv_share: float | None
    observed_s: float
    buckets: int


@dataclass(frozen=True, slots=True)
class Span:
    """One of the two windows."""

    start: float
    end: float
    engine: Engine
    pool: Side
    tenants: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    pool: str
    before: Span
    after: Span
    changed: tuple[Changed, ...]


def compare(
    source: Source,
    before: tuple[float, float],
    after: tuple[float, float],
    *,
    pool: str | None = None,
) -> Comparison:
    """Raises PoolChoice and StoreError as reading does."""
    reads = Sums(source, math.inf)
    second = read_window(reads, *after, pool=pool)
    first = read_window(reads, *before, pool=pool or second.pool or None)
    a, b = _span(source, first), _span(source, second)
    return Comparison(second.pool or first.pool, a, b, changes(a, b))


# ---------------------------------------------------------------- one window


def _span(source: Source, window: Window) -> Span:
    known = [b for b in window.asked if b.known]
    latencies = of_span(source, window.start, window.end, window.pool)
    seen = observed_s(known)
    held = _held(known)
    service = sum(total(known, t, "service") or 0.0 for t in tenants_of(known))
    names = tenants_of(window.asked)
    sides = tuple(
        _side(window.asked, t, seen, service, held.get(t, 0.0), latencies.get(t, NONE))
        for t in names
    )
    return Span(
        window.start,
        window.end,
        _engine(known, seen),
        _pool(sides, known),
        sides,
    )


def _held(known: Sequence[Bucket]) -> Mapping[str, float]:
    out: dict[str, float] = {}
    for b in known:
        for c, s in b.matrix.items():
            if c.kind == TENANT and c.reason in WAIT_REASONS:
                out[c.holder] = out.get(c.holder, 0.0) + s
    return out


def _side(
    asked: Sequence[Bucket],
    tenant: str,
    seen: float,
    service: float,
    held: float,
    latency: Latency,
) -> Side:
    offered = total(asked, tenant, "offered_requests")
    refused = sum(rejected(b.tenants[tenant]) for b in asked if tenant in b.tenants)
    missed = total(asked, tenant, "slo_missed")
    eligible = max(missed or 0.0, total(asked, tenant, "slo_eligible") or 0.0)
    own = total(asked, tenant, "service")
    return Side(
        tenant,
        _rate(offered, seen),
        refused / offered if offered else None,
        _rate(own, seen),
        own / service if own is not None and service else None,
        tuple(_rate(total(asked, tenant, f"wait_{r}_s"), seen) or 0.0 for r in WAIT_REASONS),
        held / seen if seen else 0.0,
        (missed or 0.0) / eligible if eligible else None,
        latency.p50_s,
        latency.p99_s,
        latency.max_s,
        latency.n,
    )


def _pool(sides: Sequence[Side], known: Sequence[Bucket]) -> Side:
    names = tenants_of(known)
    offered = [s.offered for s in sides if s.offered is not None]
    whole = sum(offered)
    refused = sum((s.refused_share or 0.0) * (s.offered or 0.0) for s in sides)
    missed = sum(total(known, t, "slo_missed") or 0.0 for t in names)
    eligible = sum(total(known, t, "slo_eligible") or 0.0 for t in names)
    service = [s.service for s in sides if s.service is not None]
    return Side(
        None,
        whole if offered else None,
        refused / whole if whole else None,
        sum(service) if service else None,
        None,
        tuple(sum(s.waits[i] for s in sides) for i in range(len(WAIT_REASONS))),
        sum(s.held for s in sides),
        missed / max(missed, eligible) if eligible or missed else None,
        None,  # percentiles of tenants do not add up to one of the pool
        None,
        max((s.ttft_max_s for s in sides if s.ttft_max_s is not None), default=None),
        sum(s.n for s in sides),
    )


def _engine(known: Sequence[Bucket], seen: float) -> Engine:
    busy, steps = engine_total(known, "busy_s"), engine_total(known, "steps")
    shares = [
        (b.engine.kv_bytes_avg / b.engine.pool_bytes, b.observed_s)
        for b in known
        if b.engine is not None and b.engine.kv_bytes_avg is not None and b.engine.pool_bytes
    ]
    weight = sum(w for _, w in shares)
    return Engine(
        busy / steps if busy is not None and steps else None,
        pace_of(known),
        sum(s * w for s, w in shares) / weight if weight else None,
        seen,
        len(known),
    )


def _rate(value: float | None, seen: float) -> float | None:
    return value / seen if value is not None and seen else None


# ---------------------------------------------------------------- what changed


def changes(before: Span, after: Span) -> tuple[Changed, ...]:
    """Every number that is known on both sides, the greatest change first."""
    out = [*_pool_changes(before, after)]
    was = {s.tenant: s for s in before.tenants}
    now = {s.tenant: s for s in after.tenants}
    for tenant in sorted({t for t in (*was, *now) if t is not None}):
        out += _tenant_changes(tenant, was.get(tenant), now.get(tenant), before.pool, after.pool)
    return tuple(sorted(out, key=lambda c: (-c.score, c.tenant or "", c.what)))


def _pool_changes(before: Span, after: Span) -> list[Changed]:
    a, b = before.pool, after.pool
    out = [
        _changed(None, "requests offered", "1/s", a.offered, b.offered, 1.0, 1e-3),
        _changed(None, "service", "1/s", a.service, b.service, 1.0, 1e-3),
        _changed(None, "part refused", "1", a.refused_share, b.refused_share, 1.0, MISS_FLOOR),
        _changed(None, "part missed", "1", a.miss_share, b.miss_share, 1.0, MISS_FLOOR),
        _changed(None, "step time", "s", before.engine.step_s, after.engine.step_s, 1.0, 1e-4),
        _changed(None, "steps over the model", "1", before.engine.pace, after.engine.pace, 1.0,
                 1e-3),
        _changed(None, "KV of the pool", "1", before.engine.kv_share, after.engine.kv_share, 1.0,
                 FLOOR),
    ]  # fmt: skip
    for i, reason in enumerate(WAIT_REASONS):
        out.append(_changed(None, f"waiting for {reason}", "requests", a.waits[i], b.waits[i], 1.0,
                            0.05))  # fmt: skip
    return [c for c in out if c is not None]


def _tenant_changes(
    tenant: str, was: Side | None, now: Side | None, before: Side, after: Side
) -> list[Changed]:
    # Without a row it asked for nothing and got nothing, where the pool was heard at all.
    a, b = was or _idle(tenant, before), now or _idle(tenant, after)
    out: list[Changed | None] = []
    for what, unit, get in _PARTS:
        x, y, whole = get(a), get(b), max(get(before) or 0.0, get(after) or 0.0)
        part = max(x or 0.0, y or 0.0) / whole if whole else 0.0
        out.append(_changed(tenant, what, unit, x, y, min(1.0, part), FLOOR * whole))
    load = _part(a.offered, before.offered), _part(b.offered, after.offered)
    weight = max(load)
    out.append(_changed(tenant, "part missed", "1", a.miss_share, b.miss_share, weight, MISS_FLOOR))
    out.append(
        _changed(tenant, "part refused", "1", a.refused_share, b.refused_share, weight, MISS_FLOOR)
    )
    return [c for c in (*out, *_latency(tenant, a, b, weight)) if c is not None]


_PARTS: tuple[tuple[str, str, Callable[[Side], float | None]], ...] = (
    ("requests offered", "1/s", lambda s: s.offered),
    ("service", "1/s", lambda s: s.service),
    ("waiting", "requests", lambda s: s.waiting),
    ("held of others' waits", "requests", lambda s: s.held),
)


def _idle(tenant: str, pool: Side) -> Side:
    zero = None if pool.service is None else 0.0
    return Side(tenant, None if pool.offered is None else 0.0, None, zero, zero,
                (0.0,) * len(WAIT_REASONS), 0.0, None, None, None, None, 0)  # fmt: skip


def _part(value: float | None, whole: float | None) -> float:
    return value / whole if value is not None and whole else 0.0


def _latency(tenant: str, a: Side, b: Side, weight: float) -> list[Changed | None]:
    return [
        _changed(tenant, "TTFT p50", "s", a.ttft_p50_s, b.ttft_p50_s, weight, LATENCY_FLOOR_S),
        _changed(tenant, "TTFT p99", "s", a.ttft_p99_s, b.ttft_p99_s, weight, LATENCY_FLOOR_S),
    ]


def _changed(
    tenant: str | None,
    what: str,
    unit: str,
    before: float | None,
    after: float | None,
    weight: float,
    floor: float,
) -> Changed | None:
    """None where either side is not known, or both are nothing."""
    if before is None or after is None or (not before and not after):
        return None
    octaves = abs(math.log2(max(after, floor, 1e-12) / max(before, floor, 1e-12)))
    return Changed(
        tenant,
        what,
        unit,
        before,
        after,
        after / before if before and after else None,
        weight * min(octaves, MOST_OCTAVES),
    )
