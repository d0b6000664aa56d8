"""Gathers the report's numbers from a window. Pure; reads no store and words nothing but events."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import tzinfo

from postmortem.report.model import (
    FEW,
    Coverage,
    Impact,
    Latency,
    Minute,
    Moment,
    Reconciled,
    Report,
)
from telemetry.case import Case, open_case
from telemetry.conventions import REJECT_REASONS, WAIT_REASONS
from telemetry.findings import examine
from telemetry.findings.change import changes
from telemetry.findings.frozen import age_s
from telemetry.records import RequestRecord
from telemetry.verdict import Verdict, judge_case
from telemetry.window import (
    Bucket,
    Gap,
    Window,
    observed_s,
    rejected,
    tenants_of,
    total,
    value_in,
)

BEFORE_S = 600.0  # how far before the window the timeline reaches
MATTERS = 0.2  # of the pool: a smaller tenant's rise is not in the timeline
ASKED = ("tokens offered", "requests offered")  # what is held longer was not asked for


def build_report(window: Window, *, zone: tzinfo | None = None) -> Report:
    """Judge a window and gather what the report says of it."""
    case = open_case(window)
    findings = examine(case)
    verdict = judge_case(case, findings, zone=zone)
    top = _top(case, verdict)
    return Report(
        window.pool,
        window.start,
        window.end,
        case.start,
        case.end,
        tuple(sorted({r.model for r in window.runs})),
        any(r.synthetic for r in window.runs),
        verdict,
        case.accounts.growth,
        case.basis,
        tuple(r for r in case.rises if r.rose),
        _impacts(case),
        _timeline(case),
        tuple(findings.values()),
        top,
        _minutes(case, top),
        _coverage(case),
        _reconcile(window),
    )


def _top(case: Case, verdict: Verdict) -> str | None:
    """The tenant whose share the minutes show: the one named, else the largest by service."""
    if verdict.tenant is not None:
        return verdict.tenant
    service = {
        t: total(case.window.asked, t, "service") or 0.0 for t in tenants_of(case.window.asked)
    }
    return max(sorted(service), key=lambda t: service[t], default=None)


# ---------------------------------------------------------------- impact


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


def _impacts(case: Case) -> tuple[Impact, ...]:
    window, asked = case.window, case.window.asked
    usual = {b.start: b.end for b in case.baseline.buckets}
    starts = sorted(usual)

    def in_usual(at: float) -> bool:
        i = bisect_right(starts, at) - 1
        return i >= 0 and at < usual[starts[i]]

    now: dict[str, list[RequestRecord]] = {}
    before: dict[str, list[RequestRecord]] = {}
    first, last = _whole(window)
    for r in window.requests:
        if first <= r.arrived < last:
            now.setdefault(r.tenant, []).append(r)
        if in_usual(r.arrived):
            before.setdefault(r.tenant, []).append(r)
    return tuple(
        _impact(case, t, latency(now.get(t, ())), latency(before.get(t, ()), in_usual))
        for t in tenants_of(asked)
    )


def _whole(window: Window) -> tuple[float, float]:
    """The window widened to whole buckets, so that rows of requests and of minutes compare."""
    asked = window.asked
    first = min([window.start, *(b.start for b in asked)])
    return first, max([window.end, *(b.end for b in asked)])


def _impact(case: Case, tenant: str, now: Latency, usual: Latency) -> Impact:
    base, asked = case.baseline, case.window.asked
    missed = int(total(asked, tenant, "slo_missed") or 0)
    offered = total(asked, tenant, "offered_requests")
    goodput, seen = total(asked, tenant, "goodput_tokens"), observed_s(asked)
    return Impact(
        tenant,
        tenant in {v.tenant for v in case.victims},
        None if offered is None else int(offered),
        sum(rejected(b.tenants[tenant]) for b in asked if tenant in b.tenants),
        max(missed, int(total(asked, tenant, "slo_eligible") or 0)),
        missed,
        base.miss_share.get(tenant) if base.usable else None,
        now,
        usual,
        goodput / seen if goodput is not None and seen else None,
        base.rate(tenant, "goodput_tokens") if base.usable else None,
        sum(total(asked, tenant, f"wait_{r}_s") or 0.0 for r in WAIT_REASONS),
    )


# ---------------------------------------------------------------- timeline and minutes


def _timeline(case: Case) -> tuple[Moment, ...]:
    window = case.window
    since = min(window.start, case.start) - BEFORE_S
    out = [Moment(c.at, "change", c.what) for c in changes(window, since, window.end)]
    for e in window.events:
        if e.kind == "mark" and since <= e.at < window.end:
            out.append(Moment(e.at, "mark", e.detail or ""))
    for episode in case.others:
        what = f"{len(episode.tenants)} hurt: a second incident, not judged here"
        out.append(Moment(episode.onset, "also", what))
    if case.incident is not None:
        names = {v.tenant for v in case.victims or case.hurt}
        out.append(Moment(case.incident.onset, "onset", "the first bucket outside the baseline"))
        first = next((b for b in case.buckets for t in names if _missed(b, t)), None)
        if first is not None:
            who = sorted(t for t in names if _missed(first, t))
            out.append(Moment(first.start, "miss", f"first miss: {', '.join(who)}"))
        for at, what in _rose(case):
            out.append(Moment(at, "demand", what))
        if case.incident.end < window.end:
            out.append(Moment(case.incident.end, "end", _after(case, case.incident.end)))
    return tuple(sorted(out, key=lambda m: (m.at, _PLACE.get(m.kind, 1))))


# What comes first among moments of one bucket: causes before effects.
_PLACE = {"change": 0, "mark": 0, "demand": 1, "onset": 2, "miss": 3, "end": 4, "also": 5}


def _after(case: Case, end: float) -> str:
    if any(b.known and b.start <= end < b.end for b in case.window.asked):
        return "misses and waits of those hurt are back to usual"
    return "the last bucket outside the baseline; what follows was not observed"


def _missed(bucket: Bucket, tenant: str) -> bool:
    return bool(value_in(bucket, tenant, "slo_missed"))


def _rose(case: Case) -> list[tuple[float, str]]:
    """Buckets in which the demand of a tenant that rose first passed twice its usual."""
    out: list[tuple[float, str]] = []
    near = [
        b for b in case.window.buckets if case.start - BEFORE_S <= b.start < case.end and b.known
    ]
    asking = {
        r.tenant for r in case.rises if r.rose and r.pool_share >= MATTERS and r.resource in ASKED
    }
    for tenant in sorted(asking):
        usual = case.baseline.rate(tenant, "offered_tokens")
        if usual is None:
            continue
        for b in near:
            offered = value_in(b, tenant, "offered_tokens") or 0.0
            if b.observed_s and offered > 0 and offered / b.observed_s > 2 * usual:
                out.append((b.start, f"{tenant} begins to ask for more than twice its usual"))
                break
    return out


def _minutes(case: Case, top: str | None) -> tuple[Minute, ...]:
    """One row a bucket, and one for every gap in which not even the front was heard."""
    asked = case.window.asked
    rows = [_minute(case, b, top) for b in asked]
    for gap in case.window.gaps():
        if any(b.start < gap.end and b.end > gap.start for b in asked):
            continue
        rows.append(_nothing(gap))
    return tuple(sorted(rows, key=lambda m: m.start))


def _nothing(gap: Gap) -> Minute:
    return Minute(
        start=gap.start,
        length_s=gap.end - gap.start,
        state="gap",
        offered=None,
        rejected=None,
        share=None,
        waits=tuple((r, None) for r in WAIT_REASONS),
        missed=None,
        kv_share=None,
        step_s=None,
        expected_step_s=None,
        last_token_age_s=None,
        in_incident=False,
        in_baseline=False,
    )


def _minute(case: Case, bucket: Bucket, top: str | None) -> Minute:
    rows = bucket.tenants.values()
    e = bucket.engine
    front = e is not None or any(r.offered_requests is not None for r in rows)
    service = {t: value_in(bucket, t, "service") or 0.0 for t in bucket.tenants}
    whole = sum(service.values())
    steps = e.steps if e is not None else None
    return Minute(
        start=bucket.start,
        length_s=bucket.length_s,
        state="gap" if e is None else "short" if bucket.short else "observed",
        offered=sum(r.offered_requests or 0 for r in rows) if front else None,
        rejected=sum(rejected(r) for r in rows) if front else None,
        share=service.get(top or "", 0.0) / whole if whole else None,
        waits=tuple((r, _over_tenants(bucket, f"wait_{r}_s")) for r in WAIT_REASONS),
        missed=None if e is None else int(_over_tenants(bucket, "slo_missed") or 0),
        kv_share=_ratio(e.kv_bytes_avg, e.pool_bytes) if e is not None else None,
        step_s=_ratio(e.busy_s, steps) if e is not None else None,
        expected_step_s=_ratio(e.predicted_s, steps) if e is not None else None,
        last_token_age_s=age_s(bucket),
        in_incident=case.incident is not None and case.start <= bucket.start < case.end,
        in_baseline=any(b.start == bucket.start for b in case.baseline.buckets),
    )


def _over_tenants(bucket: Bucket, column: str) -> float | None:
    """The pool's sum of a tenant column; None where no engine was heard."""
    if not bucket.known:
        return None
    return sum(value_in(bucket, t, column) or 0.0 for t in bucket.tenants)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


