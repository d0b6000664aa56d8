"""The wide table: every tenant, every column, sorted and filtered. Lines and decisions, no screen.

Filtered-out and cut-off tenants are one line, `others (k)`, so that columns still add up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from console.account import REMEMBERED, TenantNow, others
from console.cells import clip, fit, width
from console.lines import Glyphs, Line, Piece, Row, cut
from console.listing import shown_name
from console.marks import MARK_ROLES, MARKS
from console.overview import (
    LEAST_CELLS,
    LEAST_LINES,
    Look,
    banner_lines,
    greyed,
    header_line,
    too_small,
    verdict_part,
)
from console.panels import Mark, Snapshot
from console.settings import NAME, ConsoleSettings
from console.wide_columns import COLUMNS, GROUPS, WideColumn
from telemetry.plain import safe as plain
from telemetry.watch.name_filter import NameFilter

NAME_CELLS, LONGEST_NAME_CELLS = 16, 32
GAP = 1


@dataclass(frozen=True, slots=True)
class View:
    """How the reader looks at the table. `first`: that many ranked tenants are above its top."""

    group: str = "now"
    sort: str = "share"
    descending: bool = True
    filter: str = ""
    first: int = 0

    @classmethod
    def of(cls, settings: ConsoleSettings) -> View:
        return cls(settings.group, settings.sort, settings.sort != NAME)


def columns_of(view: View, cells: int) -> tuple[WideColumn, ...]:
    """The columns from the view's group on, as many as fit whole; the next groups follow it."""
    names = list(GROUPS)
    at = names.index(view.group)
    ordered = [c for g in (*names[at:], *names[:at]) for c in GROUPS[g]]
    room = cells - 2 - GAP - NAME_CELLS
    kept: list[WideColumn] = []
    for column in ordered:
        room -= column.width + GAP
        if room < 0:
            break
        kept.append(column)
    return tuple(kept)


def next_group(view: View) -> View:
    names = list(GROUPS)
    return replace(view, group=names[(names.index(view.group) + 1) % len(names)])


def next_sort(view: View, cells: int, step: int = 1) -> View:
    """Sort by the next column that is shown; the name is one of them. Numbers begin with the
    largest, names with the first."""
    shown = [NAME, *(c.key for c in columns_of(view, cells))]
    at = shown.index(view.sort) if view.sort in shown else (0 if step > 0 else 1)
    sort = shown[(at + step) % len(shown)]
    return replace(view, sort=sort, descending=sort != NAME, first=0)


def ranked(
    tenants: Sequence[TenantNow], view: View, clock: Callable[[], float] = time.monotonic
) -> tuple[list[TenantNow], list[TenantNow]]:
    """Those that the filter leaves, in order, and those that it does not. Unknown values come last
    whichever way; equal ones by name. Raises QueryError for a filter that cannot be used."""
    kept, left = list(tenants), []
    if view.filter:
        keeps = NameFilter(view.filter, clock).keeps([t.name for t in tenants])
        kept = [t for t, k in zip(tenants, keeps, strict=True) if k]
        left = [t for t, k in zip(tenants, keeps, strict=True) if not k]
    kept.sort(key=lambda t: t.name)
    if view.sort == NAME:
        return (kept[::-1] if view.descending else kept), left
    value = COLUMNS[view.sort].value
    known = [(v, t) for t in kept if (v := value(t)) is not None]
    known.sort(key=lambda x: x[0], reverse=view.descending)
    there = {id(t) for _, t in known}
    return [*(t for _, t in known), *(t for t in kept if id(t) not in there)], left


def _order(view: View) -> tuple[str, bool, str]:
    return (view.sort, view.descending, view.filter)


def known_ranks(
    tenants: Sequence[TenantNow], view: View
) -> tuple[list[TenantNow], list[TenantNow]]:
    """As `ranked`, for a picture that is drawn again and again."""
    return REMEMBERED.of(tenants, ("ranked", *_order(view)), lambda: ranked(tenants, view))


def wide_lines(
    s: Snapshot, view: View, cells: int, lines: int, look: Look, settings: ConsoleSettings
) -> tuple[Line, ...]:
    """The screen, exactly `lines` high: header, verdict, heading, tenants, others, keys."""
    if cells < LEAST_CELLS or lines < LEAST_LINES:
        return too_small(cells, lines)
    foot = (cut(Line(look.keys), cells),) if look.keys else ()
    head = (
        header_line(s, cells, look),
        *banner_lines(look, cells),
        *verdict_part(s, cells, 1, look.glyphs.ellipsis),
    )
    room = lines - len(head) - len(foot)
    body = table_lines(s.account.tenants if s.account else (), view, cells, room, look, settings)
    if s.stale or look.banner is not None:
        body = tuple(greyed(line) for line in body)
    blank = (Line(),) * (lines - len(head) - len(body) - len(foot))
    return (*head, *body, *blank, *foot)[:lines]


