"""The report in words: sections of paragraphs, lists and tables, made from its numbers.

Every format renders these same sections, so none can say what another does not. Text here is
plain; names are put in whole and each renderer makes them harmless in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo

from postmortem.report.build import ASKED
from postmortem.report.model import FEW, Impact, Latency, Minute, Report
from telemetry.attribution import NOT_TENANTS, Account, merge
from telemetry.findings.finding import Holds
from telemetry.plain import clock, percent, span_s
from telemetry.verdict import CAPACITY, TENANT, when

MOST_MINUTES = 90  # rows of the per-minute table; beyond it only those around the incident
MOST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. `right` are the columns that hold numbers; every row has as many cells as head."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, then its parts in order: a paragraph (str), a list (tuple), or a table."""

    title: str
    parts: tuple[str | tuple[str, ...] | Grid, ...]


def document(report: Report, zone: tzinfo | None = None) -> tuple[Section, ...]:
    """All sections of a report; times are in `zone` (None = the machine's)."""
    return (
        _summary(report, zone),
        _impact(report),
        _timeline(report, zone),
        _holders(report, zone),
        _excluded(report),
        _minutes(report, zone),
        _coverage(report, zone),
        _reconciled(report),
        _words(report),
    )


def title(report: Report, zone: tzinfo | None = None) -> str:
    return (
        f"Postmortem: pool {report.pool}, {when(report.start, zone)} to {clock(report.end, zone)}"
    )


# ---------------------------------------------------------------- sections


def _summary(report: Report, zone: tzinfo | None) -> Section:
    v = report.verdict
    claims = [f"{v.confidence} confidence"] if v.confidence else []
    if v.strength:
        claims.insert(0, f"claim strength {v.strength.value}")
    parts: list[str | tuple[str, ...] | Grid] = [tuple(v.sentences)]
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


def _impact(report: Report) -> Section:
    listed = sorted(report.impact, key=lambda i: (not i.hurt, -i.missed, -i.waited_s, i.tenant))
    shown, left = listed[:MOST_ROWS], listed[MOST_ROWS:]
    if not shown:
        return Section("Impact", ("No tenant was active in the window.",))
    counts = ("", "tenant", "offered", "refused", "eligible", "missed", "miss", "usual", "waited")
    times = ("", "tenant", "n", "TTFT", "usual", "max gap", "usual", "goodput", "usual")
    parts: list[str | tuple[str, ...] | Grid] = [
        "Over the whole window asked for"
        + ("" if report.verdict.onset is None else ", where the summary counts the incident alone")
        + "; ! marks those hurt by something other than themselves.",
        Grid(counts, tuple(_counts(i) for i in shown), frozenset(range(2, len(counts)))),
        f"TTFT as p50/p99 of the n requests that arrived here (under {FEW} the maximum); goodput "
        "in tokens a second. Usual: in the baseline.",
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
        _count(i.offered),
        _count(i.rejected),
        _count(i.eligible),
        _count(i.missed),
        percent(i.missed / i.eligible) if i.eligible else "-",
        "-" if i.usual_miss_share is None else percent(i.usual_miss_share),
        _s(i.waited_s),
    )


def _times(i: Impact) -> tuple[str, ...]:
    return (
        "!" if i.hurt else "",
        i.tenant,
        _count(i.now.n),
        _ttft(i.now),
        _ttft(i.usual),
        _s(i.now.max_gap_s),
        _s(i.usual.max_gap_s),
        _number(i.goodput),
        _number(i.usual_goodput),
    )


def _timeline(report: Report, zone: tzinfo | None) -> Section:
    v = report.verdict
    parts: list[str | tuple[str, ...] | Grid] = []
    if report.coverage.baseline_problem is not None:
        parts.append(f"No onset can be told: {report.coverage.baseline_problem}.")
    elif v.onset is None:
        parts.append("No onset: nobody left the baseline in this window.")
    else:
        parts.append(
            f"Onset: {when(v.onset, zone)}, the bucket of {span_s(v.bucket_s)} in which misses or "
            "waits first left the baseline."
        )
    rows = tuple((clock(m.at, zone), m.kind, m.what) for m in report.timeline)
    if rows:
        parts.append(Grid(("time", "kind", "what"), rows))
    return Section("Onset and timeline", tuple(parts))


