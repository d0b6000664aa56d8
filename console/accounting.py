"""Works out an `Account` from recorded rows: excess waits and who held, over five minutes. Pure.

The same attribution as every other face's (`telemetry.attribution`); judges nothing by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from console.account import CHARGED, EXCESS, Account, TenantNow
from console.judge import Windows
from console.panels import Holder, TenantRow
from console.rows import Rows
from console.snapshot import ACCOUNT_S
from console.span import Span
from console.tenants import ByTenant
from telemetry.attribution import Reckoning, reckon
from telemetry.records import Counts, TenantMinute
from telemetry.window import Window, window_of


def build_account(
    rows: Rows,
    span: Span,
    flow: Sequence[TenantMinute],
    tenants: Sequence[TenantRow],
    account_s: float = ACCOUNT_S,
    windows: Windows = window_of,
    reckoned: Reckoning | None = None,
) -> Account | None:
    """The account of one pool's rows, of the `account_s` up to where the data ends; None where no
    engine was heard. `span` is that of the last minute, `flow` the tenants' rows
    of it, `tenants` their figures; `reckoned` what `reckon_account` gave for the same."""
    if reckoned is None:
        reckoned = reckon_account(rows, span, account_s, windows)
    if reckoned is None:
        return None
    window, asked, baseline, made = (
        reckoned.window, reckoned.buckets, reckoned.baseline, reckoned.made
    )  # fmt: skip
    lines = made.pool(list(made.accounts))
    held: dict[str, float] = defaultdict(float)
    apart: dict[str, float] = defaultdict(float)
    for line in lines:
        if line.holder.is_tenant:
            held[line.holder.name] += line.excess_s
        else:
            apart[line.holder.kind] += line.excess_s
    lately = _lately(rows, span.end - account_s)
    missed, eligible, tokens = (
        dict(zip(lately.names, column, strict=True))
        for column in (lately.added("slo_missed"), lately.added("slo_eligible"), _counts(lately))
    )
    minutes = _by_tenant(flow)
    out = []
    for row in tenants:
        account = made.accounts.get(row.name)
        # Who waited no longer than usual is behind nobody: of a crowd most are not looked into.
        line_of = account.top if account is not None and account.excess_s else None
        out.append(
            TenantNow(
                row=row,
                minutes=minutes.get(row.name, ()),
                covered_s=span.covered_s,
                wait_s=account.excess_s if account is not None else 0.0,
                held_s=held.pop(row.name, 0.0),
                behind=None
                if line_of is None or account is None or not line_of.excess_s
                else Holder(
                    kind=line_of.holder.kind,
                    name=line_of.holder.name,
                    charged_s=line_of.charged_s,
                    share=line_of.excess_s / account.excess_s,
                ),
                behind_reason=line_of.reasons[0][0]
                if line_of is not None and line_of.reasons
                else None,
                missed=missed.get(row.name),
                eligible=eligible.get(row.name),
                ttft_counts=tokens.get(row.name),
            )
        )
    # Whoever held and has no row of its own any more still belongs to the sum.
    gone = [TenantNow(row=TenantRow(name=name), held_s=s) for name, s in held.items() if s]
    listed = {t.name for t in (*out, *gone)}
    gone += [
        TenantNow(row=TenantRow(name=name), wait_s=a.excess_s)
        for name, a in made.accounts.items()
        if name not in listed and a.excess_s
    ]
    whole = Account(
        tenants=(*out, *gone),
        not_tenants=tuple(apart.items()),
        total_s=sum(line.excess_s for line in lines),
        basis=EXCESS if baseline.usable else CHARGED,
        span_s=made.observed_s,
        no_baseline=baseline.problem,
        gaps=sum(g.buckets for g in window.gaps()),
        short=sum(b.short for b in asked[:-1]),
        cells=made.held.cells(made.accounts),
    )
    # Sorted here, on the feed's thread: the screen's has keys to answer.
    _ = whole.hurt, whole.holds
    return whole


def reckon_account(
    rows: Rows, span: Span, account_s: float = ACCOUNT_S, windows: Windows = window_of
) -> Reckoning | None:
    """What an account adds up: to be handed on to it, and to whoever judges the same rows. None
    where no engine was heard."""
    return reckon(_window(rows, span, account_s, windows)) if span.engines else None


def _window(rows: Rows, span: Span, account_s: float, windows: Windows) -> Window:
    # Before the first bucket nothing is missing: the record begins there.
    first = min(k[2] for k in span.engines)
    pool = next(iter(span.engines.values())).pool
    return windows(
        pool,
        max(first, span.end - account_s),
        span.end,
        engine_rows=rows.engines,
        tenant_rows=rows.tenants,
        matrix_rows=rows.interference,
        policies=rows.policies,
        runs=rows.runs,
    )


def _lately(rows: Rows, start: float) -> ByTenant:
    recent = [r for r in rows.tenants if r.bucket_start + r.bucket_s > start]
    return ByTenant(list(dict.fromkeys(r.tenant for r in recent)), recent)


def _by_tenant(flow: Sequence[TenantMinute]) -> Mapping[str, tuple[TenantMinute, ...]]:
    out: dict[str, list[TenantMinute]] = defaultdict(list)
    for r in flow:
        out[r.tenant].append(r)
    return {t: tuple(ms) for t, ms in out.items()}


def _counts(lately: ByTenant) -> list[Counts | None]:
    """Each tenant's first tokens by how long they took, added up; most histograms are alike."""
    told: dict[Counts, int] = {}
    at, which = [], []
    for tenant, row in zip(lately.at, lately.rows, strict=True):
        if row.ttft is not None:
            at.append(tenant)
            which.append(told.setdefault(row.ttft, len(told)))
    found: list[Counts | None] = [None] * len(lately.names)
    if told:
        order = np.argsort(at, kind="stable")
        tenants, first = np.unique(np.array(at)[order], return_index=True)
        counts = np.array(list(told), dtype=np.int64)[np.array(which)[order]]
        sums = np.add.reduceat(counts, first, axis=0).tolist()
        for tenant, own in zip(tenants.tolist(), sums, strict=True):
            found[tenant] = tuple(own)
    return found
