"""Growth: what tenants ask for, now over usual, and the part of a rise that all of them share.

Pure functions of buckets and a baseline; says nothing of who waited. Who asks for something less
than once in such a span shows nothing by itself: seen now it has grown many times over, unseen it
has gone. Such tenants are put together, in the order of their names and with those not seen before,
until a few requests are usual of each group; a group counts as one tenant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from statistics import median

import numpy as np

from telemetry.baseline import Baseline, Pace, pace_of
from telemetry.grid import Part
from telemetry.window import Bucket, observed_s, part_of

MIN_PEERS = 8  # tenants whose median growth speaks for the pool
MOST_GROWTH = 20.0
ALONE, GROUPED = 1.0, 3.0  # usual requests in the span: of one tenant, and of a group of them
BUNCHES = 15  # of more tenants the typical growth is the median over so many bunches of them
_COLUMNS = ("offered_tokens", "service")  # the second where the front's counts are missing


@dataclass(frozen=True, slots=True)
class Growth:
    """The part of a rise that all share. `basis`: `tenants` (median of `peers` tenants that are
    no candidates), `steps` (step time at equal batch), or `none` (neither is known)."""

    factor: float
    basis: str
    peers: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What a tenant, or a group of those that ask for little, asks for: tokens a second, usually
    and now. `requests`: how many of them are usual in the span, None = they are not counted."""

    tenants: tuple[str, ...]
    usual: float
    now: float
    requests: float | None

    @property
    def growth(self) -> float:
        return self.now / self.usual


def demands(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    without: Collection[str] = (),
    part: Part | None = None,
) -> tuple[Demand, ...]:
    """Of every tenant that was there before and has not gone, `without` some; of the smallest in
    groups. Each has something usual."""
    seen = observed_s(buckets)
    if not seen or not baseline.buckets:
        return ()
    made = part if part is not None else part_of(buckets)
    column = _column(baseline, made)
    out: list[Demand] = []
    few: list[Demand] = []
    names = sorted({*baseline.part.active(), *made.active()} - set(without))
    over = baseline.observed_s
    usuals, requested = (
        [None if v is None or not over else v / over for v in baseline.part.totals_of(names, c)]
        for c in (column, "offered_requests")
    )
    for tenant, rate, total, requests in zip(
        names, usuals, made.totals_of(names, column), requested, strict=True
    ):
        usual, now = rate or 0.0, (total or 0.0) / seen
        if requests is not None and requests * seen < ALONE:
            few.append(Demand((tenant,), usual, now, requests * seen))
            continue
        # Of who came in the midst of the calm, what it asked for since.
        longer = over / (baseline.present_s.get(tenant) or over)
        expected = None if requests is None else requests * seen * longer
        gone = not now and (expected is None or expected >= GROUPED)
        if usual and not gone:
            out.append(Demand((tenant,), usual * longer, now, expected))
    return (*out, *_groups(few))


def _column(baseline: Baseline, part: Part) -> str:
    """What is compared: tokens offered, or service where the front's counts are missing."""
    for column in _COLUMNS:
        if np.nansum(baseline.part.totals(column)) and np.nansum(part.totals(column)):
            return column
    return _COLUMNS[-1]


def _groups(few: Sequence[Demand]) -> list[Demand]:
    """Put together until GROUPED requests are usual; a rest of fewer says nothing."""
    out: list[Demand] = []
    held: list[Demand] = []
    for one in few:
        held.append(one)
        usual = sum(d.usual for d in held)
        requests = sum(d.requests or 0.0 for d in held)
        if requests >= GROUPED and usual:
            names = tuple(t for d in held for t in d.tenants)
            out.append(Demand(names, usual, sum(d.now for d in held), requests))
            held = []
    return out


def typical(asked: Sequence[Demand]) -> float:
    """The median growth. In a crowd of bunches with about equal parts of the usual demand (a median
    of means): of what asks for a few requests the median lies below what all grew by."""
    if len(asked) <= BUNCHES:
        return median(d.growth for d in asked)
    now = [0.0] * BUNCHES
    bunches = [(0.0, i) for i in range(BUNCHES)]  # a heap: the one with the least stands first
    for d in sorted(asked, key=lambda d: -d.usual):
        usual, least = bunches[0]
        heapreplace(bunches, (usual + d.usual, least))
        now[least] += d.now
    return median(now[i] / usual for usual, i in bunches)


def growth_of(
    buckets: Sequence[Bucket],
    baseline: Baseline,
    candidates: Collection[str],
    part: Part | None = None,
) -> Growth:
    """Never below 1: that others have become calmer accuses nobody."""
    peers = demands(buckets, baseline, candidates, part)
    if len(peers) >= MIN_PEERS:
        return Growth(min(MOST_GROWTH, max(1.0, typical(peers))), "tenants", len(peers))
    slowdown = Pace(pace_of(buckets), pace_of(baseline.buckets)).slowdown
    if slowdown is None:
        return Growth(1.0, "none", len(peers))
    return Growth(min(MOST_GROWTH, max(1.0, slowdown)), "steps", len(peers))


def own_growth(
    tenant: str, buckets: Sequence[Bucket], baseline: Baseline, part: Part
) -> float | None:
    """One tenant's; of one that was never there over what is usual of those that were. None where
    nothing is usual of anybody."""
    seen = observed_s(buckets)
    column = _column(baseline, part)
    usual, now = baseline.rate(tenant, column), part.total(tenant, column)
    if not usual:
        there = demands(buckets, baseline, (tenant,), part)
        usual = sum(d.usual for d in there) / max(1, sum(len(d.tenants) for d in there))
    elif since := baseline.present_s.get(tenant):
        usual *= baseline.observed_s / since
    return (now or 0.0) / seen / usual if usual and seen else None
