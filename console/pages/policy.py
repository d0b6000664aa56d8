"""Policy: what is in force for each tenant, what differs from the start, by whom, until when."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from console.cells import clip
from console.detail import Ask, Asks
from console.formats import ABSENT, when
from console.lines import Glyphs, Line, Piece, Row, cut, rule
from console.listing import shown_name
from console.overview import Look
from console.pages.changes import EVENT, ending_line, endings, version_line, word
from console.panels import Snapshot
from console.screens import TENANT, GoTo, Open, Page, Scene, Step, reach
from console.table import WIDE, Cell, Field, cells_of, chosen, titles
from telemetry.plain import safe as plain
from telemetry.watch.name_filter import NameFilter

MOST_TENANTS, MOST_VERSIONS = 1000, 20
MOST_ENDINGS = 4
Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    row: Told
    now: float
    look: Look


class PolicyPage(Page):
    name: ClassVar[str] = "policy"
    title: ClassVar[str] = "POLICY"
    filter_hint: ClassVar[str] = "tenants that match this (!this: all the others)"

    def wants(self, picture: Snapshot, place: Any) -> Asks:
        _, end = reach(picture, 0.0)
        end = picture.now if picture.edge is not None else max(end, picture.now // 10.0 * 10.0)
        pool = picture.pool or ""
        return (
            Ask.of("tenants", "policy_tenants", 0.0, end + 1e-3, pool=pool, most=MOST_TENANTS),
            # Of no tenant: what their events say is shown.
            Ask.of("versions", "policy_versions", 0.0, end + 1e-3, pool=pool, tenant="", one=False,
                   most=MOST_VERSIONS),
        )  # fmt: skip

    def heading(self, scene: Scene) -> str:
        s, rows = scene.picture, scene.detail.rows("tenants")
        version = "" if s.policy_version is None else f" v{s.policy_version}"
        said = [f"{plain(s.policy) if s.policy else 'not known'}{version} in force"]
        if rows:
            differ = sum(bool(r["differs"]) for r in rows)
            said.append(f"{differ} of {rows[0]['matching']} differ from the start")
            if len(rows) < rows[0]["matching"]:
                said.append(f"the first {len(rows)}")
        if scene.place.filter:
            said.append(f"filter {plain(scene.place.filter)}")
        return ", ".join(said)

    def rows(self, scene: Scene) -> Sequence[Row]:
        versions = [version_line(v, scene.picture.now, scene.cells, scene.look).row
                    for v in scene.detail.rows("versions")]  # fmt: skip
        held = [Row(TENANT, r["tenant"]) for r in _kept(scene)]
        return [*held, *(v for v in versions if v is not None)]

    def lines(self, scene: Scene) -> Sequence[Line]:
        if not scene.detail.heard:
            return ()
        s, cells, look = scene.picture, scene.cells, scene.look
        ends = self._endings(scene)
        versions = scene.detail.rows("versions")
        least = min(len(versions), 3) + 1
        room = max(3, scene.lines - len(ends) - least)
        table = self._table(scene, room)
        left = scene.lines - len(table) - len(ends)
        if left < 2:
            return (*table, *ends)
        of = f"{versions[0]['matching']}" if versions else "none is recorded"
        told = [version_line(v, s.now, cells, look) for v in versions[: left - 1]]
        return (*table, *ends, rule("VERSIONS", of, cells, look.glyphs), *told)

    def _table(self, scene: Scene, room: int) -> list[Line]:
        cells, look, rows = scene.cells, scene.look, _kept(scene)
        if not rows:
            words = "no version of a policy is recorded for this pool, or no tenant matches"
            return [cut(Line((Piece(f"  {words}", "dim"),)), cells, look.glyphs.ellipsis)]
        fields = chosen(FIELDS, cells)
        fits = max(1, room - 1)
        first = min(scene.place.first, max(0, len(rows) - fits))
        shown = rows[first : first + fits]
        if len(rows) > fits and fits > 1:
            shown = shown[:-1]
        out = [titles(fields, cells)]
        for row in shown:
            line = cells_of(Held(row, scene.picture.now, look), fields, cells, look.glyphs)
            out.append(replace(line, row=Row(TENANT, row["tenant"])))
        rest = len(rows) - len(shown)
        if rest:
            out.append(cut(Line((Piece(f"  others ({rest})", "aside"),)), cells))
        return out

    def _endings(self, scene: Scene) -> list[Line]:
        """What ends by itself, and when: only an operator's door knows."""
        cells, look = scene.cells, scene.look
        head = rule("IN FORCE BY OPERATORS", "", cells, look.glyphs)
        if not scene.engines:
            words = "when a change ends is not recorded: --admin asks an engine"
            return [head, cut(Line((Piece(f"  {words}", "dim"),)), cells, look.glyphs.ellipsis)]
        found = endings(scene.engines, scene.picture.pool)
        if not found:
            return [head, Line((Piece("  no change by an operator is in force", "dim"),))]
        out = [ending_line(x, scene.picture.now, cells, look) for x in found[:MOST_ENDINGS]]
        more = len(found) - len(out)
        if more:
            out.append(Line((Piece(f"  {more} more", "aside"),)))
        return [head, *out]

    def enter(self, scene: Scene) -> Step | None:
        row = scene.place.cursor
        if row is None:
            held = _kept(scene)
            return Open(TENANT, held[0]["tenant"]) if held else None
        return GoTo(float(row.name)) if row.kind == EVENT else super().enter(scene)


