"""What the report takes from rows of requests: latencies, totals and the worst of them.

Either from the rows of a window (pure), or asked of a store, which adds up before it answers: a
report on 200,000 requests reads a few thousand numbers. Both say the same.
"""

from __future__ import annotations

import json
import math
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from postmortem.report.model import FEW, Latency
from postmortem.report.parts import Context, Sample
from telemetry.case import Case
from telemetry.conventions import WAIT_REASONS
from telemetry.records import RequestRecord
from telemetry.window import Window

WORST = 10  # requests listed
WORST_OF_ONE = 3  # of one tenant
MOST_TENANTS = 200  # asked about at once
NONE = Latency(0, None, None, None, None, 0)


class Asks(Protocol):
    """Whatever answers named queries (`telemetry.source.Source` does)."""

    def query(self, name: str, **parameters: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Requests:
    """Latencies by tenant, in the window and usually; sums over the window's requests; the worst
    ones as (row of `report_worst`) dictionaries."""

    now: Mapping[str, Latency] = field(default_factory=dict)
    usual: Mapping[str, Latency] = field(default_factory=dict)
    count: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    worst: tuple[Mapping[str, Any], ...] = ()


Gather = Callable[[Case], Requests]


def whole(window: Window) -> tuple[float, float]:
    """The window widened to whole buckets, so that rows of requests and of minutes compare."""
    asked = window.asked
    first = min([window.start, *(b.start for b in asked)])
    return first, max([window.end, *(b.end for b in asked)])


def suspects(case: Case) -> tuple[str, ...]:
    """Whose worst requests are of interest: those hurt, or everybody's where nobody is."""
    named = [v.tenant for v in case.victims or case.hurt]
    if named:
        return tuple(named[:MOST_TENANTS])
    return tuple(sorted({t for b in case.window.asked for t in b.tenants})[:MOST_TENANTS])


# ---------------------------------------------------------------- from rows


def latency(
    requests: Sequence[RequestRecord], within: Callable[[float], bool] = lambda at: True
) -> Latency:
    """Percentiles over requests that were let in; refused ones have no latency. A number counts
    only where it was complete at an instant that is `within`: what is usual must not hold the
    wait of those that arrived in time and were caught by the incident."""
    let_in = [r for r in requests if r.outcome != "rejected"]
    times = sorted(t for r in let_in if (t := r.ttft_s) is not None and within(r.arrived + t))
    gaps = [
        g for r in let_in if (g := r.max_gap_s) is not None and (r.ended is None or within(r.ended))
    ]
    return Latency(
        len(times),
        _rank(times, 0.5) if len(times) >= FEW else None,
        _rank(times, 0.99) if len(times) >= FEW else None,
        times[-1] if times else None,
        max(gaps, default=None),
        len(let_in) - len(times),
    )


def _rank(values: Sequence[float], part: float) -> float:
    """Nearest-rank percentile of sorted values."""
    return values[max(0, math.ceil(part * len(values)) - 1)]


def of_rows(case: Case) -> Requests:
    """From the rows that the window holds."""
    window = case.window
    first, last = whole(window)
    spans = _usual_spans(case, first, last)
    starts = [a for a, _ in spans]

    def in_usual(at: float) -> bool:
        i = bisect_right(starts, at) - 1
        return i >= 0 and at < spans[i][1]

    now: dict[str, list[RequestRecord]] = {}
    usual: dict[str, list[RequestRecord]] = {}
    for r in window.requests:
        if first <= r.arrived < last:
            now.setdefault(r.tenant, []).append(r)
        if in_usual(r.arrived):
            usual.setdefault(r.tenant, []).append(r)
    here = [r for rows in now.values() for r in rows]
    return Requests(
        {t: latency(rows) for t, rows in now.items()},
        {t: latency(rows, in_usual) for t, rows in usual.items()},
        len(here),
        sum((r.prompt_tokens or 0) - (r.cached_tokens or 0) for r in here if r.admitted),
        sum(r.output_tokens or 0 for r in here),
        _worst_rows(here, suspects(case)),
    )


def _usual_spans(case: Case, first: float, last: float) -> list[tuple[float, float]]:
    """The baseline's buckets, those side by side joined."""
    out: list[tuple[float, float]] = []
    for b in case.baseline.buckets:
        if out and abs(out[-1][1] - b.start) < 1e-6:
            out[-1] = (out[-1][0], b.end)
        else:
            out.append((b.start, b.end))
    return out


def _worst_rows(
    requests: Iterable[RequestRecord], tenants: Sequence[str]
) -> tuple[Mapping[str, Any], ...]:
    wanted = set(tenants)
    rows = [
        {name: getattr(r, name) for name in _COLUMNS} | {"waited_s": waited}
        for r in requests
        if r.tenant in wanted and r.outcome != "rejected" and (waited := _waited(r)) is not None
    ]
    rows.sort(key=_worst_first)
    kept: list[Mapping[str, Any]] = []
    of: dict[str, int] = {}
    for row in rows:
        if of.get(row["tenant"], 0) < WORST_OF_ONE:
            of[row["tenant"]] = of.get(row["tenant"], 0) + 1
            kept.append(row)
    return tuple(kept)


_COLUMNS = (
    "tenant", "engine", "run_id", "request_id", "arrived", "outcome", "ttft_s", "wait_front_s",
    *(f"wait_{r}_s" for r in WAIT_REASONS), "prefill_s", "max_gap_s", "stall_s", "prompt_tokens",
    "output_tokens", "preemptions",
)  # fmt: skip


def _waited(r: RequestRecord) -> float | None:
    if r.ttft_s is not None:
        return r.ttft_s
    return None if r.ended is None else r.ended - r.arrived


def _worst_first(row: Mapping[str, Any]) -> tuple[float, float, str]:
    return -row["waited_s"], row["arrived"], row["request_id"]


# ---------------------------------------------------------------- from a store


def of_store(source: Asks, case: Case, tenants: Sequence[str]) -> Requests:
    """Asked of the store; the worst requests are of these tenants. Raises StoreError as reading
    does."""
    window = case.window
    first, last = whole(window)
    spans = _usual_spans(case, first, last)
    begins = min([first, *(a for a, _ in spans)])
    ends = max([last, *(z for _, z in spans)])
    rows = source.query(
        "report_requests", start=begins, end=ends, low=first, high=last, pool=window.pool,
        usual=json.dumps(spans),
    ).dicts()  # fmt: skip
    here = [r for r in rows if r["span"] == "now"]
    worst = source.query(
        "report_worst", start=first, end=last, pool=window.pool, n=WORST_OF_ONE,
        tenants=json.dumps(list(tenants)),
    ).dicts()  # fmt: skip
    return Requests(
        {r["tenant"]: _latency_of(r) for r in here},
        {r["tenant"]: _latency_of(r) for r in rows if r["span"] == "usual"},
        sum(r["requests"] for r in here),
        sum(r["prompt_tokens"] for r in here),
        sum(r["output_tokens"] for r in here),
        tuple(worst),
    )


def _latency_of(row: Mapping[str, Any]) -> Latency:
    enough = row["n"] >= FEW
    return Latency(
        row["n"],
        row["ttft_p50_s"] if enough else None,
        row["ttft_p99_s"] if enough else None,
        row["ttft_max_s"],
        row["max_gap_s"],
        row["let_in"] - row["n"],
    )


# ---------------------------------------------------------------- the worst, as the report has them


def samples(requests: Requests, context: Context) -> tuple[Sample, ...]:
    """The worst requests, with the command that shows each one's life."""
    return tuple(_sample(row, context) for row in requests.worst[:WORST])


def _sample(row: Mapping[str, Any], context: Context) -> Sample:
    parts = {
        "front": row["wait_front_s"],
        **{r: row[f"wait_{r}_s"] for r in WAIT_REASONS},
        "prefill": row["prefill_s"],
    }
    return Sample(
        row["tenant"],
        row["request_id"],
        row["engine"],
        row["run_id"],
        row["arrived"],
        row["outcome"],
        row["ttft_s"],
        row["waited_s"],
        tuple(parts.items()),
        row["prompt_tokens"],
        row["output_tokens"],
        explain_command(row["request_id"], context),
    )


def explain_command(request_id: str, context: Context) -> str:
    where = place(context)
    # `--` keeps an id that begins with a dash from being read as an option.
    dash = "-- " if request_id.startswith("-") else ""
    return f"tenantscope explain {where} {dash}{shlex.quote(request_id)}"


def place(context: Context) -> str:
    """The option that says where to ask."""
    option = "--connect" if context.live else "--store"
    return f"{option} {shlex.quote(context.store) if context.store else 'STORE'}"


def of_span(source: Asks, start: float, end: float, pool: str) -> dict[str, Latency]:
    """Latencies by tenant of what arrived in [start, end). Raises StoreError as reading does."""
    rows = source.query(
        "report_requests", start=start, end=end, low=start, high=end, pool=pool, usual="[]"
    ).dicts()
    return {r["tenant"]: _latency_of(r) for r in rows}