def table_lines(
    tenants: Sequence[TenantNow],
    view: View,
    cells: int,
    lines: int,
    look: Look,
    settings: ConsoleSettings,
) -> tuple[Line, ...]:
    """A line about the view, the heading and at most `lines` - 2 tenants with the others last."""
    rows, left = known_ranks(tenants, view)
    room = max(1, lines - 2)
    first = min(view.first, max(0, len(rows) - 1))
    shown = rows[first : first + room]
    if len(shown) < len(tenants):
        shown = shown[: room - 1]  # a line for the others
    last = first + len(shown)
    rest = [*rows[:first], *rows[last:], *left]
    columns = columns_of(view, cells)
    out = [
        _about(view, len(rows), len(tenants), cells, look.glyphs),
        _heading(view, columns, cells, look.glyphs),
    ]
    out += [_row(t, columns, cells, look.glyphs, settings) for t in shown]
    if rest:
        key = (*_order(view), first, last)
        folded = REMEMBERED.of(tenants, key, lambda: others(rest))
        out.append(_row(folded, columns, cells, look.glyphs, settings))
    if not tenants:
        out.append(Line((Piece("  no tenant has been heard of", "dim"),)))
    return tuple(out[:lines])


def _about(view: View, matched: int, known: int, cells: int, glyphs: Glyphs) -> Line:
    noun = "tenant" if known == 1 else "tenants"
    which = f"{matched} of {known} {noun}" if view.filter else f"{known} {noun}"
    kept = f"  filter {plain(view.filter)}" if view.filter else ""
    order = "down" if view.descending else "up"
    text = f"ALL  {which}{kept}  sort {view.sort} {order}  columns {view.group}  last minute"
    return cut(Line((Piece(f"{glyphs.rule}{text} ", "label"),), "head"), cells, glyphs.ellipsis)


def _name_cells(columns: Sequence[WideColumn], cells: int) -> int:
    used = 2 + GAP + sum(c.width + GAP for c in columns)
    return max(NAME_CELLS, min(LONGEST_NAME_CELLS, cells - used))


def _heading(view: View, columns: Sequence[WideColumn], cells: int, glyphs: Glyphs) -> Line:
    def role(key: str) -> str:
        return "title" if key == view.sort else "head"

    pieces = [Piece(" " * (2 + GAP)), Piece(fit("tenant", _name_cells(columns, cells)), role(NAME))]
    for c in columns:
        pieces += [Piece(" " * GAP), Piece(fit(c.title, c.width, "right"), role(c.key))]
    return cut(Line(tuple(pieces), "head"), cells, glyphs.ellipsis)


def column_at(view: View, cells: int, x: int) -> str | None:
    """Which column lies under a cell of the heading; None beside them all."""
    columns = columns_of(view, cells)
    edge = 2 + GAP + _name_cells(columns, cells)
    if x < edge:
        return NAME
    for c in columns:
        edge += GAP + c.width
        if x < edge:
            return c.key
    return None


def _row(
    t: TenantNow,
    columns: Sequence[WideColumn],
    cells: int,
    glyphs: Glyphs,
    settings: ConsoleSettings,
) -> Line:
    role = "aside" if t.row.folded else MARK_ROLES[t.row.mark]
    name = t.name if t.row.folded else shown_name(t.name)
    room = _name_cells(columns, cells)
    pieces = [
        Piece("  " if t.row.folded else MARKS[t.row.mark], role),
        Piece(" " * GAP),
        Piece(fit(clip(name, room, glyphs.ellipsis), room), role),
    ]
    for c, value in zip(columns, _values(t, columns), strict=True):
        text = c.show(value)
        # A number that does not fit is told shorter, never cut: half a number is another one.
        shown = text if width(text) <= c.width else f"{value:.0e}"
        look = _role(c.key, value, settings)
        pieces += [Piece(" " * GAP), Piece(fit(shown, c.width, "right"), look)]
    tint = {Mark.HURT: "hurt", Mark.NAMED: "named"}.get(t.row.mark, "")
    about = None if t.row.folded else Row("tenant", t.name)
    tint = "" if t.row.folded else tint
    return cut(Line(tuple(pieces), tint, about), cells, glyphs.ellipsis)


def _values(t: TenantNow, columns: Sequence[WideColumn]) -> list[float | None]:
    """The others' are made of all their minutes: once a picture, not at every key."""

    def made() -> list[float | None]:
        return [c.value(t) for c in columns]

    key = ("values", *(c.key for c in columns))
    return REMEMBERED.of(t, key, made) if t.row.folded else made()


def _role(key: str, value: float | None, settings: ConsoleSettings) -> str:
    if not value:
        return "dim"
    amber, red = settings.thresholds.get(key, (float("inf"), float("inf")))
    return "hurt" if value >= red else "warn" if value >= amber else "text"
