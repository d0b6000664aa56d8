"""The console's keys and actions as data: bindings, the last line and the help page say the same.

An action's name is that of a method `action_<name>` of the app. Draws nothing, does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from console.cells import fit, width
from console.lines import Line, Piece, wrap

EVERYWHERE: tuple[str, ...] = ()
OVERVIEW, TABLE = ("overview",), ("table",)
TWO_COLUMNS = 100  # cells from which on the help has two
HELP_CELLS = 10  # of a key or a word in it


@dataclass(frozen=True, slots=True)
class Key:
    """One action: its keys (Textual's names, comma-separated), how they are shown, on which pages
    it works (none named: on all). `rank`: the lower the sooner it is on the last line; 0 = only in
    help and palette."""

    keys: str
    shown: str
    action: str
    short: str
    long: str
    where: tuple[str, ...] = EVERYWHERE
    rank: int = 0

    def works(self, page: str) -> bool:
        return not self.where or page in self.where

    @property
    def acts(self) -> bool:
        """Whether it changes an engine: of no use before one lets itself be changed."""
        return self.action.startswith("act(")


# Of two keys that are the same the one of the open page is meant.
KEYS: tuple[Key, ...] = (
    Key("enter", "Enter", "enter", "open", "open the row chosen: a tenant, an instant", EVERYWHERE,
        2),
    Key("up", "up", "move(-1)", "", "choose the row above; a click does it too"),
    Key("down", "down", "move(1)", "", "choose the row below; the wheel does it too"),
    Key("pageup", "pgup", "move_page(-1)", "", "a page of rows up"),
    Key("pagedown", "pgdn", "move_page(1)", "", "a page of rows down"),
    Key("a", "a", "open('table')", "all", "every tenant, every column; again: back", EVERYWHERE, 1),
    Key("t", "t", "time", "time", "go to a time: 17:03, 5m ago, start, end", EVERYWHERE, 2),
    Key("c", "c", "act('cap')", "cap", "other limits for the tenant chosen: a form, tried first",
        EVERYWHERE, 2),
    Key("w", "w", "act('weight')", "weight", "another share or tier for it", EVERYWHERE, 3),
    Key("d", "d", "act('drain')", "drain", "let nothing new of it in; where it drains: in again",
        EVERYWHERE, 3),
    Key("u", "u", "act('undo')", "undo", "take back the last change in force", EVERYWHERE, 3),
    Key("k", "k", "act('preempt')", "preempt", "what it runs above its fair share waits again",
        EVERYWHERE, 10),
    Key("U", "U", "act('unload')", "unload", "let nobody name one of its adapters any more",
        EVERYWHERE, 10),
    Key("M", "M", "act('move')", "move", "into another pool, from its next request on",
        EVERYWHERE, 10),
    Key("left,comma", "<-", "step(-1)", "back", "a bucket back", EVERYWHERE, 5),
    Key("right,full_stop", "->", "step(1)", "on", "a bucket on", EVERYWHERE, 5),
    Key("end,l", "end", "edge", "newest", "to the newest figures, and along with them",
        EVERYWHERE, 6),
    Key("space", "space", "pause", "pause", "hold the picture; figures are still collected",
        EVERYWHERE, 4),
    Key("slash", "/", "filter", "filter", "only what matches; !pattern: all the others",
        EVERYWHERE, 6),
    Key("x", "x", "open('requests')", "requests", "requests that have ended, a life-line each",
        EVERYWHERE, 5),
    Key("e", "e", "open('events')", "events", "what happened: changes, alerts, faults", EVERYWHERE,
        6),
    Key("P", "P", "open('policy')", "policy", "what is in force for each tenant, since when, by"
        " whom", EVERYWHERE, 7),
    Key("h", "h", "open('heat')", "heat", "tenants by minutes, for any figure", EVERYWHERE, 4),
    Key("m", "m", "open('matrix')", "matrix", "who waited behind whom, in seconds", EVERYWHERE, 4),
    Key("A", "A", "open('adapters')", "adapters", "where adapters are, loads, thrash", EVERYWHERE,
        7),
    Key("left,comma", "<-", "turn('earlier')", "minute", "the minute before", ("heat",), 2),
    Key("right,full_stop", "->", "turn('later')", "", "the minute after", ("heat",)),
    Key("t", "t", "do('minute')", "go there", "go to the minute chosen", ("heat",), 1),
    Key("g", "g", "turn('metric')", "figure", "the next figure: wait, misses, TTFT, share, KV,"
        " swap, 429", ("heat",), 1),
    Key("x", "x", "turn('basis')", "charged", "seconds charged, or beyond usual", ("matrix",), 1),
    Key("o", "o", "turn('only')", "reason", "the next reason alone", ("matrix",), 1),
    Key("s", "s", "turn('sort')", "sort", "sort by the next figure", ("adapters",), 1),
    Key("o", "o", "turn('only')", "only", "the next kind of them alone", ("requests", "events"), 1),
    Key("z", "z", "turn('span')", "span", "over another stretch of time",
        ("tenant", "requests", "events", "adapters"), 1),
    Key("v", "v", "turn('everyone')", "everybody's", "of this tenant alone, or of all of them",
        ("requests",), 2),
    Key("s,greater_than_sign", "s", "turn('sort')", "sort", "sort by the next column shown",
        ("table", "requests"), 2),
    Key("less_than_sign", "<", "turn('sort_before')", "", "sort by the column before", TABLE),
    Key("r", "r", "turn('reverse')", "reverse", "turn the order round", TABLE, 3),
    Key("g", "g", "turn('group')", "columns", "the next group of columns", TABLE, 2),
    Key("n", "n", "do('note')", "note", "a note onto the timeline, beside the open incident",
        EVERYWHERE, 8),
    Key("R", "R", "do('report')", "report", "a stretch of time as a report, into a file",
        EVERYWHERE, 8),
    Key("y", "y", "do('copy')", "copy", "copy the row chosen, else the command for this view",
        EVERYWHERE, 11),
    Key("Y", "Y", "do('copy_incident')", "", "copy the incident's id"),
    Key("S", "S", "do('svg')", "", "this screen as a picture (SVG), into a file"),
    Key("C", "C", "do('csv')", "", "this page's figures as CSV, into a file"),
    Key("T", "T", "do('trace')", "", "requests of a stretch of time as a trace (Perfetto)"),
    Key("p", "p", "pool", "pool", "the next pool, where there are several", EVERYWHERE, 9),
    Key("escape", "esc", "leave", "", "close what is open: help, prompt, page"),
    Key("question_mark", "?", "help", "help", "this page", EVERYWHERE, 7),
    Key("ctrl+p,colon", "^p", "palette", "", "find an action by its words"),
    Key("q", "q", "quit", "quit", "leave", EVERYWHERE, 8),
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
    ("burn", "misses, in multiples of what the objective allows"),
    ("hit", "its adapter was on the device; warm: in host memory; cold: on disk"),
    ("life", "front slot budget kv adapter Prefill !=waiting again Decode"),
    ("-", "not known; it is not 0"),
    ("~", "the newest bucket is still open: its figures may change"),
    ("grey", "old figures: the source is silent, or does not answer"),
)


def in_order(keys: Sequence[Key]) -> list[Key]:
    """Those of a page before those of all: the first of two equal ones that works is meant."""
    return sorted(keys, key=lambda k: not k.where)


def shadowed(key: Key, more: Sequence[Key]) -> bool:
    """Whether one of `more` has a key of this one's: it is meant then, and this one is not."""
    return any(set(key.keys.split(",")) & set(m.keys.split(",")) for m in more)


def key_line(
    page: str, cells: int, more: Sequence[Key] = (), *, acts: bool = True
) -> tuple[Piece, ...]:
    """The last line: the keys that work on a page, as many as fit whole. Without `acts` those that
    change an engine are dim."""
    ours = [k for k in KEYS if not shadowed(k, more)]
    usable = [k for k in (*more, *ours) if k.rank and k.works(page)]
    taken = {n for k in usable if k.where for n in k.keys.split(",")}
    usable = [k for k in usable if k.where or not taken.intersection(k.keys.split(","))]
    # Whatever else there is no room for, where to find it is said.
    last = [k for k in usable if k.action == "help"]
    room = cells - sum(width(k.shown) + 3 + width(k.short) for k in last)
    pieces: list[Piece] = []
    used = 0
    for key in (*sorted((k for k in usable if k not in last), key=lambda k: k.rank), *last):
        need = width(key.shown) + 1 + width(key.short) + (2 if pieces else 0)
        if used + need > (cells if key in last else room):
            continue
        if pieces:
            pieces.append(Piece("  "))
        role = "dim" if key.acts and not acts else "title"
        pieces += [Piece(f"{key.shown} ", role), Piece(key.short, "dim")]
        used += need
    return tuple(pieces)


def key_at(line: Line, x: int, page: str, more: Sequence[Key] = ()) -> Key | None:
    """The key that a last line tells at a cell; None beside them. Read off the line itself: what
    is under way may stand before the keys, and a narrow screen cuts them."""
    known = {
        (f"{k.shown} ", k.short): k
        for k in in_order((*KEYS, *more))[::-1]  # the first of two that look the same is meant
        if k.rank and k.works(page) and (k in more or not shadowed(k, more))
    }
    end = 0
    for told, what in pairwise((*line.pieces, Piece(""))):
        begin, end = end, end + width(told.text)
        key = known.get((told.text, what.text))
        if key is not None and begin <= x < end + width(what.text):
            return key
    return None


def help_lines(cells: int, lines: int, more: Sequence[Key] = ()) -> Sequence[Line]:
    """Every key and every word, `more` keys first; where they do not fit one under the other, in
    two columns if there is room for two. What is too long for its column goes on below."""

    def told(entries: Sequence[tuple[str, str, str]], room: int) -> list[Line]:
        return [line for entry in entries for line in _entry(*entry, room)]

    usable = [*more, *(k for k in KEYS if not shadowed(k, more))]
    entries = [
        *((k.shown, f"{k.long} ({', '.join(k.where)})" if k.where else k.long, "title")
          for k in usable),
        ("", "", "text"),
        *((word, what, "label") for word, what in WORDS),
    ]  # fmt: skip
    single = told(entries, cells)
    if cells < TWO_COLUMNS or len(single) <= lines:
        return single
    room = cells // 2 - 1
    every = told(entries, room)
    half = (len(every) + 1) // 2
    while half < len(every) and _goes_on(every[half]):  # an entry stays in its column
        half += 1
    left, right = every[:half], every[half:]
    right += [_entry("", "", "text", room)[0]] * (half - len(right))
    return [Line((*a.pieces, Piece("  "), *b.pieces)) for a, b in zip(left, right, strict=True)]


def _entry(left: str, right: str, role: str, room: int) -> list[Line]:
    """A key or a word and what it means, each line exactly `room` cells."""
    parts = wrap(right, max(1, room - HELP_CELLS))
    return [
        Line((Piece(fit(f"{'' if i else left:>8}  ", HELP_CELLS), role),
              Piece(fit(part, max(1, room - HELP_CELLS)))))
        for i, part in enumerate(parts)
    ]  # fmt: skip


def _goes_on(line: Line) -> bool:
    """Whether it belongs to the entry above it."""
    return not line.pieces[0].text.strip() and bool(line.plain.strip())
