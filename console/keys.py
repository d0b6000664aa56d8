"""The console's keys and actions as data: bindings, the last line and the help page say the same.

An action's name is that of a method `action_<name>` of the app. Draws nothing, does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.cells import width
from console.lines import Line, Piece, cut

BOTH, OVERVIEW, TABLE = "everywhere", "overview", "table"


@dataclass(frozen=True, slots=True)
class Key:
    """One action: its keys (Textual's names, comma-separated), how they are shown, where it works.
    `rank`: the lower the sooner it is on the last line; 0 = only in help and palette."""

    keys: str
    shown: str
    action: str
    short: str
    long: str
    where: str = BOTH
    rank: int = 0


KEYS: tuple[Key, ...] = (
    Key("a", "a", "table", "all", "every tenant, every column; again: back", BOTH, 1),
    Key("t", "t", "time", "time", "go to a time: 17:03, 5m ago, start, end", BOTH, 2),
    Key("left,comma", "<-", "step_back", "back", "a bucket back", BOTH, 4),
    Key("right,full_stop", "->", "step_on", "on", "a bucket on", BOTH, 4),
    Key("end,l", "end", "edge", "newest", "to the newest figures, and along with them", BOTH, 6),
    Key("space", "space", "pause", "pause", "hold the picture; figures are still collected",
        BOTH, 3),
    Key("slash", "/", "filter", "filter", "only names that match; !pattern: all the others",
        TABLE, 1),
    Key("s", "s", "sort", "sort", "sort by the next column shown; S: by the one before", TABLE, 2),
    Key("S", "S", "sort_before", "", "sort by the column before", TABLE),
    Key("r", "r", "reverse", "reverse", "turn the order round", TABLE, 3),
    Key("g", "g", "group", "columns", "the next group of columns", TABLE, 2),
    Key("p", "p", "pool", "pool", "the next pool, where there are several", BOTH, 9),
    Key("escape", "esc", "leave", "", "close what is open: help, prompt, table", BOTH),
    Key("question_mark", "?", "help", "help", "this page", BOTH, 7),
    Key("ctrl+p,colon", "^p", "palette", "", "find an action by its words", BOTH),
    Key("q", "q", "quit", "quit", "leave", BOTH, 8),
)  # fmt: skip

WORDS = (
    ("!!", "hurt: misses its targets, or waits, beyond what is usual"),
    ("*", "the tenant the verdict speaks of"),
    ("!", "missed a target"),
    ("excess", "waited beyond what is usual for it and for the pool"),
    ("behind", "who held what it waited for: charged, no accusation"),
    ("self", "its own requests"),
    ("capacity", "nobody: the engine was slower than expected"),
    ("share", "of the service: prompt tokens + 2 x output tokens"),
    ("fair", "what its weight gives it among those with work waiting"),
    ("TTFT", "time to first token: p99/n; under 20 samples the maximum"),
    ("-", "not known; it is not 0"),
    ("~", "the newest bucket is still open: its figures may change"),
    ("grey", "old figures: the source is silent, or does not answer"),
)


def key_line(where: str, cells: int) -> tuple[Piece, ...]:
    """The last line: the keys that work here, as many as fit whole."""
    shown = sorted((k for k in KEYS if k.rank and k.where in (BOTH, where)), key=lambda k: k.rank)
    pieces: list[Piece] = []
    used = 0
    for key in shown:
        need = width(key.shown) + 1 + width(key.short) + (2 if pieces else 0)
        if used + need > cells:
            continue
        if pieces:
            pieces.append(Piece("  "))
        pieces += [Piece(f"{key.shown} ", "title"), Piece(key.short, "dim")]
        used += need
    return tuple(pieces)


def help_lines(cells: int, lines: int) -> Sequence[Line]:
    """Every key and every word, in two columns where one would not fit."""

    def pair(left: str, right: str, role: str, room: int) -> Line:
        line = cut(Line((Piece(f"{left:>8}  ", role), Piece(right))), room)
        return Line((*line.pieces, Piece(" " * max(0, room - line.width))))

    keys = [(k.shown, k.long if k.where == BOTH else f"{k.long} (table)", "title") for k in KEYS]
    words = [(w, what, "label") for w, what in WORDS]
    if len(keys) + 1 + len(words) <= lines or cells < 100:
        return [pair(*x, cells) for x in (*keys, ("", "", "text"), *words)]
    room = cells // 2 - 1
    rows = max(len(keys), len(words))
    blank = ("", "", "text")
    left = keys + [blank] * (rows - len(keys))
    right = words + [blank] * (rows - len(words))
    return [
        Line((*pair(*a, room).pieces, Piece("  "), *pair(*b, room).pieces))
        for a, b in zip(left, right, strict=True)
    ]
