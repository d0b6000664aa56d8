"""Sections about the data itself: buckets, coverage, reconciliation, words. Words only."""

from __future__ import annotations

from datetime import tzinfo

from postmortem.report.cells import count, number, seconds
from postmortem.report.document import Grid, Part, Section
from postmortem.report.model import Minute, Report
from telemetry.plain import clock, percent, span_s
from telemetry.verdict import when

MOST_MINUTES = 90  # rows of the per-minute table; beyond it only those around the incident


def minutes(report: Report, zone: tzinfo | None) -> Section:
    chosen = report.minutes
    parts: list[Part] = []
    if len(chosen) > MOST_MINUTES:
        near = [i for i, m in enumerate(chosen) if m.in_incident]
        first = max(0, near[0] - 5) if near else len(chosen) - MOST_MINUTES
        last = min(len(chosen), near[-1] + 6, first + MOST_MINUTES) if near else len(chosen)
        parts.append(
            f"Buckets {first + 1} to {last} of {len(chosen)}; the rest is in the JSON form."
        )
        chosen = chosen[first:last]
    if not chosen:
        return Section("Bucket by bucket", ("No bucket lies in this window.",))
    top = report.top_tenant
    parts.append(
        (f"share: {top}'s part of the service. " if top else "")
        + "Waits in seconds by reason; step in ms, as it was / as modelled; age: longest time "
        "without a token while work waited; ref: refused; KV: of the pool's bytes. * in the "
        "incident, b in the baseline, ~ observed in part."
    )
    head = ("", "bucket", "off", "ref", "share", "slot", "budget", "kv", "adapt", "miss", "KV",
            "step", "age")  # fmt: skip
    rows = tuple(_minute_row(m, zone) for m in chosen)
    parts.append(Grid(head, rows, frozenset(range(2, len(head)))))
    return Section("Bucket by bucket", tuple(parts))


def _minute_row(m: Minute, zone: tzinfo | None) -> tuple[str, ...]:
    flag = ("*" if m.in_incident else "b" if m.in_baseline else "") + (
        "~" if m.state == "short" else ""
    )
    front = (flag, clock(m.start, zone), count(m.offered), count(m.rejected))
    if m.state == "gap":
        return (*front, "gap", *("-" for _ in range(8)))
    step = (
        "-"
        if m.step_s is None
        else f"{1000 * m.step_s:.0f}/{number(m.expected_step_s and 1000 * m.expected_step_s)}"
    )
    return (
        *front,
        "-" if m.share is None else percent(m.share),
        *(number(s) for _, s in m.waits),
        count(m.missed),
        "-" if m.kv_share is None else percent(m.kv_share),
        step,
        seconds(m.last_token_age_s),
    )


def coverage(report: Report, zone: tzinfo | None) -> Section:
    c = report.coverage
    lines = [
        f"{c.observed} of {c.buckets} buckets observed ({span_s(c.observed_s)}), by "
        f"{len(c.engines)} engine(s): {', '.join(c.engines) or 'none'}; "
        f"{report.verdict.heard} of {report.verdict.engines} heard in the judged buckets",
    ]
    for gap in c.gaps:
        lines.append(
            f"gap: {gap.buckets} bucket(s) from {clock(gap.start, zone)} to "
            f"{clock(gap.end, zone)}; what happened there is unknown, not zero"
        )
    if c.short:
        lines.append(
            f"{c.short} bucket(s) observed in part: provisional, or cut by a start or a stop"
        )
    if not c.front_heard:
        lines.append("the front's counts (offered, admitted, refused) are missing")
    if c.baseline_start is not None and c.baseline_end is not None:
        where = "the calm beginning of the window" if c.baseline_inside else "before the window"
        lines.append(
            f"baseline: {c.baseline_buckets} closed buckets, {when(c.baseline_start, zone)} to "
            f"{clock(c.baseline_end, zone)}, {where}; {c.baseline_left_out} left out because "
            "somebody was hurt in them or right beside them"
        )
    else:
        lines.append(f"baseline: none, {c.baseline_problem or 'nothing came before'}")
    if report.models:
        lines.append(f"model: {', '.join(report.models)}; {c.runs} start(s) of a worker")
    return Section("Coverage", (tuple(lines),))


def reconciled(report: Report) -> Section:
    r = report.reconciled
    lines = []
    if r.offered is None or r.admitted is None:
        lines.append(
            "offered = rejected + admitted: cannot be checked, the front's counts are missing"
        )
    else:
        off = r.offered - r.rejected - r.admitted
        lines.append(
            f"offered {r.offered} = rejected {r.rejected} + admitted {r.admitted}: "
            + ("closes" if off == 0 else f"{off:+d} still between the two at the window's edges")
        )
    if r.offered is not None and r.requests < r.offered:
        lines.append(f"{r.requests} rows of {r.offered} requests: the rest is open, or missing")
    if r.requests:
        lines.append(_pair("prompt tokens computed", r.prompt_tokens, r.prompt_tokens_by_request))
        lines.append(_pair("output tokens", r.output_tokens, r.output_tokens_by_request))
    gap = r.waited_s - r.charged_s
    closes = abs(gap) < 0.0005  # as far as it is printed
    lines.append(
        f"waited {r.waited_s:.3f} s by tenant, charged {r.charged_s:.3f} s in the matrix: "
        + ("closes" if closes else f"{gap:+.3f} s not accounted for")
    )
    return Section("Reconciliation", (tuple(lines),))


def _pair(what: str, by_minute: int | None, by_request: int) -> str:
    if by_minute is None:
        return f"{what}: not in the minutes; {by_request} in the requests that arrived here"
    same = by_minute == by_request
    return f"{what}: {by_minute} in the minutes, {by_request} in the requests that arrived here" + (
        ": equal" if same else "; lives across the window's edges make the difference"
    )


def words(report: Report) -> Section:
    return Section(
        "Words",
        (
            (
                "charged: seconds of a tenant's waiting, by who held what it waited for. It says "
                "who held it; it accuses nobody.",
                "excess: charged, less what the baseline's rate and the common growth explain over "
                "the same observed time; never below 0.",
                "self: behind the tenant's own requests. capacity: steps longer than the cost "
                "model expects, or free but unusable room. policy: pinned or reserved by rule. "
                "others: holders beyond the first eight of a bucket.",
                "associated: it rose while others waited. charged: the waits were booked to it. "
                "counterfactual: without it the waits would not have been; only a replay can say "
                + ("that, and none was run here." if report.prevented is None else "that."),
                "culprit: said only of one tenant that holds at least 60% of the excess, whose own "
                "use rose, with at most 15% lost to capacity and nothing missing.",
                "miss: booked in the bucket in which its target is passed. goodput: output tokens "
                "of requests that met every target.",
            ),
        ),
    )
