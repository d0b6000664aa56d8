"""One line a tenant: what it got, what was due to it, who waits. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from console.panels import (
    Mark,
    TenantRow,
    VerdictLines,
    count,
    known_or,
    most,
    over,
    total,
)
from console.rows import Rows
from console.span import Span, key
from telemetry.records import TenantMinute


def tenant_rows(
    rows: Rows, span: Span, flow: Sequence[TenantMinute], verdict: VerdictLines | None
) -> tuple[TenantRow, ...]:
    """Every tenant seen in the rows, the ones to look at first. `flow`: their rows of the span's
    window."""
    flows: dict[str, list[TenantMinute]] = defaultdict(list)
    for r in flow:
        flows[r.tenant].append(r)
    fair = _fair_shares(flows, span)
    pool_bytes = total([span.engines[k].pool_bytes for k in span.newest])
    heard = bool(span.window)
    whole = sum(r.service or 0.0 for ms in flows.values() for r in ms)
    newest = frozenset(span.newest)
    out = []
    for name in dict.fromkeys(r.tenant for r in rows.tenants):
        own = flows.get(name, [])
        level = [r for r in own if key(r) in newest]
        idle: float | None = 0.0 if heard else None
        service = total([r.service for r in own])
        service = idle if service is None else service
        kv = total([r.kv_bytes_avg for r in level])
        output = count([r.output_tokens for r in own])
        row = TenantRow(
            name=name,
            running=known_or(total([r.resident_seqs_avg for r in level]), idle),
            waiting=known_or(total([r.waiting_avg for r in level]), idle),
            oldest_wait_s=known_or(most([r.oldest_wait_s for r in level]), idle),
            kv_share=over(known_or(kv, idle), pool_bytes),
            service=service,
            service_share=over(service, whole),
            fair_share=fair.get(name),
            output_tokens_per_s=over(known_or(output, idle), span.covered_s),
            offered=count([r.offered_requests for r in own]),
            rejected=count([_refused(r) for r in own]),
            slo_eligible=count([r.slo_eligible for r in own]),
            slo_missed=count([r.slo_missed for r in own]),
        )
        mark = _mark(row, verdict)
        out.append(row if mark is Mark.NONE else replace(row, mark=mark))
    return tuple(
        sorted(
            out,
            key=lambda r: (r.mark, -(r.missed_share or 0.0), -(r.service_share or 0.0), r.name),
        )
    )


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


def _mark(row: TenantRow, verdict: VerdictLines | None) -> Mark:
    if verdict is not None and row.name == verdict.named:
        return Mark.NAMED
    if verdict is not None and row.name in verdict.victims:
        return Mark.HURT
    return Mark.MISSING if row.slo_missed else Mark.NONE


def flowing(rows: Sequence[TenantMinute], span: Span) -> list[TenantMinute]:
    """Those of the span's window."""
    starts = {k[2] for k in span.window}
    return [r for r in rows if r.bucket_start in starts and key(r) in span.window_keys]


def _fair_shares(flows: Mapping[str, Sequence[TenantMinute]], span: Span) -> dict[str, float]:
    """Weight over the weights of the tenants backlogged in the bucket, averaged over buckets."""
    backlogged: dict[float, dict[str, float]] = defaultdict(dict)
    for tenant, minutes in flows.items():
        for r in minutes:
            if (r.backlogged_s or 0.0) > 0.0:
                backlogged[r.bucket_start][tenant] = 1.0 if r.weight is None else r.weight
    lasted = {b: span.seconds(k for k in span.window if k[2] == b) for b in backlogged}
    whole = sum(lasted.values())
    shares: dict[str, float] = defaultdict(float)
    for bucket, weights in backlogged.items():
        of_all = sum(weights.values())
        for tenant, weight in weights.items():
            if whole > 0.0:
                shares[tenant] += weight / of_all * lasted[bucket] / whole
    return dict(shares)
