"""Usage as tables: aligned text for a person, rows for CSV. Owns words and columns, no numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from telemetry.ask.usage import EngineTime, Period, Usage, Use
from telemetry.plain import cells, clip, safe, span_s

TENANT = "tenant"
UNBILLED = ("base", "capacity", "idle", "early")
CSV_COLUMNS = ("period", "kind", *Use.__slots__)


def lines(usage: Usage) -> Iterator[str]:
    """A table a period, and below it where the engines' time went."""
    for i, period in enumerate(usage.periods):
        if i:
            yield ""
        yield f"{period.period} (UTC)" + (", not all of it sealed yet" if period.open else "")
        yield from _table(period.uses)
        yield ""
        yield from _engine_time(period)
    for lack in usage.partial:
        yield f"PARTIAL: {safe(lack)}"


def _table(uses: Sequence[Use]) -> Iterator[str]:
    if not uses:
        yield "  no tenant was active"
        return
    head = ("tenant", "requests", "finished", "prompt", "cached", "output", "redone", "engine-s")
    rows = [head] + [
        (
            safe(u.tenant),
            f"{u.offered_requests:,}",
            f"{u.finished:,}",
            f"{u.prompt_tokens:,}",
            f"{u.cached_tokens:,}",
            f"{u.output_tokens:,}",
            f"{u.recomputed_tokens:,}",
            f"{u.engine_seconds:,.3f}",
        )
        for u in uses
    ]
    widest = min(40, max(cells(r[0]) for r in rows))
    widths = [max(len(r[i]) for r in rows) for i in range(1, len(head))]
    for row in rows:
        name = clip(row[0], widest)
        numbers = "  ".join(c.rjust(w) for c, w in zip(row[1:], widths, strict=True))
        yield f"  {name}{' ' * (widest - cells(name))}  {numbers}"


def _engine_time(period: Period) -> Iterator[str]:
    time = period.time
    if time is None:
        yield "  No engine was heard: the bills cannot be held against engine time."
        return
    yield "  engine time, all tenants"
    for label, value, note in _account(time):
        # Plus zero: what rounds to nothing has no sign.
        yield f"    {label:<12}{round(value, 3) + 0.0:>16,.3f} s  {note}".rstrip()
    if time.closes:
        yield "    The bills and the engines' time agree."
    else:
        yield (
            f"    THEY DO NOT AGREE: {span_s(abs(time.difference_s))} "
            f"{'too much' if time.difference_s > 0 else 'missing'}. Rows of the window are lost, "
            "or its edge cuts a run."
        )


def _account(time: EngineTime) -> Iterator[tuple[str, float, str]]:
    yield "billed", time.billed_s, "the tenants' engine-seconds"
    yield "+ base", time.base_s, "billed to nobody: the fixed cost of steps"
    yield "+ capacity", time.capacity_s, "billed to nobody: steps slower than the model"
    yield "+ idle", time.idle_s, "billed to nobody: no step under way"
    yield "- early", time.early_s, "billed, never spent: steps faster than the model"
    yield "= sum", time.observed_s + time.difference_s, ""
    yield "observed", time.observed_s, "by the engines' own clocks"
    yield "difference", time.difference_s, ""


def csv_rows(usage: Usage) -> Iterator[tuple[Any, ...]]:
    """A row a tenant and period, `kind` tenant; then what is billed to nobody, a row each: the
    engine-seconds of a period add up to its observed time, with `early` negative."""
    for period in usage.periods:
        for use in period.uses:
            yield (period.period, TENANT, *(getattr(use, n) for n in Use.__slots__))
        if period.time is not None:
            time = period.time
            for kind, value in zip(
                UNBILLED, (time.base_s, time.capacity_s, time.idle_s, -time.early_s), strict=True
            ):
                blank = [None] * (len(Use.__slots__) - 1)
                yield (period.period, kind, *blank, value)
