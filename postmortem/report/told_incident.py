"""Sections that tell the incident: summary, impact, timeline, detection. Words only."""

from __future__ import annotations

from datetime import tzinfo

from postmortem.report.cells import count, number, seconds, ttft
from postmortem.report.document import Grid, Part, Section
from postmortem.report.model import FEW, Impact, Report
from telemetry.plain import clock, percent, span_s
from telemetry.verdict import TENANT, when

MOST_ROWS = 20


def summary(report: Report, zone: tzinfo | None) -> Section:
    v = report.verdict
    claims = [f"{v.confidence} confidence"] if v.confidence else []
    if v.strength:
        claims.insert(0, f"claim strength {v.strength.value}")
    parts: list[Part] = [tuple(v.sentences)]
    if v.kind == TENANT:
        called = "is called the culprit" if v.culprit is not None else "is likely, not proven"
        parts.append("; ".join([*claims, f"{v.tenant} {called}"]) + ".")
    if v.onset is not None and v.end is not None:
        parts.append(
            f"Incident: {when(v.onset, zone)} to {clock(v.end, zone)}, to within a bucket of "
            f"{span_s(v.bucket_s)}. It is judged against {report.coverage.baseline_buckets} calm "
            "buckets."
        )
        if v.onset + v.bucket_s <= report.start:
            parts.append(
                f"It began {span_s(report.start - v.onset)} before the window that was asked for: "
                "the claims above are about all of it, the tables of impact about the window."
            )
    if report.synthetic:
        parts.append("The model was a synthetic stand-in: latencies are not those of a real one.")
    return Section("Summary", tuple(parts))


def impact(report: Report) -> Section:
    listed = sorted(report.impact, key=lambda i: (not i.hurt, -i.missed, -i.waited_s, i.tenant))
    shown, left = listed[:MOST_ROWS], listed[MOST_ROWS:]
    if not shown:
        return Section("Impact", ("No tenant was active in the window.",))
    counts = ("", "tenant", "offered", "refused", "eligible", "missed", "miss", "usual", "waited")
    times = ("", "tenant", "ref", "n", "TTFT", "usual", "max gap", "usual", "goodput", "usual")
    parts: list[Part] = [
        "Over the whole window asked for"
        + ("" if report.verdict.onset is None else ", where the summary counts the incident alone")
        + "; ! marks those hurt by something other than themselves.",
        Grid(counts, tuple(_counts(i) for i in shown), frozenset(range(2, len(counts)))),
        "ref: part of the offered requests that was refused, and so has no latency. TTFT as "
        f"p50/p99 of the n requests that arrived here (under {FEW} the maximum); goodput in tokens "
        "a second. Usual: in the baseline.",
        Grid(times, tuple(_times(i) for i in shown), frozenset(range(2, len(times)))),
    ]
    if not report.reconciled.requests and report.reconciled.offered:
        parts.append("No row of a request is stored for this window: TTFT and gaps are unknown.")
    silent = [f"{i.tenant}: {i.now.none_yet}" for i in shown if i.now.none_yet]
    if silent:
        parts.append(
            "Requests that never got a first token, in no TTFT above: " + ", ".join(silent)
        )
    if left:
        parts.append(f"{len(left)} more tenants, none hurt more, are in the JSON form.")
    return Section("Impact", tuple(parts))


def _counts(i: Impact) -> tuple[str, ...]:
    return (
        "!" if i.hurt else "",
        i.tenant,
        count(i.offered),
        count(i.rejected),
        count(i.eligible),
        count(i.missed),
        percent(i.missed / i.eligible) if i.eligible else "-",
        "-" if i.usual_miss_share is None else percent(i.usual_miss_share),
        seconds(i.waited_s),
    )


def _times(i: Impact) -> tuple[str, ...]:
    return (
        "!" if i.hurt else "",
        i.tenant,
        percent(i.rejected / i.offered) if i.offered else "-",
        count(i.now.n),
        ttft(i.now),
        ttft(i.usual),
        seconds(i.now.max_gap_s),
        seconds(i.usual.max_gap_s),
        number(i.goodput),
        number(i.usual_goodput),
    )


def timeline(report: Report, zone: tzinfo | None) -> Section:
    v = report.verdict
    parts: list[Part] = []
    if report.coverage.baseline_problem is not None:
        parts.append(f"No onset can be told: {report.coverage.baseline_problem}.")
    elif v.onset is None:
        parts.append("No onset: nobody left the baseline in this window.")
    else:
        parts.append(
            f"Onset: {when(v.onset, zone)}, the bucket of {span_s(v.bucket_s)} in which misses or "
            "waits first left the baseline."
        )
    rows = tuple((clock(m.at, zone), m.kind, m.source, m.what) for m in report.timeline)
    if rows:
        parts.append(Grid(("time", "kind", "source", "what"), rows))
    return Section("Onset and timeline", tuple(parts))


def detection(report: Report, zone: tzinfo | None) -> Section:
    if not report.detection:
        return Section("Detection", ("There was no incident to detect.",))
    rows = tuple(
        (
            n.step,
            "-" if n.at is None else clock(n.at, zone),
            "-" if n.lag_s is None else f"{n.lag_s:+.0f}s",
            n.source,
            n.what,
        )
        for n in report.detection
    )
    return Section(
        "Detection",
        (
            "From the onset, which is known afterwards, to the end.",
            Grid(("step", "time", "lag", "source", "what"), rows, frozenset((2,))),
        ),
    )