# ---------------------------------------------------------------- coverage and reconciliation


def _coverage(case: Case) -> Coverage:
    window, base = case.window, case.baseline
    asked = [b for b in window.asked if b.known]
    gaps = window.gaps()
    return Coverage(
        len(asked) + sum(g.buckets for g in gaps),
        len(asked),
        sum(b.short for b in asked),
        gaps,
        observed_s(asked),
        tuple(sorted({e for b in asked for e in b.engines})),
        len({r.run_id for r in window.runs if r.started < window.end}),
        len(base.buckets),
        base.start,
        base.end,
        base.inside,
        base.left_out,
        base.problem,
        any(r.offered_requests is not None for b in window.asked for r in b.tenants.values()),
    )


def _reconcile(window: Window) -> Reconciled:
    asked = window.asked
    names = tenants_of(asked)

    def whole(column: str) -> int | None:
        sums = [s for t in names if (s := total(asked, t, column)) is not None]
        return int(sum(sums)) if sums else None

    first, last = _whole(window)
    requests = [r for r in window.requests if first <= r.arrived < last]
    return Reconciled(
        whole("offered_requests"),
        whole("admitted_requests"),
        sum(whole(f"rejected_{r}_requests") or 0 for r in REJECT_REASONS),
        len(requests),
        whole("prompt_tokens"),
        sum((r.prompt_tokens or 0) - (r.cached_tokens or 0) for r in requests if r.admitted),
        whole("output_tokens"),
        sum(r.output_tokens or 0 for r in requests),
        sum(total(asked, t, f"wait_{r}_s") or 0.0 for t in names for r in WAIT_REASONS),
        sum(s for b in asked for c, s in b.matrix.items() if c.reason in WAIT_REASONS),
    )
