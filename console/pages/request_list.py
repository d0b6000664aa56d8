"""Requests as a table, a life-line each: the columns that two pages share, requests and tenant.

Values in, lines out; asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.cells import clip, fit, width
from console.formats import ABSENT, duration, quantity, when
from console.lines import Line, Piece, Row, cut, join, wrap
from console.listing import shown_name
from console.overview import Look
from console.pages.lives import in_words, life_line
from console.table import SEPARATOR, VAST, WIDE, Cell, Field, chosen, titles
from telemetry.plain import safe as plain

REQUEST = "request"  # the kind of its rows
LIFE = "life"
Told = Mapping[str, Any]
# Where an adapter was found at the arrival, in the words of who waits for it.
STATES = {"device": "hit", "loading": "loading", "host": "warm", "disk": "cold"}


@dataclass(frozen=True, slots=True)
class Shown:
    """One request, and what its line needs beside it."""

    row: Told
    now: float
    look: Look
    longest_s: float


def _ended(x: Shown) -> Cell:
    return when(x.row["ended"], x.now, x.look.tz), "dim"


def _outcome(x: Shown) -> Cell:
    r = x.row
    word = plain(str(r["outcome"]).replace("_", " "))
    missed = [n for n in ("ttft", "tpot", "gap") if r[f"missed_{n}"]]
    if r["outcome"] == "finished":
        return (f"miss {missed[0]}", "hurt") if missed else ("ok" if r["slo_met"] else word, "dim")
    return word, "warn" if r["outcome"] in ("rejected", "aborted") else "hurt"


def _tokens(x: Shown) -> Cell:
    return f"{quantity(x.row['prompt_tokens'])}>{quantity(x.row['output_tokens'])}", "text"


def _cell(get: Callable[[Shown], Cell]) -> Callable[[Shown, int, Any], Cell]:
    return lambda x, cells, glyphs: get(x)


def _name(get: Callable[[Shown], str]) -> Callable[[Shown, int, Any], Cell]:
    return lambda x, cells, glyphs: (clip(get(x), cells, glyphs.ellipsis), "text")


def adapter_of(row: Told) -> str:
    return ABSENT if row["adapter"] is None else shown_name(row["adapter"])


def state_of(row: Told) -> str:
    state = row["adapter_state"]
    return ABSENT if state is None else STATES.get(state, plain(str(state)))


def _fields(of_one: bool) -> tuple[Field[Shown], ...]:
    """`of_one`: all of one tenant, whose name stands above."""
    named: tuple[Field[Shown], ...] = (
        ()
        if of_one
        else (
            Field(
                "tenant", "tenant", 9, _name(lambda x: shown_name(x.row["tenant"])), "left", most=18
            ),
        )
    )
    return (
        Field("ended", "ended", 8, _cell(_ended), "left"),
        *named,
        Field(LIFE, "life", 14, _cell(lambda x: ("", "")), "left", most=200),
        Field("outcome", "outcome", 9, _cell(_outcome), "left"),
        Field("ttft", "TTFT", 5, _cell(lambda x: (duration(x.row["ttft_s"]), "text")), priority=1),
        Field("whole", "whole", 5, _cell(lambda x: (duration(x.row["life_s"]), "value"))),
        Field("tokens", "tokens", 9, _cell(_tokens), priority=3),
        Field("adapter", "adapter", 11, _name(lambda x: adapter_of(x.row)), "left", priority=4,
              most=20),
        Field("state", "found", 7, _cell(lambda x: (state_of(x.row), "dim")), "left", priority=6,
              since=WIDE),
        Field("retry", "r", 1, _cell(lambda x: ("r" if x.row["is_retry"] else "", "warn")),
              "left", priority=5),
        Field("preempted", "pre", 3, _cell(lambda x: (quantity(x.row["preemptions"]), "dim")),
              priority=6, since=WIDE),
        Field("id", "id", 14, _name(lambda x: plain(str(x.row["request_id"]))), "left",
              priority=7, since=VAST, most=30),
    )  # fmt: skip


def row_of(row: Told) -> Row:
    return Row(REQUEST, str(row["request_id"]), tenant=row["tenant"])


def longest_s(rows: Sequence[Told]) -> float:
    """The widest life of those that are shown: what the life-lines are scaled to."""
    return max((r["life_s"] or 0.0 for r in rows), default=0.0)


def request_lines(
    rows: Sequence[Told], now: float, cells: int, look: Look, *, of_one: bool
) -> tuple[Line, ...]:
    """A heading and a line each. The life takes the cells that the others leave."""
    fields = _spared(_fields(of_one), cells)
    scale = longest_s(rows)
    out = [titles(fields, cells)]
    for row in rows:
        x = Shown(row, now, look, scale)
        pieces: list[Piece] = []
        for i, f in enumerate(fields):
            if i:
                pieces.append(Piece(" " * SEPARATOR))
            if f.key == LIFE:
                pieces += life_line(row, scale, f.width, look.glyphs)
                continue
            text, role = f.cell(x, f.width, look.glyphs)
            text = clip(text, f.width, look.glyphs.ellipsis)
            pieces.append(Piece(fit(text, f.width, f.align), role))
        line = cut(Line(tuple(pieces)), cells, look.glyphs.ellipsis)
        out.append(replace(line, row=row_of(row)))
    return tuple(out)


def _spared(fields: Sequence[Field[Shown]], cells: int) -> tuple[Field[Shown], ...]:
    """Names are as wide as they may before the life takes the rest."""
    calm = [replace(f, most=0) if f.key == LIFE else f for f in fields]
    kept = chosen(calm, cells)
    life = sum(f.width for f in kept) + SEPARATOR * (len(kept) - 1)
    spare = max(0, cells - life)
    # Half of what names could take goes to the life: it is what the page is for.
    grown = {f.key: f.width for f in kept}
    least = {f.key: f.width for f in fields}
    for key in [k for k in grown if k != LIFE and grown[k] > least[k]]:
        back = (grown[key] - least[key]) // 2
        grown[key] -= back
        spare += back
    return tuple(replace(f, width=grown[f.key] + (spare if f.key == LIFE else 0)) for f in kept)


def about_lines(row: Told, cells: int, look: Look, lines: int = 2) -> tuple[Line, ...]:
    """One request in words, on exactly so many lines: whose, of which adapter, how it ended; and
    its parts as figures, on all the lines that are left."""
    room, e = max(1, cells - 3), look.glyphs.ellipsis
    state = row["adapter_state"]
    where = "" if state is None else f" ({state_of(row)}: {plain(str(state))})"
    of = quantity(row["max_tokens"])
    facts = [
        f"{shown_name(row['tenant'])}",
        f"{adapter_of(row)}{where}",
        f"prompt {quantity(row['prompt_tokens'])}, {quantity(row['cached_tokens'])} cached",
        f"output {quantity(row['output_tokens'])} of {of}",
        f"preempted {quantity(row['preemptions'])}x" if row["preemptions"] else "",
        "a retry" if row["is_retry"] else "",
    ]
    first = join([[Piece(f, "value")] for f in facts if f], room)
    if row["outcome"] == "rejected":
        second = f"refused: {plain(str(row['reject_reason'] or 'no reason given'))}"
    else:
        second = in_words(row)
    identity = plain(str(row["request_id"]))
    parts = wrap(second, room, e)
    if width(parts[-1]) + width(identity) + 2 <= room:
        parts[-1] = f"{parts[-1]}  {identity}"
    if len(parts) > lines - 1:
        parts = [*parts[: lines - 2], clip(" ".join(parts[lines - 2 :]), room, e)]
    indent = Piece("   ", "dim")
    rest = [Line((indent, Piece(p, "text"))) for p in parts]
    rest += [Line()] * (lines - 1 - len(rest))
    return (cut(Line((indent, *first)), cells, e), *rest)