def _kept(scene: Scene) -> list[Told]:
    rows: list[Told] = list(scene.detail.rows("tenants"))
    if not scene.place.filter:
        return rows
    keeps = NameFilter(scene.place.filter, time.monotonic).keeps([r["tenant"] for r in rows])
    return [r for r, k in zip(rows, keeps, strict=True) if k]


def _mark(x: Held, cells: int, glyphs: Glyphs) -> Cell:
    return ("* ", "named") if x.row["differs"] else ("  ", "text")


def _name(x: Held, cells: int, glyphs: Glyphs) -> Cell:
    return clip(shown_name(x.row["tenant"]), cells, glyphs.ellipsis), "text"


def _limit(name: str) -> Any:
    """The value in force; where it differs from the start's both, `60>30`."""

    def cell(x: Held, cells: int, glyphs: Glyphs) -> Cell:
        now = word(name, x.row[name])
        if not x.row["at_start"]:
            return now, "warn"
        began = word(name, x.row[f"start_{name}"])
        if now == began:
            return now, "dim" if now in ("none", "normal", "1") else "text"
        both = f"{began}>{now}"
        return both if len(both) <= cells else f">{now}", "warn"

    return cell


def _since(x: Held, cells: int, glyphs: Glyphs) -> Cell:
    if x.row["since_version"] is None:
        if x.row["oldest"] > 1:  # it is looked back over some versions only
            return f"before v{x.row['oldest']}", "dim"
        return ("the start" if x.row["at_start"] else "its coming"), "dim"
    return f"v{x.row['since_version']} {when(x.row['since_at'], x.now, x.look.tz)}", "value"


def _said(name: str) -> Any:
    def cell(x: Held, cells: int, glyphs: Glyphs) -> Cell:
        return clip(plain(str(x.row[name] or ABSENT)), cells, glyphs.ellipsis), "text"

    return cell


def _pool(x: Held, cells: int, glyphs: Glyphs) -> Cell:
    own = x.row["own_pool"]
    return (ABSENT, "dim") if own is None else (clip(plain(own), cells, glyphs.ellipsis), "text")


FIELDS: tuple[Field[Held], ...] = (
    Field("mark", "", 2, _mark, "left"),
    Field("tenant", "tenant", 10, _name, "left", most=28),
    Field("weight", "weight", 8, _limit("weight")),
    Field("tier", "tier", 10, _limit("tier"), priority=3),
    Field("rpm", "rpm", 9, _limit("rpm")),
    Field("tpm", "tpm", 11, _limit("tpm"), priority=1),
    Field("concurrency", "concur.", 8, _limit("concurrency")),
    Field("since", "since", 13, _since, "left", priority=2),
    Field("pool", "pool", 8, _pool, "left", priority=6, since=WIDE),
    Field("who", "by", 10, _said("who"), "left", priority=4, most=16, since=WIDE),
    Field("why", "why", 16, _said("why"), "left", priority=5, most=60, since=WIDE),
)
