"""One line a tenant: what it got, what was due to it, who waits. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Any

from console.panels import Mark, TenantRow, VerdictLines, count, over, total
from console.rows import Rows
from console.span import Span, key
from telemetry.at_once import rows_at_once
from telemetry.records import TenantMinute


def tenant_rows(
    rows: Rows, span: Span, flow: Sequence[TenantMinute], verdict: VerdictLines | None
) -> tuple[TenantRow, ...]:
    """Every tenant seen in the rows, the ones to look at first. `flow`: their rows of the span's
    window. Column by column: of a crowd each is a pass over its rows, not ten questions a tenant.
    """
    newest = frozenset(span.newest)
    level = [r for r in flow if key(r) in newest]
    pool_bytes = total([span.engines[k].pool_bytes for k in span.newest])
    heard = bool(span.window)
    idle: float | None = 0.0 if heard else None
    whole = sum(r.service or 0.0 for r in flow)
    names = list(dict.fromkeys(r.tenant for r in rows.tenants))
    service = _filled(names, added(flow, "service"), idle)
    output = _filled(names, added(flow, "output_tokens"), idle)
    fair = _fair_shares(flow, span)
    missed = added(flow, "slo_missed")
    made = rows_at_once(
        TenantRow,
        len(names),
        {},
        {
            "name": names,
            "mark": [_mark(n, missed.get(n), verdict) for n in names],
            "running": _filled(names, added(level, "resident_seqs_avg"), idle),
            "waiting": _filled(names, added(level, "waiting_avg"), idle),
            "oldest_wait_s": _filled(names, _highest(level, "oldest_wait_s"), idle),
            "kv_share": [
                over(v, pool_bytes) for v in _filled(names, added(level, "kv_bytes_avg"), idle)
            ],
            "service": service,
            "service_share": [over(v, whole) for v in service],
            "fair_share": [fair.get(n) for n in names],
            "output_tokens_per_s": [over(v, span.covered_s) for v in output],
            "offered": _filled(names, added(flow, "offered_requests"), None),
            "rejected": _filled(names, _summed(flow, _refused), None),
            "slo_eligible": _filled(names, added(flow, "slo_eligible"), None),
            "slo_missed": _filled(names, missed, None),
        },
    )
    return tuple(
        sorted(
            made,
            key=lambda r: (r.mark, -(r.missed_share or 0.0), -(r.service_share or 0.0), r.name),
        )
    )


def added(rows: Sequence[TenantMinute], column: str) -> dict[str, Any]:
    """A column's sums by tenant; of a tenant whose rows do not carry it there is none."""
    return _summed(rows, attrgetter(column))


def _summed(rows: Sequence[TenantMinute], get: Callable[[TenantMinute], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row, value in zip(rows, map(get, rows), strict=True):
        if value is not None:
            name = row.tenant
            found[name] = found.get(name, 0) + value
    return found


def _highest(rows: Sequence[TenantMinute], column: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row, value in zip(rows, map(attrgetter(column), rows), strict=True):
        if value is not None and value > found.get(row.tenant, -inf):
            found[row.tenant] = value
    return found


def _filled(names: Sequence[str], found: Mapping[str, Any], absent: float | None) -> list[Any]:
    return [found.get(n, absent) for n in names]


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
