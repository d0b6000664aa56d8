"""One line a tenant: what it got, what was due to it, who waits. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import inf
from operator import attrgetter
from typing import Any

from console.panels import Mark, TenantRow, VerdictLines, count, over, total
from console.rows import Rows
from console.span import Span, key
from telemetry.at_once import rows_at_once
from telemetry.records import TenantMinute

_TENANT = attrgetter("tenant")


def tenant_rows(
    rows: Rows, span: Span, flow: Sequence[TenantMinute], verdict: VerdictLines | None
) -> tuple[TenantRow, ...]:
    """Every tenant seen in the rows, the ones to look at first. `flow`: their rows of the span's
    window. Column by column: of a crowd each is a pass over its rows, not ten questions a tenant.
    """
    newest = frozenset(span.newest)
    pool_bytes = total([span.engines[k].pool_bytes for k in span.newest])
    heard = bool(span.window)
    idle: float | None = 0.0 if heard else None
    whole = sum(r.service or 0.0 for r in flow)
    names = list(dict.fromkeys(map(_TENANT, rows.tenants)))
    flows = ByTenant(names, flow)
    level = ByTenant(names, [r for r in flow if key(r) in newest])
    service = flows.added("service", idle)
    output = flows.added("output_tokens", idle)
    fair = _fair_shares(flow, span)
    missed = flows.added("slo_missed")
    made = rows_at_once(
        TenantRow,
        len(names),
        {},
        {
            "name": names,
            "mark": [_mark(n, m, verdict) for n, m in zip(names, missed, strict=True)],
            "running": level.added("resident_seqs_avg", idle),
            "waiting": level.added("waiting_avg", idle),
            "oldest_wait_s": level.highest("oldest_wait_s", idle),
            "kv_share": [over(v, pool_bytes) for v in level.added("kv_bytes_avg", idle)],
            "service": service,
            "service_share": [over(v, whole) for v in service],
            "fair_share": [fair.get(n) for n in names],
            "output_tokens_per_s": [over(v, span.covered_s) for v in output],
            "offered": flows.added("offered_requests"),
            "rejected": flows.summed(_refused),
            "slo_eligible": flows.added("slo_eligible"),
            "slo_missed": missed,
        },
    )
    return tuple(
        sorted(
            made,
            key=lambda r: (r.mark, -(r.missed_share or 0.0), -(r.service_share or 0.0), r.name),
        )
    )


class ByTenant:
    """Some rows by whose they are, to be added up column by column: `at` is whose each is, among
    `names`. A column is a value a tenant, `absent` of a tenant whose rows do not carry it."""

    def __init__(self, names: Sequence[str], rows: Sequence[TenantMinute]) -> None:
        self.names = names
        self.rows = rows
        place = {n: i for i, n in enumerate(names)}
        self.at = list(map(place.__getitem__, map(_TENANT, rows)))

    def added(self, column: str, absent: float | None = None) -> list[Any]:
        return self.summed(attrgetter(column), absent)

    def summed(self, get: Callable[[TenantMinute], Any], absent: float | None = None) -> list[Any]:
        sums: list[Any] = [None] * len(self.names)
        for at, value in zip(self.at, map(get, self.rows), strict=True):
            if value is not None:
                sums[at] = value if sums[at] is None else sums[at] + value
        return sums if absent is None else [absent if v is None else v for v in sums]

    def highest(self, column: str, absent: float | None = None) -> list[Any]:
        most: list[Any] = [absent] * len(self.names)
        found = [-inf] * len(self.names)
        for at, value in zip(self.at, map(attrgetter(column), self.rows), strict=True):
            if value is not None and value > found[at]:
                most[at] = found[at] = value
        return most


def _refused(row: TenantMinute) -> int | None:
    """429s; an impossible request is answered otherwise and not counted here."""
    return count(
        [
            row.rejected_rpm_requests,
            row.rejected_tpm_requests,
            row.rejected_concurrency_requests,
            row.rejected_queue_requests,
        ]
    )


def _mark(name: str, missed: int | None, verdict: VerdictLines | None) -> Mark:
    if verdict is not None and name == verdict.named:
        return Mark.NAMED
    if verdict is not None and name in verdict.victims:
        return Mark.HURT
    return Mark.MISSING if missed else Mark.NONE


def flowing(rows: Sequence[TenantMinute], span: Span) -> list[TenantMinute]:
    """Those of the span's window."""
    starts = {k[2] for k in span.window}
    return [r for r in rows if r.bucket_start in starts and key(r) in span.window_keys]


def _fair_shares(flow: Sequence[TenantMinute], span: Span) -> dict[str, float]:
    """Weight over the weights of the tenants backlogged in the bucket, averaged over buckets."""
    backlogged: dict[float, dict[str, float]] = defaultdict(dict)
    for r in flow:
        if (r.backlogged_s or 0.0) > 0.0:
            backlogged[r.bucket_start][r.tenant] = 1.0 if r.weight is None else r.weight
    lasted = {b: span.seconds(k for k in span.window if k[2] == b) for b in backlogged}
    whole = sum(lasted.values())
    shares: dict[str, float] = defaultdict(float)
    for bucket, weights in backlogged.items():
        of_all = sum(weights.values())
        for tenant, weight in weights.items():
            if whole > 0.0:
                shares[tenant] += weight / of_all * lasted[bucket] / whole
    return dict(shares)
