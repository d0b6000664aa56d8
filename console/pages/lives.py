"""A request's life as a line: its parts end to end, so wide as they were long. Pure.

How a request's waits followed each other is not recorded, only how long each reason took: they are
laid end to end in a fixed order, and end where the first token came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.cells import fit, width
from console.formats import duration
from console.lines import Glyphs, Piece
from telemetry.plain import safe as plain

# Part, its letter, its role; waits first, then what was done. The letter is what tells them apart
# without colour.
PARTS: tuple[tuple[str, str, str], ...] = (
    ("front", "f", "dim"),
    ("slot", "s", "slot"),
    ("budget", "b", "budget"),
    ("kv", "k", "kv"),
    ("adapter", "a", "adapter"),
    ("prefill", "P", "good"),
    ("preempted", "!", "hurt"),
    ("decode", "D", "value"),
)
_FILLS = {"prefill": 1, "decode": 0, "preempted": 3}  # of Glyphs.fills; waits have the third
LEAST = 0.01  # of the longest life that is shown
UNTOLD = "untold"  # of a life that ended before its parts were known


def parts_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by part, in order, of a row of `requests_page`; what is not known is absent. What the
    parts do not explain of the whole life is `untold`."""
    waits = {r: row[f"wait_{r}_s"] for r in ("front", "slot", "budget", "kv", "adapter")}
    again = row["rewait_s"] or 0.0
    after = row["after_first_s"]
    known = {
        **waits,
        "prefill": row["prefill_s"],
        "preempted": again,
        "decode": None if after is None else max(0.0, after - again),
    }
    out = {name: float(s) for name, s in known.items() if s}
    rest = (row["life_s"] or 0.0) - sum(out.values())
    # A millisecond between two clocks is no part of a life.
    if rest > max(0.002, 0.02 * (row["life_s"] or 0.0)):
        out[UNTOLD] = rest
    return out


def life_line(
    row: Mapping[str, Any], longest_s: float, cells: int, glyphs: Glyphs
) -> tuple[Piece, ...]:
    """Exactly `cells` wide; a life of `longest_s` fills them. A part has a cell at least, but for
    those that are less than a hundredth of that: only the words tell them."""
    if row["outcome"] == "rejected":
        why = plain(str(row["reject_reason"] or "?"))
        return (Piece(fit(f"refused: {why}", cells), "warn"),)
    told = parts_of(row)
    scale = cells / longest_s if longest_s > 0.0 else 0.0
    letters = {name: (letter, role) for name, letter, role in PARTS}
    out: list[Piece] = []
    run, used = 0.0, 0
    for name, seconds in told.items():
        run += seconds
        if seconds < LEAST * longest_s:
            continue
        edge = min(cells, max(round(min(run * scale, cells)), used + 1))
        n = edge - used
        if n <= 0:
            continue
        if name == UNTOLD:
            out.append(Piece(glyphs.gap * n, "dim"))
        else:
            letter, role = letters[name]
            out.append(Piece(letter + glyphs.fills[_FILLS.get(name, 2)] * (n - 1), role))
        used = edge
    if used < cells:
        out.append(Piece(" " * (cells - used)))
    return tuple(out)


def legend(cells: int) -> str:
    """What the letters of a line mean, in at most `cells` where there is a way."""
    told = " ".join(f"{letter}={name}" for name, letter, _ in PARTS)
    if width(told) <= cells:
        return told
    begun = (letter + (name[1:] if name[0] == letter.lower() else f"={name}")
             for name, letter, _ in PARTS)  # fmt: skip
    return " ".join(begun)


def in_words(row: Mapping[str, Any]) -> str:
    """The parts as figures: `slot 1.2s, prefill 2.3s, decode 5.0s`."""
    return ", ".join(f"{name} {duration(s)}" for name, s in parts_of(row).items()) or "no parts"
