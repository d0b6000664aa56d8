"""The frame around every page but the overview: header, banner, verdict, the page's rule, keys.

Says how old a page's own rows are and greys them where they are not of the picture's time. What
stands inside the frame is the page's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from console.cells import clip
from console.detail import Asks
from console.formats import clock, whole
from console.lines import Line, Piece, cut, rule
from console.overview import (
    LEAST_CELLS,
    LEAST_LINES,
    banner_lines,
    greyed,
    header_line,
    note_lines,
    too_small,
    verdict_part,
)
from console.screens import Page, Scene
from telemetry.plain import safe as plain

OVERVIEW = "overview"  # the only page that a first look can fill
STILL_READ = Line((Piece("  the last minutes are still being read", "dim"),))
OLD_S = 30.0  # a page's own rows that end so long before the picture are grey


def screen_lines(page: Page, scene: Scene, asks: Asks = ()) -> tuple[Line, ...]:
    """The whole screen of a page, exactly `scene.lines` high; the row chosen is marked. `asks` is
    what the page wants now: `scene.detail` may be an answer about a little before."""
    cells, lines, look = scene.cells, scene.lines, scene.look
    if cells < LEAST_CELLS or lines < LEAST_LINES:
        return too_small(cells, lines)
    s, ellipsis = scene.picture, look.glyphs.ellipsis
    early = s.filling and page.name != OVERVIEW
    if page.whole and not early:
        return marked(tuple(page.lines(scene)), scene)
    foot = (cut(Line(look.keys), cells),) if look.keys else ()
    verdict = verdict_part(s, cells, 1, ellipsis)
    if s.stale or look.banner is not None:
        verdict = tuple(greyed(line) for line in verdict)
    head = (
        header_line(s, cells, look),
        *banner_lines(look, cells),
        *note_lines(s.lamps, cells, look),
        *verdict,
    )
    about = "" if early else page.heading(scene)
    title = clip(f"{page.title}{'  ' if about else ''}{about}", max(1, cells - 4), ellipsis)
    over = (*head, rule(title, "", cells, look.glyphs), *detail_lines(scene, asks))
    room = max(1, lines - len(over) - len(foot))
    body = (STILL_READ,) if early else tuple(page.lines(replace(scene, lines=room)))[:room]
    if s.stale or look.banner is not None or is_old(scene, asks):
        body = tuple(greyed(line) for line in body)
    blank = (Line(),) * (lines - len(over) - len(body) - len(foot))
    return marked((*over, *body, *blank, *foot)[:lines], scene)


def is_old(scene: Scene, asks: Asks) -> bool:
    """Whether the page's own rows are of another time than the picture."""
    wanted = max((a.end for a in asks if a.end is not None), default=None)
    until = scene.detail.until
    if not scene.detail.heard or wanted is None or until is None:
        return False
    return abs(wanted - until) > OLD_S


def detail_lines(scene: Scene, asks: Asks) -> tuple[Line, ...]:
    """What is to be said of the page's own rows: asked for, refused, old, incomplete."""
    detail, look = scene.detail, scene.look
    if not asks:
        return ()
    words, role = "", "warn"
    if detail.trouble is not None:
        words = f"this page's rows: {plain(detail.trouble)}; trying again"
    elif not detail.heard:
        words, role = "asking for this page's rows ...", "dim"
    if detail.heard and detail.until is not None and is_old(scene, asks):
        age = whole(abs(scene.picture.now - detail.until))
        words = f"rows up to {clock(detail.until, look.tz)}, {age} off; {words or 'asking again'}"
    parts = [words, *(plain(n) for n in detail.notes if n not in scene.picture.lamps.notes)]
    text = "; ".join(p for p in parts if p)
    if not text:
        return ()
    return (cut(Line((Piece("   ", role), Piece(text, role))), scene.cells, look.glyphs.ellipsis),)


def marked(lines: Sequence[Line], scene: Scene) -> tuple[Line, ...]:
    """The row chosen stands out; of one that stands in two lists the one that was chosen."""
    cursor = scene.place.cursor
    if cursor is None:
        return tuple(lines)
    return tuple(replace(x, tint="cursor") if x.row == cursor else x for x in lines)
