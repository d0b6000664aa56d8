"""Lately: what the last minutes and hours of one pool add up to. Sums only; judges nothing.

The store's process makes it of named queries, who has a window makes it of that
(`lately_of`): the findings that read it cannot tell which. Open buckets are in the sums.
Absent is not zero: a span says how much of it was observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from telemetry.findings.adapter_thrash import RELOAD_S
from telemetry.window import Bucket, Window, engine_total, observed_s, tenants_of, total, wait_s

FAST_S, FAST_LONG_S = 300.0, 3600.0
SLOW_S, SLOW_LONG_S = 1800.0, 21_600.0
ENOUGH = 0.5  # of a span must be observed before what it does not hold is held for absent


@dataclass(frozen=True, slots=True)
class Sums:
    """One tenant over one span. `waited_s`: all reasons; `adapter_s`: for adapters only."""

    missed: float = 0.0
    eligible: float = 0.0
    service: float = 0.0
    waited_s: float = 0.0
    adapter_s: float = 0.0
    backlogged_s: float = 0.0
    weight: float = 1.0


NOTHING = Sums()


@dataclass(frozen=True, slots=True)
class Span:
    """All tenants over the `length_s` before `Lately.at`, of which `observed_s` were observed."""

    length_s: float
    observed_s: float
    tenants: Mapping[str, Sums]

    @property
    def known(self) -> bool:
        return self.observed_s >= ENOUGH * self.length_s

    def of(self, tenant: str) -> Sums:
        return self.tenants.get(tenant, NOTHING)

    @property
    def service(self) -> float:
        return sum(t.service for t in self.tenants.values())

    @property
    def waited_s(self) -> float:
        return sum(t.waited_s for t in self.tenants.values())


@dataclass(frozen=True, slots=True)
class Beat:
    """One engine's signs of life; None = not known.

    `silent_s`: since it was last heard, by a clock that nobody sets; `token_age_s`: since the last
    token while work waits, at its last word; `skew_s`: its clock ahead of the store's; `missing_s`
    of the last hour were not observed; `refused` points and `lost` batches lately; `stopped`: it
    said that it stops.
    """

    engine: str
    silent_s: float | None = None
    token_age_s: float | None = None
    skew_s: float | None = None
    missing_s: float | None = None
    refused: int | None = None
    lost: int | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Adapters:
    """Moves of adapters over `over_s`; the bytes of those asked for, and the room beside the KV.

    An adapter that is evicted within a minute of its last eviction was loaded in between: that is
    a reload, counted from the evictions, because a load that went well is no event. At least so
    many there were."""

    over_s: float
    loads: float
    reloads: float
    working_bytes: float | None
    room_bytes: float | None


@dataclass(frozen=True, slots=True)
class Lately:
    """`at` is the end of the newest interval heard, on the engines' clocks: no setting of the
    store's clock moves it. `current`: somebody of the pool is still heard; where nobody is, what
    the spans hold is old, and nothing follows from it."""

    pool: str
    at: float
    fast: Span
    fast_long: Span
    slow: Span
    slow_long: Span
    beats: tuple[Beat, ...] = ()
    adapters: Adapters | None = None
    current: bool = True

    @property
    def engine(self) -> str:
        """The engine's name where there is one, `several` otherwise."""
        names = {b.engine for b in self.beats}
        return next(iter(names)) if len(names) == 1 else "several"


def lately_of(window: Window) -> Lately:
    """The same of a window whose buckets reach back far enough; beats know only what rows say."""
    at = max((b.start + b.observed_s for b in window.asked if b.known), default=window.end)
    known = [b for b in window.buckets if b.known and b.start < at]
    hour = [b for b in known if b.start >= at - FAST_LONG_S]
    missing = None
    if hour:
        missing = max(0.0, at - hour[0].start - observed_s(hour))
    age = known[-1].engine.last_token_age_s if known and known[-1].engine else None
    beats = tuple(
        Beat(e, token_age_s=age, missing_s=missing)
        for e in sorted({e for b in known for e in b.engines})
    )
    return Lately(
        window.pool,
        at,
        _span(window.buckets, at, FAST_S),
        _span(window.buckets, at, FAST_LONG_S),
        _span(window.buckets, at, SLOW_S),
        _span(window.buckets, at, SLOW_LONG_S),
        beats,
        _adapters(window, at),
        bool(known),
    )


def _span(buckets: Iterable[Bucket], at: float, length_s: float) -> Span:
    mine = [b for b in buckets if at - length_s <= b.start < at]
    sums: dict[str, Sums] = {}
    for tenant in tenants_of(mine):
        weights = [r.weight for b in mine if (r := b.tenants.get(tenant)) and r.weight is not None]
        sums[tenant] = Sums(
            missed=total(mine, tenant, "slo_missed") or 0.0,
            eligible=total(mine, tenant, "slo_eligible") or 0.0,
            service=total(mine, tenant, "service") or 0.0,
            waited_s=sum(wait_s(b, tenant) or 0.0 for b in mine),
            adapter_s=total(mine, tenant, "wait_adapter_s") or 0.0,
            backlogged_s=total(mine, tenant, "backlogged_s") or 0.0,
            weight=max(weights, default=1.0),
        )
    return Span(length_s, min(length_s, observed_s(mine)), sums)


def _adapters(window: Window, at: float) -> Adapters | None:
    """Bytes are not in a window: whether the working set fits stays open."""
    evicted: dict[str, float] = {}
    reloads = 0
    for e in window.events:
        if e.adapter is None or e.kind != "evict" or not at - FAST_S - RELOAD_S <= e.at < at:
            continue
        last = evicted.get(e.adapter, e.at - 2 * RELOAD_S)
        reloads += e.at - last <= RELOAD_S and e.at >= at - FAST_S
        evicted[e.adapter] = e.at
    near = [b for b in window.buckets if at - FAST_S <= b.start < at]
    loads = engine_total(near, "loads")
    return None if loads is None else Adapters(FAST_S, loads, reloads, None, None)
