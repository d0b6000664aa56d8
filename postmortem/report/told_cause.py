"""Sections on behind whom: shares, matrix, waits by reason, causes, the profile. Words only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from postmortem.report.cells import bars, count, percent1, rate, seconds, share1
from postmortem.report.document import Figure, Grid, Part, Section
from postmortem.report.model import Report, Waited
from postmortem.report.parts import ProfileRow
from postmortem.report.timeline import ASKED
from telemetry.attribution import Line
from telemetry.conventions import WAIT_REASONS
from telemetry.findings.finding import Evidence, Finding, Holds
from telemetry.plain import clock, percent, span_s
from telemetry.verdict import CAPACITY

MOST_ROWS = 20
MOST_COLUMNS = 5  # of the matrix, in text


def curve(report: Report, zone: tzinfo | None) -> Section:
    c = report.curve
    heard = [p for p in c.points if p.shares[-1] is not None]
    if not heard or not c.tenants:
        return Section("The curve", ("No bucket of this window was heard.",))
    names = [*c.tenants, *([f"{c.others} others"] if c.others else [])]
    rows = [
        (
            name,
            percent(max(s for p in heard if (s := p.shares[i]) is not None)),
            bars([p.shares[i] for p in c.points]),
        )
        for i, name in enumerate(names)
    ]
    most = max((p.missed or 0 for p in heard), default=0)
    misses = bars([None if p.missed is None else p.missed / max(1, most) for p in c.points])
    rows.append(("misses, all tenants", str(most), misses))
    first, last = c.points[0], c.points[-1]
    return Section(
        "The curve",
        (
            f"Share of the service (prompt tokens computed + twice the output tokens) by bucket, "
            f"{clock(first.start, zone)} to {clock(last.start + last.length_s, zone)}; a full bar "
            "is all of it, ? was not heard.",
            Figure("curve", "Share of the service by tenant, stacked to 100%; below it the misses. "
                   "The line under the axis is the incident; a gap was not heard."),
            Grid(("tenant", "most", "over time"), tuple(rows), frozenset((1,))),
        ),
    )  # fmt: skip


def waits(report: Report) -> Section:
    rows = report.reasons
    if not rows:
        return Section("What those hurt waited for", ("Nobody was hurt.",))
    head = ("tenant", *WAIT_REASONS, "all", "usual", "stall")
    table = tuple(
        (
            w.tenant,
            *(seconds(s) for s in w.now),
            seconds(sum(w.now)),
            seconds(sum(w.usual)),
            seconds(w.stall_s),
        )
        for w in rows
    )
    return Section(
        "What those hurt waited for",
        (
            "Over the judged buckets: for a slot, the step's budget, pages (kv), its adapter. "
            "Stall is inside prefill or decode, no wait.",
            Figure(
                "waits",
                "Waits of those hurt by reason; the grey mark is what is usual.",
            ),
            Grid(head, table, frozenset(range(1, len(head)))),
        ),
    )


def holders(report: Report, zone: tzinfo | None) -> Section:
    accounts = _hurt_accounts(report)
    if not any(a.excess_s for a in accounts):
        return Section("Who held it", ("No tenant has an excess to share out.",))
    what = "stall" if report.accounts.reasons == ("stall",) else "wait"
    growth = report.growth
    basis = {
        "tenants": f"the median growth of {growth.peers} other tenants",
        "steps": "step time at equal batch",
        "none": "nothing known, so 1",
    }[growth.basis]
    parts: list[Part] = [
        f"Shares of the hurt tenants' excess {what} from {clock(report.judged_start, zone)} to "
        f"{clock(report.judged_end, zone)}. Common growth taken off: {growth.factor:.2f}x "
        f"({basis}). What is charged to tenants that asked for no more than usual is handed on "
        "to those that did and to lost capacity: they only stood in the same line. The column "
        "charged is as the matrix has it." + _usual_pace(report),
        _shares(report.accounts.pool),
        Grid(
            ("victim", "waited", "usual", "excess", "mostly behind", "kind", "for"),
            tuple(_behind(a) for a in accounts[:MOST_ROWS]),
            frozenset((1, 2, 3)),
        ),
    ]
    if len(accounts) > MOST_ROWS:
        parts.append(f"{len(accounts) - MOST_ROWS} more hurt tenants are in the totals.")
    parts += _rose(report)
    return Section("Who held it", tuple(parts))


def _hurt_accounts(report: Report) -> list[Waited]:
    v = report.verdict
    hurt = [x.tenant for x in v.victims or v.hurt]
    return [report.accounts.accounts[t] for t in hurt if t in report.accounts.accounts]


def _shares(pool: Sequence[Line]) -> Grid:
    tenants = [x for x in pool if x.holder.is_tenant and (x.excess_s or x.charged_s)]
    shown, left = tenants[:MOST_ROWS], tenants[MOST_ROWS:]
    outside = [x for x in pool if not x.holder.is_tenant]
    rows = [_held(x.holder.kind, x.holder.name, [x]) for x in shown]
    if left:
        rows.append(_held("more", f"{len(left)} tenants", left))
    rows += [_held(x.holder.kind, x.holder.name, [x]) for x in outside]
    rows.append(_held("total", "", pool))
    head = ("kind", "holder", "charged", "excess", "share")
    return Grid(head, tuple(rows), frozenset((2, 3, 4)))


def _held(kind: str, name: str, lines: Sequence[Line]) -> tuple[str, ...]:
    return (
        kind,
        name,
        seconds(sum(x.charged_s for x in lines)),
        seconds(sum(x.excess_s for x in lines)),
        percent1(sum(x.share for x in lines)),
    )


def _rose(report: Report) -> list[Part]:
    rose = [r for r in report.rises if r.pool_share >= 0.05][:MOST_ROWS]
    if report.verdict.kind == CAPACITY:
        # Under slow steps everybody holds what it has for longer: that is no use that rose.
        rose = [r for r in rose if r.resource in ASKED]
    if not rose:
        return []
    head = ("tenant", "resource", "usual", "now", "over usual", "of the pool")
    rows = tuple(
        (
            r.tenant,
            r.resource,
            rate(r.usual, r.unit),
            rate(r.now, r.unit),
            "from nothing" if r.ratio is None else f"{r.ratio:.2f}x",
            percent(r.pool_share),
        )
        for r in rose
    )
    return [
        "Whose own use rose (associated: it rose while the others waited):",
        Grid(head, rows, frozenset((2, 3, 4, 5))),
    ]


def _behind(a: Waited) -> tuple[str, ...]:
    top = a.top
    behind = (top.holder.name, top.holder.kind) if top else ("", "-")
    reason = top.reasons[0][0] if top and top.reasons else "-"
    return (a.tenant, seconds(a.waited_s), seconds(a.usual_s), seconds(a.excess_s), *behind, reason)


def matrix(report: Report) -> Section:
    """Victims by holders, in seconds; the columns that no cell fills are left away."""
    h = report.heat
    if not h.cells:
        return Section("Who waited behind whom", ("No excess was charged to anybody.",))
    columns = list(dict.fromkeys((c.kind, c.holder) for c in h.cells))
    columns.sort(key=lambda k: (k[0] != "tenant", -_column(report, k)))
    if len(columns) > MOST_COLUMNS:
        columns = columns[:MOST_COLUMNS]
    victims = list(dict.fromkeys(c.victim for c in h.cells))
    by = {(c.victim, c.kind, c.holder): c.excess_s for c in h.cells}
    rows: list[tuple[str, ...]] = []
    for v in victims:
        cells = [by.get((v, *k), 0.0) for k in columns]
        whole = sum(c.excess_s for c in h.cells if c.victim == v)
        rows.append((v, *map(seconds, cells), seconds(max(0.0, whole - sum(cells)))))
    named = tuple(k[1] if k[0] == "tenant" else f"({k[0]})" for k in columns)
    said = "Excess seconds of each victim (rows) behind each holder (columns)."
    if h.left_s >= 0.05:
        said += (
            f" Not shown: {seconds(h.left_s)} of {seconds(h.whole_s)}, of {h.victims_left} more "
            f"victims and {h.holders_left} more holders."
        )
    head = ("victim", *named, "rest")
    return Section(
        "Who waited behind whom",
        (
            said,
            Figure("heat", "The darker, the more seconds of the victim's excess wait were charged "
                   "to the holder. It says who held, and accuses nobody."),
            Grid(head, tuple(rows), frozenset(range(1, len(head)))),
        ),
    )  # fmt: skip


def _column(report: Report, key: tuple[str, str]) -> float:
    return sum(c.excess_s for c in report.heat.cells if (c.kind, c.holder) == key)


def causes(report: Report) -> Section:
    """Causes with their shares, then every finding with its numbers: those that hold, those that
    do not, those that cannot be told."""
    parts: list[Part] = []
    ranked = report.verdict.causes
    if ranked:
        parts += [
            "Parts of the excess first, greatest first, adding up to all of it; then what set it "
            "off or went with it.",
            Grid(
                ("cause", "share", "what is said of it"),
                tuple((c.name.replace("_", " "), share1(c.share), c.sentence) for c in ranked),
                frozenset((1,)),
            ),
        ]
    named = {c.name for c in ranked}
    others = [f for f in report.findings if f.name not in ("hurt", "holder", *named)]
    lines = [f.sentence for f in others if f.holds is not Holds.YES]
    lines += [
        f.sentence for f in report.findings if f.name == "holder" and f.sentence.startswith("NOT")
    ]
    parts += ["What it was not, or cannot be told:", tuple(lines) or "Nothing was excluded."]
    rows = tuple(_finding(f) for f in report.findings)
    if rows:
        parts += ["Every finding, and its numbers:",
                  Grid(("finding", "holds", "strength", "numbers"), rows)]  # fmt: skip
    return Section("Causes, and what was excluded", tuple(parts))


def _finding(f: Finding) -> tuple[str, ...]:
    numbers = ", ".join(f"{e.name} {_evidence(e)}" for e in f.evidence)
    strength = f.strength.value if f.strength is not None else "-"
    return (f.name.replace("_", " "), f.holds.value, strength, numbers or "-")


def _evidence(e: Evidence) -> str:
    if e.value is None:
        return "not known"
    if e.unit == "s" and abs(e.value) < 1e8:  # an instant is no duration
        return span_s(e.value) if e.value >= 0 else f"-{span_s(-e.value)}"
    if e.unit == "s":
        return f"at {e.value:.0f}"
    if e.unit == "By":
        return f"{e.value / 2**20:,.1f} MiB"
    said = f"{e.value:,.0f}" if abs(e.value) >= 100 or e.value == int(e.value) else f"{e.value:.2f}"
    return said if e.unit == "1" else f"{said} {e.unit}"


def profile(report: Report) -> Section:
    p = report.profile
    if not p.rows:
        return Section("Profile of tenants", ("No tenant was active in the window.",))
    head = ("rank", "tenant", "offered", "share", "held", "of excess", "V/M", "missed")
    rows = [_profile(r, str(r.rank), r.name) for r in p.rows]
    if p.rest is not None:
        rows.append(_profile(p.rest, "MISC", f"{p.rest.tenants} more tenants"))
    rows += [_profile(r, "", f"({r.name})") for r in p.not_tenants]
    rows.append(_profile(p.total, "total", ""))
    return Section(
        "Profile of tenants",
        (
            "Ranked by what each held of the others' excess, then by service. share: of the "
            "service, over the window; held, of excess: over the judged buckets; V/M: variance to "
            "mean of its arrivals a bucket, 1 for a steady stream, more for bursts.",
            Grid(head, tuple(rows), frozenset((0, 2, 3, 4, 5, 6, 7))),
        ),
    )


def _profile(r: ProfileRow, rank: str, name: str) -> tuple[str, ...]:
    return (
        rank,
        name,
        count(r.offered),
        share1(r.service_share),
        seconds(r.excess_s),
        share1(r.excess_share),
        "-" if r.vmr is None else f"{r.vmr:.1f}",
        str(r.missed),
    )


def _usual_pace(report: Report) -> str:
    pace = report.accounts.usual_pace
    if pace < 1.05:
        return ""
    return (
        f" Calm steps take {pace:.2f}x the model too: that much of the lost capacity is given back "
        "to the holders."
    )
