"""Heat: tenants by minutes, the worst first, in five shades that read without colour too.

Draws what `console.heat` makes; the minute under the cursor can be gone to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from console.account import REMEMBERED
from console.cells import clip, fit, width
from console.detail import Ask, Asks
from console.formats import ABSENT
from console.heat import METRICS, OTHERS, STEPS, Column, Heat, HeatRow, columns_of, fold, heat_of
from console.lines import Glyphs, Line, Piece, Row, cut
from console.listing import shown_name
from console.marks import MARK_ROLES, MARKS
from console.panels import Mark, Snapshot
from console.screens import TENANT, GoTo, Open, Page, Place, Scene, Step, bucket_s_of, reach
from telemetry.plain import local

MOST_TENANTS = 60  # with a line of their own; the rest is one line
BUCKETS = 60
METRIC, MINUTE = "metric", "minute"
SHADES, ASCII_SHADES = " .░▒▓█", " .:=#@"
UNKNOWN = "?"
ROLES = ("dim", "dim", "text", "value", "warn", "hurt")
_MARK_CELLS, _LEAST_NAME, _MOST_NAME = 3, 8, 26
_VALUE_CELLS = 8  # at the minute chosen, and the peak
_AXIS_EVERY = 10


class HeatPage(Page):
    name: ClassVar[str] = "heat"
    title: ClassVar[str] = "HEAT"

    def wants(self, picture: Snapshot, place: Place) -> Asks:
        start, end = reach(picture, BUCKETS * bucket_s_of(picture))
        pool = picture.pool or ""
        return (
            Ask.of("heard", "pool_minutes", start, end),
            Ask.of("cells", "heat_minutes", start, end, pool=pool, most=MOST_TENANTS,
                   metric=place.switch(METRIC, "wait")),
        )  # fmt: skip

    def heading(self, scene: Scene) -> str:
        metric = METRICS[scene.place.switch(METRIC, "wait")]
        heat = _heat(scene)
        title = metric.title if heat.usual or metric.key != "wait" else "wait"
        return f"{title}, darkest {metric.show(heat.top)}" if heat.rows else title

    def lines(self, scene: Scene) -> Sequence[Line]:
        heat = _heat(scene)
        if not scene.detail.heard:
            return ()
        if not heat.columns:
            return (Line((Piece("  no engine was heard in this time", "dim"),)),)
        room = max(1, scene.lines - 3)
        name = _name_cells(scene, len(heat.columns))
        chosen = _chosen(scene, heat)
        rows = fold(heat, max(1, room)) if scene.place.first == 0 else _from(heat, scene, room)
        return (
            _axis(heat, name, scene),
            _marks(heat, chosen, name, scene),
            *(_row(r, heat, chosen, name, scene) for r in rows),
            _legend(heat, scene),
        )[: scene.lines]

    def rows(self, scene: Scene) -> Sequence[Row]:
        return [Row(TENANT, r.tenant) for r in _heat(scene).rows if r.tenant is not None]

    def turn(self, scene: Scene, what: str) -> Place:
        place = scene.place
        if what == METRIC:
            return replace(place.next_of(METRIC, tuple(METRICS)), first=0)
        heat = _heat(scene)
        step = {"earlier": -1, "later": 1}.get(what)
        if step is None or not heat.columns:
            return place
        at = _chosen(scene, heat) + step
        if at >= len(heat.columns) - 1:  # the newest one moves on with the figures
            return place.turn(MINUTE, "")
        return place.turn(MINUTE, f"{heat.columns[max(0, at)].start:.3f}")

    def click(self, scene: Scene, line: Line, x: int) -> Place | None:
        """A click above the rows chooses the minute."""
        if line.plain not in {above.plain for above in self.lines(scene)[:2]}:
            return None
        heat = _heat(scene)
        at = x - _MARK_CELLS - _name_cells(scene, len(heat.columns)) - 1
        if not 0 <= at < len(heat.columns):
            return None
        return scene.place.turn(MINUTE, f"{heat.columns[at].start:.3f}")

    def enter(self, scene: Scene) -> Step | None:
        row = scene.place.cursor
        if row is not None and row.kind == TENANT:
            return Open(TENANT, row.name)
        return minute_step(scene)


def minute_step(scene: Scene) -> GoTo | None:
    """To the end of the minute chosen: what was known of it then."""
    heat = _heat(scene)
    if not heat.columns:
        return None
    return GoTo(heat.columns[_chosen(scene, heat)].start + heat.bucket_s)


def go_to_minute(app: Any) -> None:
    """What `t` does here."""
    scene = app.scene()
    step = minute_step(scene) if scene is not None else None
    if step is None:
        app.say("there is no minute to go to yet")
    else:
        app.go(step.at)


def _heat(scene: Scene) -> Heat:
    bucket_s = bucket_s_of(scene.picture)
    most = max(1, scene.cells - _MARK_CELLS - _LEAST_NAME - 2 * (_VALUE_CELLS + 1) - 1)
    pool = scene.picture.pool or ""
    metric = METRICS[scene.place.switch(METRIC, "wait")]

    def made() -> Heat:
        columns = columns_of(scene.detail.rows("heard"), pool, min(BUCKETS, most))
        return heat_of(scene.detail.rows("cells"), columns, metric, bucket_s)

    return REMEMBERED.of(scene.detail, ("heat", metric.key, bucket_s, pool, most), made)


def _name_cells(scene: Scene, columns: int) -> int:
    spare = scene.cells - _MARK_CELLS - columns - 2 * (_VALUE_CELLS + 1) - 1
    return max(_LEAST_NAME, min(_MOST_NAME, spare))


def _chosen(scene: Scene, heat: Heat) -> int:
    """Which column the minute chosen is; the newest where none is, or it has left the screen."""
    wanted = scene.place.switch(MINUTE, "")
    last = len(heat.columns) - 1
    if not wanted:
        return last
    near = [abs(c.start - float(wanted)) for c in heat.columns]
    at = near.index(min(near)) if near else last
    return at if near and near[at] < heat.bucket_s / 2 else last


def _from(heat: Heat, scene: Scene, room: int) -> tuple[HeatRow, ...]:
    """Scrolled: those above the top are with the others."""
    named = [r for r in heat.rows if r.tenant is not OTHERS]
    first = min(scene.place.first, max(0, len(named) - 1))
    kept = named[first : first + max(1, room - 1)]
    aside = [r for r in heat.rows if r not in kept]
    return fold(replace(heat, rows=(*kept, *aside)), len(kept) + 1)


def _clock(at: float, scene: Scene, seconds: bool = False) -> str:
    return local(at, scene.look.tz).strftime("%H:%M:%S" if seconds else "%H:%M")


def _lead(name: int, text: str = "") -> Piece:
    return Piece(fit(text, _MARK_CELLS + name) + " ", "head")


def _axis(heat: Heat, name: int, scene: Scene) -> Line:
    """The time of every tenth column, and of the minute chosen over its values."""
    axis = ""
    for i, c in enumerate(heat.columns):
        label = _clock(c.start, scene, heat.bucket_s < 60.0)
        free = len(heat.columns) - i
        if (i % _AXIS_EVERY == 0 and len(axis) <= i) and width(label) <= free:
            axis = axis.ljust(i) + label + " "
    chosen = heat.columns[_chosen(scene, heat)]
    at = _clock(chosen.start, scene, heat.bucket_s < 60.0)
    right = (
        f" {fit(at[-_VALUE_CELLS:], _VALUE_CELLS, 'right')} {fit('peak', _VALUE_CELLS, 'right')}"
    )
    text = fit(axis.rstrip(), len(heat.columns))
    line = Line((_lead(name, "   tenant"), Piece(text, "head"), Piece(right, "head")), "head")
    return cut(line, scene.cells, scene.look.glyphs.ellipsis)


def _marks(heat: Heat, chosen: int, name: int, scene: Scene) -> Line:
    """Where it began, what is open, which minute is chosen."""
    since = scene.picture.verdict.since
    cells = []
    for i, c in enumerate(heat.columns):
        if i == chosen:
            cells.append(Piece("v", "title"))
        elif since is not None and c.start <= since < c.start + heat.bucket_s:
            cells.append(Piece("!", "hurt"))
        elif since is not None and c.start > since:
            cells.append(Piece("=", "hurt"))
        else:
            cells.append(Piece("~" if c.open else " ", "dim"))
    words = "onset !" if since is not None else ""
    return cut(Line((_lead(name, fit(words, _MARK_CELLS + name, "right")), *cells)), scene.cells)


def _row(row: HeatRow, heat: Heat, chosen: int, name: int, scene: Scene) -> Line:
    glyphs = scene.look.glyphs
    mark = _mark(row, scene.picture)
    role = "aside" if row.tenant is OTHERS else MARK_ROLES[mark]
    text = f"others ({row.tenants})" if row.tenant is None else shown_name(row.tenant)
    about = None if row.tenant is None else Row(TENANT, row.tenant)
    values = [row.values[chosen] if row.values else None, row.peak]
    figures = "".join(f" {fit(heat.metric.show(v), _VALUE_CELLS, 'right')}" for v in values)
    pieces = (
        Piece(fit(MARKS[mark], _MARK_CELLS), role),
        Piece(fit(clip(text, name, glyphs.ellipsis), name) + " ", role),
        *(
            _cell(v, c, heat, i == chosen, glyphs)
            for i, (v, c) in enumerate(zip(row.values, heat.columns, strict=True))
        ),
        Piece(figures, "dim" if values[0] in (None, 0.0) else "value"),
    )
    return cut(Line(pieces, "", about), scene.cells, glyphs.ellipsis)


def _mark(row: HeatRow, picture: Snapshot) -> Mark:
    if row.tenant is None:
        return Mark.NONE
    if row.tenant == picture.verdict.named:
        return Mark.NAMED
    return Mark.HURT if row.tenant in picture.verdict.victims else Mark.NONE


def _cell(value: float | None, column: Column, heat: Heat, chosen: bool, glyphs: Glyphs) -> Piece:
    if not column.known:
        return Piece(UNKNOWN, "dim")
    level = heat.level(value)
    if level is None:
        return Piece(" ")
    return Piece(_shades(glyphs)[level], "title" if chosen and level else ROLES[level])


def _shades(glyphs: Glyphs) -> str:
    return SHADES if glyphs.full == "█" else ASCII_SHADES


def _legend(heat: Heat, scene: Scene) -> Line:
    shades, show = _shades(scene.look.glyphs), heat.metric.show
    steps = "  ".join(
        f"{shades[i]} {show(heat.top * i / STEPS) if heat.top else ABSENT}"
        for i in range(1, STEPS + 1)
    )
    gaps = f"   {UNKNOWN} not observed" if any(not c.known for c in heat.columns) else ""
    still = "   ~ open" if any(c.open for c in heat.columns) else ""
    return cut(Line((Piece(f"   up to  {steps}{gaps}{still}", "dim"),)), scene.cells,
               scene.look.glyphs.ellipsis)  # fmt: skip