def _holders(report: Report, zone: tzinfo | None) -> Section:
    v = report.verdict
    hurt = [x.tenant for x in v.victims or v.hurt]
    accounts = [report.accounts.accounts[t] for t in hurt if t in report.accounts.accounts]
    if not any(a.excess_s for a in accounts):
        return Section("Who held it", ("No tenant has an excess to share out.",))
    what = "stall" if report.accounts.reasons == ("stall",) else "wait"
    shown = accounts[:MOST_COLUMNS]
    pool = merge(accounts)
    holders = [x.holder for x in pool if x.excess_s or x.holder in NOT_TENANTS]
    tenants = [h for h in holders if h.is_tenant][:MOST_ROWS]
    kept = [*tenants, *NOT_TENANTS]
    rest = [h for h in holders if h not in kept]
    head = ("kind", "holder", "charged", "excess", "share", *(f"of {a.tenant}" for a in shown))
    rows = []
    for holder in kept:
        x = next(p for p in pool if p.holder == holder)
        cells = [percent1(a.share(holder)) for a in shown]
        seconds = (_s(x.charged_s), _s(x.excess_s), percent1(x.share))
        rows.append((holder.kind, holder.name, *seconds, *cells))
    if rest:
        lines = [x for x in pool if x.holder in rest]
        cells = [percent1(sum(a.share(h) for h in rest)) for a in shown]
        rows.append(
            (
                "more",
                f"{len(rest)} tenants",
                _s(sum(x.charged_s for x in lines)),
                _s(sum(x.excess_s for x in lines)),
                percent1(sum(x.share for x in lines)),
                *cells,
            )
        )
    rows.append(
        (
            "total",
            "",
            _s(sum(a.charged_s for a in accounts)),
            _s(sum(a.excess_s for a in accounts)),
            percent1(sum(x.share for x in pool)),
            *(percent1(sum(x.share for x in a.lines)) for a in shown),
        )
    )
    growth = report.growth
    basis = {
        "tenants": f"the median growth of {growth.peers} other tenants",
        "steps": "step time at equal batch",
        "none": "nothing known, so 1",
    }[growth.basis]
    parts: list[str | tuple[str, ...] | Grid] = [
        f"Shares of the hurt tenants' excess {what} from {clock(report.judged_start, zone)} to "
        f"{clock(report.judged_end, zone)}. Common growth taken off: {growth.factor:.2f}x "
        f"({basis})." + _usual_pace(report),
        Grid(head, tuple(rows), frozenset(range(2, len(head)))),
        Grid(
            ("victim", "waited", "usual", "excess", "mostly behind", "kind", "for"),
            tuple(_behind(a) for a in accounts[:MOST_ROWS]),
            frozenset((1, 2, 3)),
        ),
    ]
    if len(accounts) > len(shown):
        parts.insert(2, f"{len(accounts) - len(shown)} more hurt tenants are in the totals.")
    rose = [r for r in report.rises if r.pool_share >= 0.05][:MOST_ROWS]
    if v.kind == CAPACITY:
        # Under slow steps everybody holds what it has for longer: that is no use that rose.
        rose = [r for r in rose if r.resource in ASKED]
    if rose:
        parts.append("Whose own use rose (associated: it rose while the others waited):")
        parts.append(
            Grid(
                ("tenant", "resource", "usual", "now", "over usual", "of the pool"),
                tuple(
                    (
                        r.tenant,
                        r.resource,
                        _rate(r.usual, r.unit),
                        _rate(r.now, r.unit),
                        "from nothing" if r.ratio is None else f"{r.ratio:.2f}x",
                        percent(r.pool_share),
                    )
                    for r in rose
                ),
                frozenset((2, 3, 4, 5)),
            )
        )
    return Section("Who held it", tuple(parts))


MOST_COLUMNS = 4  # victims with a column of their own


def _behind(a: Account) -> tuple[str, ...]:
    top = a.top
    behind = (top.holder.name, top.holder.kind) if top else ("", "-")
    reason = top.reasons[0][0] if top and top.reasons else "-"
    return (a.tenant, _s(a.waited_s), _s(a.usual_s), _s(a.excess_s), *behind, reason)


def _excluded(report: Report) -> Section:
    said = "\n".join(report.verdict.sentences)
    others = [f for f in report.findings if f.name not in ("hurt", "holder")]
    lines = [f.sentence for f in others if f.holds is not Holds.YES]
    lines += [
        f.sentence for f in report.findings if f.name == "holder" and f.sentence.startswith("NOT")
    ]
    found = [f.sentence for f in others if f.holds is Holds.YES and f.sentence not in said]
    parts: list[str | tuple[str, ...] | Grid] = [tuple(lines) or "Nothing was excluded."]
    if found:
        parts += ["Found beside it:", tuple(found)]
    return Section("What was excluded", tuple(parts))


def _minutes(report: Report, zone: tzinfo | None) -> Section:
    chosen = report.minutes
    parts: list[str | tuple[str, ...] | Grid] = []
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
    front = (flag, clock(m.start, zone), _count(m.offered), _count(m.rejected))
    if m.state == "gap":
        return (*front, "gap", *("-" for _ in range(8)))
    step = (
        "-"
        if m.step_s is None
        else f"{1000 * m.step_s:.0f}/{_number(m.expected_step_s and 1000 * m.expected_step_s)}"
    )
    return (
        *front,
        "-" if m.share is None else percent(m.share),
        *(_number(s) for _, s in m.waits),
        _count(m.missed),
        "-" if m.kv_share is None else percent(m.kv_share),
        step,
        _s(m.last_token_age_s),
    )


def _coverage(report: Report, zone: tzinfo | None) -> Section:
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


def _reconciled(report: Report) -> Section:
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


def _words(report: Report) -> Section:
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
                "that, and none was run here.",
                "culprit: said only of one tenant that holds at least 60% of the excess, whose own "
                "use rose, with at most 15% lost to capacity and nothing missing.",
                "miss: booked in the bucket in which its target is passed. goodput: output tokens "
                "of requests that met every target.",
            ),
        ),
    )


# ---------------------------------------------------------------- cells


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < abs(value) < 9.95 else f"{value:.0f}"


def _s(value: float | None) -> str:
    return "-" if value is None else span_s(value)


def percent1(value: float) -> str:
    """One decimal, so that columns close visibly."""
    return f"{100 * value:.1f}%"


def _rate(value: float, unit: str) -> str:
    if unit == "By":
        return f"{value / 2**20:.2f} MiB"
    return (
        f"{_number(value)}{unit.removeprefix('1')}"
        if unit.startswith("1")
        else (f"{_number(value)} {unit}")
    )


def _ttft(x: Latency) -> str:
    if x.max_s is None:
        return "-"
    if x.p50_s is None or x.p99_s is None:
        return f"max {span_s(x.max_s)} ({x.n})"
    return f"{span_s(x.p50_s)}/{span_s(x.p99_s)}"


def _usual_pace(report: Report) -> str:
    pace = report.accounts.usual_pace
    if pace < 1.05:
        return ""
    return (
        f" Calm steps take {pace:.2f}x the model too: that much of the lost capacity is given back "
        "to the holders."
    )
