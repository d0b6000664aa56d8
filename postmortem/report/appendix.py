"""Which rows a report was made of, each as a command that shows them again. Pure text."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime

from postmortem.report.parts import Asked, Context
from postmortem.report.requests import place, whole
from telemetry.case import Case


def iso(unix_s: float) -> str:
    """An instant as every command takes it."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")


def asked(case: Case, context: Context) -> tuple[Asked, ...]:
    """Reads and named queries, in the order in which they were made."""
    window = case.window
    first = min((b.start for b in window.buckets), default=window.start)
    here, wide = _span(window.start, window.end), _span(first, window.end)
    low, high = whole(window)
    where = place(context)

    def rows(table: str) -> str:
        return f"tenantscope export {where} {wide} --format csv --table {table} -o {table}.csv"

    return (
        Asked("service, waits and misses by tenant and bucket", rows("tenant_minute")),
        Asked("steps, pace and pool by bucket", rows("engine_minute")),
        Asked("who was charged for whose waits", rows("interference_minute")),
        Asked("events, and policies in force", rows("event")),
        Asked("latencies of requests (the report asks report_requests, report_worst)",
              f"tenantscope query requests_percentiles {where} {_span(low, high)}"),
        Asked("does every request add up", f"tenantscope query reconcile {where} {here}"),
        Asked("was every bucket heard", f"tenantscope query health {where} {wide}"),
        Asked("this report again", again(case, context)),
    )  # fmt: skip


def again(case: Case, context: Context, form: str = "md") -> str:
    """The command that writes this report."""
    return f"tenantscope postmortem report {where_and_when(case, context)} --format {form}"


def what_if_command(case: Case, context: Context) -> str:
    # It takes an address where others take `--connect`.
    asked_at = replace(context, live=False)
    return f"tenantscope postmortem whatif {where_and_when(case, asked_at)}"


def where_and_when(case: Case, context: Context) -> str:
    """`--store`, `--pool` where it was chosen, and the window: what every command takes."""
    window = case.window
    pool = f" --pool {shlex.quote(window.pool)}" if context.pool_given else ""
    return f"{place(context)}{pool} {_span(window.start, window.end)}"


def _span(start: float, end: float) -> str:
    return f"--from {iso(start)} --to {iso(end)}"
