"""Adapters: which are on the device and since when, who uses them, how often each was loaded;
evictions within a minute of the eviction before, and what is asked for against what fits.

Draws rows of the store; where an operator's door answers, its word for where an adapter is counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from console.cells import clip
from console.detail import Ask, Asks
from console.formats import ABSENT, duration, percent, quantity
from console.heat import Column, columns_of
from console.lines import Glyphs, Line, Piece, Row, cut, join, sparkline
from console.listing import shown_name
from console.marks import figure
from console.panels import Snapshot, over
from console.screens import Page, Place, Say, Scene, Step, bucket_s_of, reach
from console.table import VAST, WIDE, Cell, Field, cells_of, chosen, titles
from console.wide_columns import byte_count

ADAPTER = "adapter"  # the kind of a row
RELOAD_S = 60.0  # evicted again so soon after the eviction before, so loaded in between: thrash
MOST, NAMED = 100, 3  # adapters, and tenants that are named beside one
BUCKETS = 30  # of the map
STRIPS = 2  # lines above the list
WHOLE = 0.98  # of the newest bucket on the device: it is there
SORT, SPAN = "sort", "span"
SPANS = {"15min": 900.0, "5min": 300.0, "1h": 3600.0}
SORTS = ("loads", "bytes", "use", "lookups", "tenants")


@dataclass(frozen=True, slots=True)
class Shown:
    """One adapter: a row of `adapters_page`, where it is in each bucket, and where it is now."""

    row: Mapping[str, Any]
    map: tuple[float | None, ...]
    place: str
    pinned: bool
    scene: Scene


def _text(key: str, show: Any, look: str = "text") -> Any:
    def cell(x: Shown, cells: int, glyphs: Glyphs) -> Cell:
        value = x.row[key]
        return show(value), look if value else "dim"

    return cell


def _name(x: Shown, cells: int, glyphs: Glyphs) -> Cell:
    return clip(shown_name(x.row["name"]), cells, glyphs.ellipsis), "value"


def _place(x: Shown, cells: int, glyphs: Glyphs) -> Cell:
    pin = "*" if x.pinned else ""
    role = {"device": "good", "loading": "warn"}.get(
        x.place, "dim" if x.place == "host" else "text"
    )
    return f"{x.place}{pin}", role


def _reloads(x: Shown, cells: int, glyphs: Glyphs) -> Cell:
    n = x.row["reloads"]
    return quantity(n), "hurt" if n else "dim"


def _used_by(x: Shown, cells: int, glyphs: Glyphs) -> Cell:
    named = json.loads(x.row["used_by"] or "[]")
    more = (x.row["tenants"] or 0) - len(named)
    text = ", ".join(shown_name(str(t)) for t in named) + (f" +{more}" if more > 0 else "")
    return clip(text or ABSENT, cells, glyphs.ellipsis), "text" if named else "dim"


def _last_use(x: Shown, cells: int, glyphs: Glyphs) -> Cell:
    at, s = x.row["last_use"], x.scene.picture
    if at is None:
        return ABSENT, "dim"
    now = s.now if s.data_at is None else s.data_at
    return f"{duration(max(0.0, round(now - at)))} ago", "text"


def _map(x: Shown, cells: int, glyphs: Glyphs) -> Cell:
    return sparkline(x.map[-cells:], glyphs), "bar"


FIELDS = (
    Field("name", "adapter", 14, _name, "left", most=34),
    Field("place", "now", 8, _place, "left"),
    Field("bytes", "bytes", 6, _text("bytes", byte_count)),
    Field("rank", "rank", 4, _text("rank", quantity), priority=6),
    Field("loads", "loads", 5, _text("loads", quantity)),
    Field("reloads", "again", 5, _reloads, priority=1),
    Field("load_s", "loading", 7, _text("load_s", duration), priority=5, since=WIDE),
    Field("lookups", "asked", 5, _text("lookups", quantity), priority=3),
    Field("resident", "on device", 9, _text("resident_s", duration), priority=7, since=VAST),
    Field("last", "last use", 8, _last_use, priority=4),
    Field("used", "used by", 12, _used_by, "left", priority=2, most=40),
    Field("map", "on the device, by bucket", BUCKETS, _map, "left", priority=5, since=WIDE),
)  # fmt: skip


class AdaptersPage(Page):
    name: ClassVar[str] = "adapters"
    title: ClassVar[str] = "ADAPTERS"

    def wants(self, picture: Snapshot, place: Place) -> Asks:
        pool = picture.pool or ""
        start, end = reach(picture, SPANS[place.switch(SPAN, "15min")])
        early, _ = reach(picture, BUCKETS * bucket_s_of(picture))
        return (
            Ask.of("adapters", "adapters_page", start, end, pool=pool, most=MOST, names=NAMED,
                   reload_s=RELOAD_S),
            Ask.of("pool", "alert_adapters", start, end, pool=pool, reload_s=RELOAD_S),
            Ask.of("found", "adapters_found", start, end, pool=pool),
            Ask.of("heard", "pool_minutes", early, end),
            Ask.of("map", "adapters_map", early, end, pool=pool, most=MOST),
        )  # fmt: skip

    def heading(self, scene: Scene) -> str:
        rows = scene.detail.rows("adapters")
        known = f"{rows[0]['adapters']} known, " if rows else ""
        return f"{known}last {scene.place.switch(SPAN, '15min')}, by {_sort(scene)}"

    def lines(self, scene: Scene) -> Sequence[Line]:
        if not scene.detail.heard:
            return ()
        fields = chosen(FIELDS, scene.cells)
        listed = _listed(scene)
        if not listed:
            return (*_strips(scene), Line((Piece("  this pool has no adapters", "dim"),)))
        room = max(1, scene.lines - STRIPS - 1)
        first = min(scene.place.first, max(0, len(listed) - 1))
        kept = listed[first : first + room]
        known = int(scene.detail.rows("adapters")[0]["adapters"])
        out = [*_strips(scene), titles(fields, scene.cells)]
        if len(kept) < known:
            kept = kept[: max(1, room - 1)]
        out += [_line(x, fields, scene) for x in kept]
        if len(kept) < known:
            aside = [*listed[:first], *listed[first + len(kept) :]]
            out.append(_others(aside, known - len(kept), scene))
        return out[: scene.lines]

    def rows(self, scene: Scene) -> Sequence[Row]:
        return [Row(ADAPTER, x.row["adapter"]) for x in _listed(scene)]

    def turn(self, scene: Scene, what: str) -> Place:
        place = scene.place
        if what == SORT:
            return replace(place.next_of(SORT, SORTS), first=0)
        if what == SPAN:
            return place.next_of(SPAN, tuple(SPANS))
        return place

    def enter(self, scene: Scene) -> Step | None:
        row = scene.place.cursor
        found = next((x for x in _listed(scene) if row and x.row["adapter"] == row.name), None)
        if found is None:
            return None
        used = _used_by(found, 200, scene.look.glyphs)[0]
        return Say(f"{shown_name(found.row['name'])}: hash {found.row['adapter'][:16]}, "
                   f"{byte_count(found.row['bytes'])}, used by {used}")  # fmt: skip


def _sort(scene: Scene) -> str:
    return scene.place.switch(SORT, SORTS[0])


def _listed(scene: Scene) -> list[Shown]:
    """Every adapter, in the order that the reader chose; equal ones by name."""
    columns = columns_of(scene.detail.rows("heard"), scene.picture.pool or "", BUCKETS)
    maps = _maps(scene, columns)
    nothing = tuple(0.0 if c.known else None for c in columns)
    told = {a.name: a for e in scene.engines for a in e.adapters}
    out = []
    for row in scene.detail.rows("adapters"):
        state = told.get(row["name"])
        place = state.place if state is not None and state.place else _place_of(row)
        pinned = state is not None and state.pinned
        out.append(Shown(row, maps.get(row["adapter"], nothing), place, pinned, scene))
    key = {"loads": "loads", "bytes": "bytes", "use": "last_use", "lookups": "lookups",
           "tenants": "tenants"}[_sort(scene)]  # fmt: skip
    return sorted(out, key=lambda x: (-(x.row[key] or 0), x.row["name"], x.row["adapter"]))


def _place_of(row: Mapping[str, Any]) -> str:
    """By the newest bucket: on the device, so much of it, on its way, or not there."""
    newest, there = row["newest_s"], row["now_s"] or 0.0
    if not newest:
        return ABSENT
    if there >= WHOLE * newest:
        return "device"
    if there > 0.0:
        return f"{percent(min(1.0, there / newest))}"
    return "loading" if row["loading_s"] else "host"


def _maps(scene: Scene, columns: Sequence[Column]) -> dict[str, tuple[float | None, ...]]:
    """Of each adapter the part of each bucket that it was on the device; None: not observed."""
    at = {c.start: i for i, c in enumerate(columns)}
    lasted: dict[float, float] = {}
    for r in scene.detail.rows("heard"):
        if r["pool"] == scene.picture.pool:
            lasted[r["bucket_start"]] = lasted.get(r["bucket_start"], 0.0) + (
                r["observed_seconds"] or r["bucket_s"])  # fmt: skip
    out: dict[str, list[float | None]] = {}
    for r in scene.detail.rows("map"):
        i = at.get(r["bucket_start"])
        if i is not None:
            line = out.setdefault(r["adapter"], [0.0 if c.known else None for c in columns])
            line[i] = over(r["resident_s"], lasted.get(r["bucket_start"])) or 0.0
    return {a: tuple(line) for a, line in out.items()}


def _line(x: Shown, fields: Sequence[Field[Shown]], scene: Scene) -> Line:
    line = cells_of(x, fields, scene.cells, scene.look.glyphs)
    return replace(line, row=Row(ADAPTER, x.row["adapter"]))


def _others(rest: Sequence[Shown], count: int, scene: Scene) -> Line:
    """The rest as one line: their bytes and loads where they are known."""
    known = [x.row for x in rest]
    loads = sum(r["loads"] or 0 for r in known)
    again = sum(r["reloads"] or 0 for r in known)
    size = sum(r["bytes"] or 0 for r in known)
    unknown = count - len(known)
    more = f" ({unknown} of them not looked at)" if unknown > 0 else ""
    text = f"others ({count})  {byte_count(size)}, {loads} loads, {again} again{more}"
    return cut(Line((Piece(text, "aside"),)), scene.cells, scene.look.glyphs.ellipsis)


def _strips(scene: Scene) -> tuple[Line, Line]:
    """Loads a second, thrash, what is asked for against what fits; hits."""
    pool = next(iter(scene.detail.rows("pool")), {})
    found = next(iter(scene.detail.rows("found")), {})
    seconds = found.get("seconds")
    loads, again = pool.get("loads"), pool.get("reloads")
    working, room = pool.get("working_bytes"), pool.get("room_bytes")
    tight = working is not None and room is not None and working > room
    hits = over(found.get("device"), found.get("lookups"))
    first = [
        figure("loads/s", _rate(loads, seconds)),
        figure(f"again within {RELOAD_S:.0f}s", quantity(again), "hurt" if again else "value"),
        figure("asked for", byte_count(working), "hurt" if tight else "value"),
        figure("room", byte_count(room)),
    ]
    second = [
        figure("hits", percent(hits), "warn" if hits is not None and hits < 0.5 else "value"),
        *(figure(place, quantity(found.get(place))) for place in ("device", "loading", "host",
                                                                   "disk")),
        figure("in", byte_count(found.get("in_bytes"))),
        figure("out", byte_count(found.get("out_bytes"))),
    ]  # fmt: skip
    cells = scene.cells
    return (
        cut(Line((Piece("LOADS ", "label"), *join(first, cells - 6))), cells),
        cut(Line((Piece("FOUND ", "label"), *join(second, cells - 6))), cells),
    )


def _rate(count: float | None, seconds: float | None) -> str:
    rate = over(count, seconds)
    if rate is None:
        return ABSENT
    return "0" if rate == 0.0 else f"{rate:.2f}" if rate < 9.95 else f"{rate:.0f}"
