"""The first look: a pool's last minute by its largest tenants, before all of its rows are there.

One small question instead of a crowd's rows. What it shows is as it stands in the store; what it
cannot know yet (whom waits are charged to, the verdict, what changed) it says is being read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from console.account import WAITED, Account, TenantNow
from console.gather import AHEAD_S, Asked, bucket_edge
from console.panels import Level, Mark, Snapshot, TenantRow, VerdictLines, count, total
from console.rows import Rows
from console.snapshot import ACCOUNT_S, build_snapshot
from console.span import Span
from console.tenants import flowing
from telemetry.ask.reading import READ, Result, filled, to_rows
from telemetry.conventions import WAIT_REASONS
from telemetry.errors import QueryError
from telemetry.records import EngineMinute, TenantMinute

TOP = 40  # of the most service, of the longest waits, of the most misses: a tall screen's lists
FILLING = VerdictLines(
    level=Level.UNKNOWN,
    lines=("nobody has been judged yet: the minutes before are still being read",),
)


def glance(
    source: Asked, at: float, *, pool: str | None, mode: str, settled: bool, window_s: float
) -> tuple[Snapshot, float] | None:
    """The picture, and how long a bucket is; None where no engine was heard in the last minutes,
    or not in the pool that is asked for. `settled`: only closed buckets are looked at. Raises what
    the source raises."""
    answer = source.query(f"{READ}engine_minute", start=at - ACCOUNT_S, end=at + AHEAD_S)
    heard: list[EngineMinute] = [
        e
        for e in to_rows("engine_minute", answer)
        if not settled or e.bucket_start + e.bucket_s <= at
    ]
    asked = [e for e in heard if pool is None or e.pool == pool]
    newest = max(asked, key=lambda e: e.bucket_start, default=None)
    if newest is None:
        return None
    shown = newest.pool if pool is None else pool
    bucket_s = max(e.bucket_s for e in heard)
    cut = bucket_edge(newest.bucket_start - max(window_s, bucket_s), heard)
    found = source.query("console_glance", start=cut, end=at + AHEAD_S, pool=shown, top=TOP)
    runs = source.query(f"{READ}engine_run", start=0.0, end=at + AHEAD_S)
    tenants, rest, others = _tenants(found)
    rows = Rows(
        tenants=tuple(tenants),
        engines=tuple(e for e in heard if e.bucket_start >= cut and e.pool == shown),
        runs=tuple(to_rows("engine_run", runs)),
    )
    made = build_snapshot(
        rows,
        at,
        window_s=window_s,
        pool=shown,
        mode=mode,
        verdict=FILLING,
        notes=tuple(dict.fromkeys((*answer.partial, *found.partial))),
    )
    lines = tuple(
        replace(r, name=f"others ({others})", folded=others, mark=Mark.NONE)
        if r.name == rest
        else r
        for r in made.tenants
    )
    flow = flowing(tenants, Span(rows, at, window_s))
    return (
        replace(
            made,
            filling=True,
            every_column=False,
            trend=None,
            tenants=lines,
            account=_account(lines, flow, rest, made.covered_s),
            # None: how many batches were lost in the last hour has not been asked.
            lamps=replace(made.lamps, lost=None),
            pools=tuple(sorted({e.pool for e in heard})),
        ),
        bucket_s,
    )


def _tenants(found: Result) -> tuple[list[TenantMinute], str, int]:
    """The rows, what all others are called in them, and how many those are."""
    if found.columns[-1:] != ("others",):
        raise QueryError("a glance came with other columns: the two sides are of other versions")
    at = found.columns.index("tenant")
    named = {row[at] for row in found.rows}
    rest = "others"
    while rest in named:  # names are data: a tenant may be called so
        rest += "'"
    values = [
        (*row[:at], rest if row[at] is None else row[at], *row[at + 1 : -1]) for row in found.rows
    ]
    others = max((row[-1] for row in found.rows if row[-1] is not None), default=0)
    return filled(TenantMinute, found.columns[:-1], values), rest, others


def _account(
    lines: Sequence[TenantRow], minutes: Sequence[TenantMinute], rest: str, covered_s: float
) -> Account:
    own: dict[str, list[TenantMinute]] = {}
    for m in minutes:
        own.setdefault(m.tenant, []).append(m)
    tenants = tuple(_now(line, own.get(rest if line.folded else line.name, ()), covered_s)
                    for line in lines)  # fmt: skip
    return Account(
        tenants=tenants,
        not_tenants=(),
        total_s=sum(t.wait_s or 0.0 for t in tenants),
        basis=WAITED,
        span_s=covered_s,
    )


def _now(line: TenantRow, minutes: Sequence[Any], covered_s: float) -> TenantNow:
    return TenantNow(
        row=line,
        minutes=tuple(minutes),
        covered_s=covered_s,
        wait_s=total([getattr(m, f"wait_{r}_s") for m in minutes for r in WAIT_REASONS]),
        missed=count([m.slo_missed for m in minutes]),
        eligible=count([m.slo_eligible for m in minutes]),
    )
