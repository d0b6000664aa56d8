"""Turns recorded rows into the one picture a screen shows. Pure; reads nothing, draws nothing.

Flows (shares, misses, rates, TTFT) are of the rolling window; levels (running, waiting, held bytes)
of the newest bucket. The window ends where the data ends, so a silent engine leaves its last
picture standing, with its age. A tenant without a row beside an engine's row was idle (0); without
an engine's row nothing is known (None).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.panels import (
    LIVE,
    Lamps,
    PoolStrip,
    Snapshot,
    TenantRow,
    VerdictLines,
    WaitStrip,
    count,
    fold,
    known_or,
    most,
    over,
    total,
)
from console.rows import Rows
from console.span import Span
from console.story import counts_only, ticker, trend
from console.tenants import flowing, tenant_rows
from telemetry.conventions import WAIT_REASONS
from telemetry.records import TenantMinute

if TYPE_CHECKING:
    from console.account import Account
    from console.judge import Windows
    from telemetry.attribution import Reckoning

__all__ = ["Snapshot", "VerdictLines", "build_snapshot", "fold"]

WINDOW_S = 60.0
ACCOUNT_S = 300.0
STALE_AFTER_S = 30.0


def build_snapshot(
    rows: Rows,
    now: float,
    *,
    window_s: float = WINDOW_S,
    pool: str | None = None,
    mode: str = LIVE,
    phase: str | None = None,
    verdict: VerdictLines | None = None,
    stale_after_s: float = STALE_AFTER_S,
    accounted: bool = False,
    notes: tuple[str, ...] = (),
    store_down_s: float | None = None,
    edge: float | None = None,
    windows: Windows | None = None,
    account_s: float = ACCOUNT_S,
    reckoned: Reckoning | None = None,
) -> Snapshot:
    """The picture of one pool at `now` (unix seconds).

    `rows` reach back over the window and whatever history there is for the usual waits and the
    trend. `pool` None takes the pool heard last. `phase` None takes the newest `mark` event.
    Without a `verdict` the lines state counts and name no holder. `accounted`: with the lists of
    who waits and who holds, by windows of rows that `windows` makes (None: `window_of`); `reckoned`
    is what was added up for them already. `notes`, `store_down_s` and `edge` are what the source
    said of itself.
    """
    pool = pool if pool is not None else _pool_heard_last(rows)
    mine = rows.of_pool(pool) if pool is not None else rows
    span = Span(mine, now, window_s)
    flow = flowing(mine.tenants, span)
    tenants = tenant_rows(mine, span, flow, verdict)
    spoken = verdict if verdict is not None else counts_only(tenants, span)
    policy = max(mine.policies, key=lambda p: (p.at, p.version), default=None)
    marks = [e for e in mine.events if e.kind == "mark" and e.at <= now]
    newest_mark = max(marks, key=lambda e: e.at, default=None)
    return Snapshot(
        now=now,
        mode=mode,
        pool=pool,
        engines=len({k[0] for k in span.window}),
        phase=phase if phase is not None else (newest_mark.detail if newest_mark else None),
        policy=policy.policy if policy else None,
        policy_version=policy.version if policy else None,
        covered_s=span.covered_s,
        data_at=span.data_at,
        stale=span.data_at is None or now - span.data_at > stale_after_s,
        provisional=any(k[2] + span.engines[k].bucket_s > now for k in span.newest),
        strip=_pool_strip(span, tenants),
        wait=_wait_strip(flow, span, tenants),
        trend=trend(mine, span, spoken.named, tenants),
        verdict=spoken,
        tenants=tenants,
        ticker=ticker(mine, now),
        account=_account(mine, span, flow, tenants, account_s, windows, reckoned)
        if accounted
        else None,
        lamps=Lamps(
            heard=len({k[0] for k in span.newest}),
            known=len({k[0] for k in span.engines}),
            store_down_s=store_down_s,
            # What was given up reaches the store late, and a worker's memory not at all.
            lost=None if store_down_s is not None else _lost(mine, now),
            notes=notes,
        ),
        pools=tuple(sorted({r.pool for r in rows.engines})),
        edge=edge,
    )


def _account(
    rows: Rows,
    span: Span,
    flow: Sequence[TenantMinute],
    tenants: Sequence[TenantRow],
    account_s: float,
    windows: Windows | None,
    reckoned: Reckoning | None,
) -> Account | None:
    # Only here: it brings NumPy, and a first look does without.
    from console.accounting import build_account
    from telemetry.window import window_of

    return build_account(rows, span, flow, tenants, account_s, windows or window_of, reckoned)


def _lost(rows: Rows, now: float) -> int:
    return int(sum(e.value or 0.0 for e in rows.events if e.kind == "lost" and e.at <= now))


def _pool_heard_last(rows: Rows) -> str | None:
    newest = max(rows.engines, key=lambda r: r.bucket_start, default=None)
    return newest.pool if newest else None


def _pool_strip(span: Span, tenants: Sequence[TenantRow]) -> PoolStrip:
    level = [span.engines[k] for k in span.newest]
    flow = [span.engines[k] for k in span.window]
    size = total([r.pool_bytes for r in level])
    steps = count([r.steps for r in flow])
    return PoolStrip(
        kv_share=over(total([r.kv_bytes_avg for r in level]), size),
        adapter_share=over(total([r.adapter_bytes_avg for r in level]), size),
        cached_share=over(total([r.cached_bytes_avg for r in level]), size),
        free_share=over(total([r.free_bytes_avg for r in level]), size),
        pool_bytes=size,
        running=total([r.running_avg for r in level]),
        slots=total([r.slots for r in level]),
        step_s=over(total([r.busy_s for r in flow]), steps),
        expected_step_s=over(total([r.predicted_s for r in flow]), steps),
        # Not decode_tokens: a first token is sampled from a prefill row.
        output_tokens_per_s=total([t.output_tokens_per_s for t in tenants]),
        prefill_tokens_per_s=over(count([r.prefill_tokens for r in flow]), span.covered_s),
        last_token_age_s=most([r.last_token_age_s for r in level]),
        preemptions=count([r.preemptions for r in flow]),
        evictions=count([r.evictions for r in flow]),
        loads=count([r.loads for r in flow]),
    )


def _wait_strip(
    flow: Sequence[TenantMinute], span: Span, tenants: Sequence[TenantRow]
) -> WaitStrip:
    columns = {
        reason: total([getattr(r, f"wait_{reason}_s") for r in flow]) for reason in WAIT_REASONS
    }
    known = {reason: s for reason, s in columns.items() if s is not None}
    level = total([span.engines[k].waiting_avg for k in span.newest])
    return WaitStrip(
        waiting=known_or(level, total([t.waiting for t in tenants])),
        oldest_s=most([t.oldest_wait_s for t in tenants]),
        total_s=sum(known.values()) if known else None,
        by_reason=tuple(sorted(known.items(), key=lambda x: -x[1])),
    )
