"""When a replay begins and ends, and what it begins with. Pure; reads rows that were read.

It begins one request's life before the window, so that those who were there when it began are
there again; with limits, not before they can have forgotten how they stood, and where the minutes
say that every limit stood full at some instant, there: that is how the simulator's door begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.config import Tenant
from telemetry.records import RequestRecord
from telemetry.window import Bucket

LONGEST_LIFE_S = 600.0
LONGEST_LEAD_S = 900.0
FULL = 0.99  # of what a limit holds
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Start:
    """Unix seconds: the replay's first instant, the window inside it, and its last arrival.

    `quotas`: `full` (every limit stood full at `begin`, as recorded), `forgotten` (the lead is
    longer than any limit's memory, so that how it began no longer matters) or `none` (no limit).
    """

    begin: float
    start: float
    end: float
    until: float
    life_s: float
    quotas: str


def plan_start(
    start: float,
    end: float,
    requests: Sequence[RequestRecord],
    buckets: Sequence[Bucket],
    tenants: Sequence[Tenant],
    started: float,
    since: float,
) -> Start:
    """`started`: when the worker did; `since`: when the settings came into force."""
    life_s = life_of(requests, start, end)
    limited = {t.name: t for t in tenants if t.rpm or t.tpm}
    lead_s, quotas = life_s, "none"
    begin = start - lead_s
    if limited:
        lead_s = min(LONGEST_LEAD_S, max(life_s, memory_s(limited.values())))
        begin, quotas = start - lead_s, "forgotten"
        full = _when_full(start - LONGEST_LEAD_S, start - life_s, buckets, limited)
        if full is not None:
            begin, quotas = full, "full"
    begin = max(begin, since)
    if begin <= started:
        # A worker that has just started is empty, and nothing of any limit is used.
        begin, quotas = started, "full" if limited else "none"
    return Start(begin, start, end, end + min(life_s, (end - start) / 2), life_s, quotas)


def life_of(requests: Sequence[RequestRecord], start: float, end: float) -> float:
    """The 99th percentile of the lives of the window's requests, at most ten minutes."""
    lives = sorted(
        r.ended - r.arrived
        for r in requests
        if r.ended is not None and r.outcome != "rejected" and r.ended > start and r.arrived < end
    )
    if not lives:
        return 0.0
    return min(LONGEST_LIFE_S, lives[max(0, math.ceil(0.99 * len(lives)) - 1)])


def memory_s(tenants: Iterable[Tenant]) -> float:
    """How long a limit remembers: windows a minute, buckets until they are full again."""
    longest = _MINUTE_S
    for t in tenants:
        for limit, burst in ((t.rpm, t.rpm_burst), (t.tpm, t.tpm_burst)):
            if limit and burst:
                longest = max(longest, _MINUTE_S * burst / limit)
    return longest


def _when_full(
    earliest: float, latest: float, buckets: Sequence[Bucket], limited: Mapping[str, Tenant]
) -> float | None:
    """The last bucket's end in [earliest, latest] at which every limit stood full; a tenant
    without a row in a bucket of a minute or more was idle in it."""
    for b in reversed(buckets):
        if b.end > latest or not b.known:
            continue
        if b.end < earliest:
            return None
        if all(_stands_full(b, t) for t in limited.values()):
            return b.end
    return None


def _stands_full(bucket: Bucket, tenant: Tenant) -> bool:
    row = bucket.tenants.get(tenant.name)
    if row is None:
        return bucket.length_s >= _MINUTE_S
    for level, limit, burst in (
        (row.quota_rpm_level, tenant.rpm, tenant.rpm_burst),
        (row.quota_tpm_level, tenant.tpm, tenant.tpm_burst),
    ):
        if limit and (level is None or level < FULL * (burst or limit)):
            return False
    return True
