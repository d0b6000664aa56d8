"""A tenant's own usual: what it asked for in the calm time before the incident. Pure.

Sizes of limits and a tenant's pre-onset rate come from here, never from the incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from telemetry.baseline import Baseline
from telemetry.records import RequestRecord
from telemetry.window import total

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Usual:
    """`requests_per_s`, `tokens_per_s` (prompt + output made) over the calm time; the most in any
    minute of it (the rate's where it was shorter); the most under way at once; the largest."""

    tenant: str
    requests_per_s: float
    tokens_per_s: float
    most_requests_a_minute: float
    most_tokens_a_minute: float
    most_under_way: int
    largest_tokens: int


def usual_of(tenant: str, baseline: Baseline, rows: Iterable[RequestRecord]) -> Usual | None:
    """None without a usable baseline. A tenant that asked for nothing then has zeros."""
    if not baseline.usable or not baseline.observed_s:
        return None
    spans = [(b.start, b.end) for b in baseline.buckets]
    mine = sorted(
        (r for r in rows if r.tenant == tenant and any(a <= r.arrived < b for a, b in spans)),
        key=lambda r: r.arrived,
    )
    sizes = [(r.prompt_tokens or 0) + (r.output_tokens or 0) for r in mine]
    counted = total(baseline.buckets, tenant, "offered_requests") or 0.0
    rate = max(len(mine), counted) / baseline.observed_s
    tokens = sum(sizes) / baseline.observed_s
    return Usual(
        tenant,
        rate,
        tokens,
        max(rate * _MINUTE_S, most_within(mine, [1] * len(mine))),
        max(tokens * _MINUTE_S, most_within(mine, sizes)),
        most_at_once(mine),
        max(sizes, default=0),
    )


def most_within(rows: Sequence[RequestRecord], amounts: Sequence[int]) -> float:
    """The largest sum of amounts of requests that arrived within any minute."""
    best = now = 0
    first = 0
    for i, r in enumerate(rows):
        now += amounts[i]
        while rows[first].arrived <= r.arrived - _MINUTE_S:
            now -= amounts[first]
            first += 1
        best = max(best, now)
    return float(best)


def most_at_once(rows: Iterable[RequestRecord]) -> int:
    """The most of these requests that were under way together."""
    edges: list[tuple[float, int]] = []
    for r in rows:
        if r.outcome != "rejected" and r.ended is not None:
            edges += [(r.arrived, 1), (r.ended, -1)]
    best = now = 0
    for _, by in sorted(edges):
        now += by
        best = max(best, now)
    return best
