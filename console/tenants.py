"""One line a tenant: what it got, what was due to it, what it waited for, behind whom. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from console.panels import (
    Holder,
    Latency,
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
from telemetry.conventions import WAIT_REASONS
from telemetry.records import RequestRecord, TenantMinute

BASELINE_BUCKETS = 60
FEWEST_BASELINE_BUCKETS = 3


def waited_s(row: TenantMinute) -> float | None:
    """Waits of one bucket by the four reasons; the stall is no wait."""
    return total([row.wait_slot_s, row.wait_budget_s, row.wait_kv_s, row.wait_adapter_s])


def tenant_rows(
    rows: Rows, span: Span, verdict: VerdictLines | None, *, excess: bool = True
) -> tuple[TenantRow, ...]:
    """Every tenant seen in the rows, the ones to look at first; `excess`: with its excess wait, for
    which all the rows are gone through."""
    by_tenant: dict[str, list[TenantMinute]] = defaultdict(list)
    for r in rows.tenants:
        by_tenant[r.tenant].append(r)
    fair = _fair_shares(rows, span)
    behind = _behind(rows, span)
    ttfts = _ttfts(rows.requests, span)
    onset = verdict.since if verdict else None
    usual = _usual_wait_rates(by_tenant, span, onset) if excess else {}
    pool_bytes = total([span.engines[k].pool_bytes for k in span.newest])
    heard = bool(span.window)
    whole = sum(
        r.service or 0.0 for ms in by_tenant.values() for r in ms if key(r) in span.window_keys
    )
    out = []
    for name, minutes in by_tenant.items():
        flow = [r for r in minutes if key(r) in span.window_keys]
        level = [r for r in minutes if key(r) in span.newest]
        idle: float | None = 0.0 if heard else None
        service = total([r.service for r in flow])
        service = idle if service is None else service
        wait = total([waited_s(r) for r in flow])
        wait = idle if wait is None else wait
        rate = usual.get(name)
        kv = total([r.kv_bytes_avg for r in level])
        output = count([r.output_tokens for r in flow])
        holder, reason = behind.get(name, (None, None))
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
            offered=count([r.offered_requests for r in flow]),
            rejected=count([_refused(r) for r in flow]),
            slo_eligible=count([r.slo_eligible for r in flow]),
            slo_missed=count([r.slo_missed for r in flow]),
            wait_s=wait,
            excess_wait_s=None
            if wait is None or rate is None
            else max(0.0, wait - rate * span.covered_s),
            ttft=ttfts.get(name, Latency(0, None, None, None)),
            behind=holder,
            behind_reason=reason,
        )
        out.append(replace(row, mark=_mark(row, verdict)))
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


def _fair_shares(rows: Rows, span: Span) -> dict[str, float]:
    """Weight over the weights of the tenants backlogged in the bucket, averaged over buckets."""
    backlogged: dict[float, dict[str, float]] = defaultdict(dict)
    for r in rows.tenants:
        if key(r) in span.window_keys and (r.backlogged_s or 0.0) > 0.0:
            backlogged[r.bucket_start][r.tenant] = 1.0 if r.weight is None else r.weight
    lasted = {b: span.seconds(k for k in span.window if k[2] == b) for b in backlogged}
    whole = sum(lasted.values())
    shares: dict[str, float] = defaultdict(float)
    for bucket, weights in backlogged.items():
        for tenant, weight in weights.items():
            if whole > 0.0:
                shares[tenant] += weight / sum(weights.values()) * lasted[bucket] / whole
    return dict(shares)


def _ttfts(requests: Sequence[RequestRecord], span: Span) -> dict[str, Latency]:
    samples: dict[str, list[float]] = defaultdict(list)
    for r in requests:
        if r.ttft_s is not None and r.first_token is not None and r.first_token > span.start:
            samples[r.tenant].append(r.ttft_s)
    return {tenant: latency(values) for tenant, values in samples.items()}


def latency(values: Sequence[float]) -> Latency:
    """Nearest-rank percentiles: a value that some request really had."""
    if not values:
        return Latency(0, None, None, None)
    ordered = sorted(values)
    n = len(ordered)
    p50, p99 = (ordered[-(-n * q // 100) - 1] for q in (50, 99))
    return Latency(n, p50, p99, ordered[-1])


def _behind(rows: Rows, span: Span) -> dict[str, tuple[Holder, str]]:
    """For each victim the holder its waiting was charged to most, and the reason most of it had."""
    charged: dict[str, dict[tuple[str, str], dict[str, float]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(float))
    )
    for r in rows.interference:
        known = (r.engine, r.run_id, r.bucket_start) in span.window_keys
        if known and r.reason in WAIT_REASONS and r.charged_s:
            charged[r.victim][r.holder_kind, r.holder][r.reason] += r.charged_s
    out = {}
    for victim, holders in charged.items():
        whole = sum(sum(by.values()) for by in holders.values())
        (kind, name), by = max(holders.items(), key=lambda h: (sum(h[1].values()), h[0]))
        held = sum(by.values())
        reason = max(by, key=lambda r: by[r])
        out[victim] = (Holder(kind=kind, name=name, charged_s=held, share=held / whole), reason)
    return out


def _usual_wait_rates(
    by_tenant: Mapping[str, Sequence[TenantMinute]], span: Span, onset: float | None
) -> dict[str, float]:
    """Seconds waited per second, median over the closed buckets before the window or the onset.

    Fewer than three such buckets: no usual rate is known, and no excess is claimed.
    """
    until = min(span.start, onset) if onset is not None else span.start
    closed = sorted(
        (k for k, r in span.engines.items() if k[2] + r.bucket_s <= until), key=lambda k: k[2]
    )
    starts = sorted({k[2] for k in closed})[-BASELINE_BUCKETS:]
    if len(starts) < FEWEST_BASELINE_BUCKETS:
        return {}
    known = frozenset(closed)
    lasted = {b: span.seconds(k for k in closed if k[2] == b) for b in starts}
    rates: dict[str, float] = {}
    for tenant, minutes in by_tenant.items():
        waited: dict[float, float] = dict.fromkeys(starts, 0.0)
        for r in minutes:
            if r.bucket_start in waited and key(r) in known:
                waited[r.bucket_start] += waited_s(r) or 0.0
        rates[tenant] = statistics.median(waited[b] / lasted[b] for b in starts if lasted[b] > 0.0)
    return rates
