"""The pools that are not in front: a line of each one's verdict, the worst first. Lines, no screen.

The words are the verdicts' own; what does not fit is counted by name, never left out in silence.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.cells import clip, fit, width
from console.formats import whole
from console.lines import Glyphs, Line, Piece
from console.listing import shown_name
from console.marks import LEVEL_MARKS
from console.panels import Level, PoolVerdict, Snapshot
from telemetry.plain import safe as plain

NAME_CELLS = 16


def other_lines(s: Snapshot, cells: int, most: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """At most `most` lines; nothing where one pool serves."""
    if most < 1 or not s.others:
        return ()
    unjudged = len(s.pools) - 1 - len(s.others)
    whole_list = len(s.others) <= most and not unjudged
    shown = s.others if whole_list else s.others[: max(1, most - 1)]
    rest = s.others[len(shown) :]
    names = max(min(NAME_CELLS, width(shown_name(o.pool))) for o in shown)
    if most == 1 and not whole_list:
        tail = f"  +{len(rest) + unjudged} more"
        return (_line(shown[0], tail, names, cells, glyphs),)
    lines = tuple(_line(o, "", names, cells, glyphs) for o in shown)
    return lines if whole_list else (*lines, _folded(rest, unjudged, cells, glyphs))


def _line(o: PoolVerdict, tail: str, names: int, cells: int, glyphs: Glyphs) -> Line:
    mark, role = _mark(o)
    said = plain(o.line).replace("…", glyphs.ellipsis)
    if o.stale:
        said = f"{whole(o.age_s)} ago: {said}"
    name = fit(clip(shown_name(o.pool), names, glyphs.ellipsis), names)
    room = max(1, cells - 3 - names - 2 - width(tail))
    text = clip(said, room, glyphs.ellipsis)
    look = role if o.is_hurt else "dim" if o.level is Level.QUIET or o.stale else "text"
    pieces = [
        Piece(f"{mark} ", role),
        Piece(name, "value"),
        Piece("  "),
        Piece(text, look),
        Piece(tail, "dim"),
    ]
    return Line(tuple(pieces), "hurt" if o.is_hurt else "")


def _folded(rest: Sequence[PoolVerdict], unjudged: int, cells: int, glyphs: Glyphs) -> Line:
    """The last line: the others by name, each with its mark."""
    mark, role = _mark(rest[0]) if rest else LEVEL_MARKS[Level.UNKNOWN]
    words = ", ".join(f"{_mark(o)[0].strip()} {shown_name(o.pool)}" for o in rest)
    if unjudged:
        words += f", and {unjudged} not judged here" if rest else f"{unjudged} not judged here"
    head = f"{len(rest) + unjudged} more pools: " if rest else ""
    text = clip(f"{head}{words}", max(1, cells - 3), glyphs.ellipsis)
    return Line((Piece(f"{mark} ", role), Piece(text, "text")))


def _mark(o: PoolVerdict) -> tuple[str, str]:
    """ "ok" of a pool that is silent would be believed."""
    return LEVEL_MARKS[Level.UNKNOWN if o.stale and o.level is Level.QUIET else o.level]
