"""One tenant: what it got and what it waited for, behind whom and who behind it, its last requests,
its policy. The strips of the upper half are `tenant_strips`; this owns what is asked and the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from console.account import EXCESS, TenantNow
from console.cells import clip, fit, width
from console.detail import Ask, Asks
from console.formats import percent, span
from console.lines import Glyphs, Line, Piece, Row, cut, join, rule, stacked
from console.listing import shown_name
from console.marks import REASON_FILLS, REASON_ROLES
from console.pages.changes import EVENT, ending_line, endings, values, version_line, word
from console.pages.history import History
from console.pages.request_list import REQUEST, request_lines
from console.pages.tenant_strips import (
    pool_lines,
    quota_line,
    share_lines,
    slo_line,
    ttft_lines,
    wait_lines,
)
from console.panels import Mark, Snapshot, TenantRow
from console.screens import TENANT, GoTo, Open, Page, Place, Say, Scene, Step, bucket_s_of, reach
from telemetry.conventions import WAIT_REASONS
from telemetry.plain import safe as plain

BUCKETS = 60  # of the strips
SPANS = {"15min": 900.0, "5min": 300.0, "1h": 3600.0, "6h": 21_600.0}
MOST_CHARGED, MOST_REQUESTS, MOST_VERSIONS = 12, 40, 12
LOW = 18  # lines below which TTFT is one line, and shares too
MARKED = {Mark.HURT: "HURT", Mark.NAMED: "the verdict names it", Mark.MISSING: "misses targets"}
Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """A list of the lower half: its heading, its lines, and what is said where there is none.
    `rest` is the line of all those but some (begin, end), where the list adds up to a total."""

    heading: Line
    body: tuple[Line, ...]
    nothing: str
    rest: Callable[[int, int], Line] | None = None


class TenantPage(Page):
    name: ClassVar[str] = TENANT
    title: ClassVar[str] = "TENANT"

    def wants(self, picture: Snapshot, place: Place) -> Asks:
        if place.tenant is None:
            return ()
        bucket_s = bucket_s_of(picture)
        of: dict[str, str] = {"pool": picture.pool or "", "tenant": place.tenant}
        whole, end = reach(picture, BUCKETS * bucket_s)
        start, _ = reach(picture, SPANS[place.switch("span", "15min")])
        return (
            Ask.of("history", "tenant_history", whole, end, **of),
            Ask.of("ttft", "tenant_ttft", start, end, **of),
            Ask.of("charged", "tenant_charged", start, end, most=MOST_CHARGED, **of),
            Ask.of("requests", "requests_page", start, end, one=True, which="all", sort="newest",
                   most=MOST_REQUESTS, **of),
            Ask.of("versions", "policy_versions", 0.0, end, one=True, most=MOST_VERSIONS, **of),
        )  # fmt: skip

    def heading(self, scene: Scene) -> str:
        if scene.place.tenant is None:
            return ""
        said = [clip(shown_name(scene.place.tenant), max(12, scene.cells // 2 - 10))]
        held = values(_held(scene))
        said += [MARKED[mark] for mark in (_now(scene).row.mark,) if mark in MARKED]
        doors = [state.tenant(scene.place.tenant) for state in scene.engines]
        if any(t is not None and t.draining for t in doors):
            said.append("DRAINING")
        h = _history(scene)
        if h.buckets and not any(b is not None and b["there"] for b in h.buckets):
            said.append("nothing was heard of it")
        said.append(f"last {scene.place.switch('span', '15min')}")
        if h.gaps:
            said.append(f"{h.gaps} of {len(h.buckets)} not observed")
        if h.short:
            said.append(f"{h.short} in part")
        said += [f"{n} {word(n, held[n])}" for n in ("weight", "tier") if held.get(n)]
        return ", ".join(said)

    def rows(self, scene: Scene) -> Sequence[Row]:
        return [x.row for s in self._sections(scene) for x in s.body if x.row is not None]

    def lines(self, scene: Scene) -> Sequence[Line]:
        if scene.place.tenant is None:
            words = "no tenant is chosen: esc, then Enter on a row of the overview or of `a`"
            return [cut(Line((Piece(f"  {words}", "dim"),)), scene.cells)]
        if not scene.detail.heard:
            return ()
        upper = self._strips(scene)
        room = scene.lines - len(upper)
        if room < 4:
            return upper
        return [*upper, *stack(self._sections(scene), room, scene)]

    def _strips(self, scene: Scene) -> list[Line]:
        cells, g, h, detail = scene.cells, scene.look.glyphs, _history(scene), scene.detail
        low = scene.lines < LOW
        shares, waits = share_lines(h, cells, g), wait_lines(h, _excess_s(scene), cells, g)
        ttft = ttft_lines(detail.rows("ttft"), cells, g, 1 if low else 3)
        return [
            *(shares[:1] if low else shares),
            *waits,
            *pool_lines(h, cells, g),
            *ttft,
            slo_line(h, cells, g),
            quota_line(h, _held(scene), cells, g),
        ]

    def _sections(self, scene: Scene) -> tuple[Section, ...]:
        s, cells, look, detail = scene.picture, scene.cells, scene.look, scene.detail
        tenant = scene.place.tenant or ""
        charged = detail.rows("charged")
        requests = detail.rows("requests")
        heading, *lives = (
            request_lines(requests, s.now, cells, look, of_one=True) if requests else (Line(),)
        )
        ends = [ending_line(x, s.now, cells, look) for x in endings(scene.engines, s.pool, tenant)]
        versions = [version_line(v, s.now, cells, look) for v in detail.rows("versions")]
        matching = f"{requests[0]['matching']}, x: all" if requests else ""
        return (
            _charged(charged, "behind", "WAITED BEHIND", "it did not wait", scene),
            _charged(charged, "held", "HELD UP", "nobody waited for it", scene),
            Section(_titled(f"REQUESTS {matching}", heading, cells, look.glyphs), tuple(lives),
                    "none of its requests has ended in this time"),
            Section(rule("ITS POLICY", "P: everybody's", cells, look.glyphs),
                    (*ends, *versions), "no version is recorded for it"),
        )  # fmt: skip

    def turn(self, scene: Scene, what: str) -> Place:
        if what != "span":
            return scene.place
        return replace(scene.place.next_of("span", tuple(SPANS)), cursor=None, first=0)

    def enter(self, scene: Scene) -> Step | None:
        row = scene.place.cursor
        if row is None:
            return Say("choose a row first (up, down or a click)")
        if row.kind == REQUEST:
            return Open("requests", scene.place.tenant)
        return GoTo(float(row.name)) if row.kind == EVENT else super().enter(scene)


def stack(sections: Sequence[Section], room: int, scene: Scene) -> list[Line]:
    """Sections under each other in `room` lines: one line of each first, then another of each as
    long as there is room. The section with the cursor shows the lines around it."""
    sections = list(sections)[: max(1, room // 2)]
    wants = [max(1, len(s.body)) for s in sections]
    gets = [1] * len(sections)
    left = room - 2 * len(sections)
    while left > 0 and any(g < w for g, w in zip(gets, wants, strict=True)):
        for i, w in enumerate(wants):
            if left > 0 and gets[i] < w:
                gets[i] += 1
                left -= 1
    out: list[Line] = []
    for s, n in zip(sections, gets, strict=True):
        out.append(s.heading)
        if not s.body:
            out.append(cut(Line((Piece(f"  {s.nothing}", "dim"),)), scene.cells))
            continue
        cut_off = s.rest is not None and 1 < n < len(s.body)
        n -= cut_off
        cursor = scene.place.cursor
        at = next((i for i, x in enumerate(s.body) if cursor is not None and x.row == cursor), 0)
        first = max(0, min(at - n + 1, len(s.body) - n))
        out += s.body[first : first + n]
        if s.rest is not None and cut_off:
            out.append(s.rest(first, first + n))
    return out


def _charged(rows: Sequence[Told], side: str, title: str, nothing: str, scene: Scene) -> Section:
    """Whom its waiting was charged to, or who waited for it: both close to their total."""
    mine = [r for r in rows if r["side"] == side]
    whole = sum(r["charged_s"] for r in mine)
    stall = sum(r["stall_s"] for r in mine)
    note = f"charged {span(whole)}" + (f", and stalled {span(stall)}" if stall else "")
    head = rule(title, note if mine else "", scene.cells, scene.look.glyphs)

    def rest(begin: int, end: int) -> Line:
        left = [*mine[:begin], *mine[end:]]
        sums = {k: sum(r[k] for r in left) for k in mine[0] if k.endswith("_s") or k == "folded"}
        return _holder({**sums, "kind": "rest", "name": ""}, whole, side, scene)

    body = tuple(_holder(r, whole, side, scene) for r in mine)
    return Section(head, body, nothing, rest if mine else None)


def _holder(row: Told, whole: float, side: str, scene: Scene) -> Line:
    cells, g = scene.cells, scene.look.glyphs
    kind = row["kind"]
    if kind == "rest":
        name, role = f"others ({row['folded']})", "aside"
    elif kind == TENANT:
        name, role = shown_name(row["name"]), "named" if side == "behind" else "hurt"
    else:  # in brackets: no tenant's name passes for it
        name, role = f"({plain(kind)})", "aside"
    room = max(10, min(28, cells // 5))
    by = [(r, row[f"{r}_s"]) for r in WAIT_REASONS if row[f"{r}_s"]]
    bar = max(6, cells // 5)
    parts = [(s / whole, g.fills[REASON_FILLS[r]], REASON_ROLES[r]) for r, s in by] if whole else []
    part = percent(row["charged_s"] / whole if whole else None)
    lead = [
        Piece("  "),
        Piece(fit(clip(name, room, g.ellipsis), room), role),
        Piece(f" {span(row['charged_s']):>6} {part:>4} ", "value"),
        *stacked(parts, bar),
        Piece("  "),
    ]  # fmt: skip
    used = sum(width(p.text) for p in lead)
    figures = [[Piece(f"{r} {span(s)}", "dim")] for r, s in sorted(by, key=lambda x: -x[1])]
    if row["stall_s"]:
        figures.append([Piece(f"stall {span(row['stall_s'])}", "dim")])
    line = Line((*lead, *join(figures, cells - used)))
    about = Row(TENANT, row["name"], side) if kind == TENANT else None
    return replace(cut(line, cells, g.ellipsis), row=about)


def _titled(name: str, heading: Line, cells: int, glyphs: Glyphs) -> Line:
    """A rule with the columns' titles on it where there are columns."""
    if not heading.pieces:
        return rule(name.strip(), "", cells, glyphs)
    text = heading.plain
    lead = f"{glyphs.rule} {name.strip()} "
    blank = len(text) - len(text.lstrip())
    # The first columns' titles make room for the list's name, as on the overview.
    tail = text[max(len(lead), blank) :]
    start = tail.find(" ")
    tail = " " * start + tail[start:] if start > 0 and not tail.startswith(" ") else tail
    return cut(Line((Piece(lead, "label"), Piece(tail, "head")), "head"), cells)


def _history(scene: Scene) -> History:
    ask = next((a for a in scene.detail.asks if a.name == "history"), None)
    if ask is None or ask.start is None or ask.end is None:
        return History((), bucket_s_of(scene.picture))
    return History.of(scene.detail.rows("history"), ask.start, ask.end, bucket_s_of(scene.picture))


def _now(scene: Scene) -> TenantNow:
    """Its figures in the picture; of one that is not there nothing is known."""
    account, name = scene.picture.account, scene.place.tenant or ""
    found = [t for t in (account.tenants if account else ()) if t.name == name]
    return found[0] if found else TenantNow(row=TenantRow(name=name))


def _excess_s(scene: Scene) -> float | None:
    """What it waited beyond usual in the last minutes; None where there is no usual to compare."""
    account = scene.picture.account
    return _now(scene).wait_s if account is not None and account.basis == EXCESS else None


def _held(scene: Scene) -> str | None:
    """Its values in force, as the newest version of the policy that is recorded has them."""
    versions = scene.detail.rows("versions")
    return versions[0]["held"] if versions else None
