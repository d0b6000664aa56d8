"""Lines of styled pieces: what the plain text and the live screen have in common. Knows no panel.

A piece names its *role* (what it means), never a colour; the screen's stylesheet decides the look
and the plain text ignores it. Text in a piece is final: it is never parsed as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from console.cells import clip, fit, width

ROLES = (
    "text", "dim", "label", "title", "value", "good", "warn", "hurt", "named", "aside",
    "rule", "head", "phase", "kv", "adapter", "cached", "free", "slot", "budget", "bar", "fair",
)  # fmt: skip


class Piece(NamedTuple):
    """Some text and what it means."""

    text: str
    role: str = "text"


class Row(NamedTuple):
    """What a line is about, where the reader can choose it. `kind` says what is opened of it:
    tenant, request, event, ...; `name` which one, as stored; `part` which list it stands in, where
    one thing stands in two; `tenant` whose it is, where it is no tenant itself."""

    kind: str
    name: str
    part: str = ""
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """Pieces side by side; `tint` marks the whole line ("" or "hurt", "named", "head", "cursor").
    `row`: what it is about; None: it cannot be chosen."""

    pieces: tuple[Piece, ...] = ()
    tint: str = ""
    row: Row | None = None

    @property
    def plain(self) -> str:
        return "".join(p.text for p in self.pieces)

    @property
    def width(self) -> int:
        return sum(width(p.text) for p in self.pieces)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters bars are drawn with; ASCII where the terminal's encoding has no blocks."""

    full: str = "█"
    parts: str = " ▏▎▍▌▋▊▉"
    fills: tuple[str, ...] = ("█", "▓", "▒", "░")
    sparks: str = "▁▂▃▄▅▆▇█"
    gap: str = "·"
    rule: str = "─"
    ellipsis: str = "…"
    point: str = "▸"
    dot: str = "·"


LINE_CELLS = 77  # of a sentence beside the level's mark on 80 columns
SENTENCE_GAP = "   "

UNICODE = Glyphs()
ASCII = Glyphs("#", " ", ("#", "=", "-", "."), "_.:-=+*#", "?", "-", "~", ">", "-")


def glyphs_for(encoding: str | None) -> Glyphs:
    """Blocks where the output can carry them, else ASCII."""
    try:
        (UNICODE.full + UNICODE.sparks + UNICODE.rule + UNICODE.parts).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def cut(line: Line, cells: int, ellipsis: str = "…") -> Line:
    """The line, at most `cells` wide."""
    if line.width <= cells:
        return line
    out: list[Piece] = []
    room = cells
    for piece in line.pieces:
        if width(piece.text) < room:
            out.append(piece)
            room -= width(piece.text)
            continue
        out.append(Piece(clip(piece.text + " ", room, ellipsis), piece.role))
        break
    return Line(tuple(out), line.tint, line.row)


def spread(left: Sequence[Piece], right: Sequence[Piece], cells: int, tint: str = "") -> Line:
    """Left and right against the edges; where both do not fit the left one is cut."""
    right_cells = sum(width(p.text) for p in right)
    if right_cells + 1 > cells:
        return cut(Line(tuple(left), tint), cells)
    head = cut(Line(tuple(left)), cells - right_cells - 1)
    return Line((*head.pieces, Piece(" " * (cells - head.width - right_cells)), *right), tint)


def join(groups: Sequence[Sequence[Piece]], cells: int, gap: int = 2) -> tuple[Piece, ...]:
    """Groups side by side, as many as fit whole; the first always stays."""
    out: list[Piece] = []
    used = 0
    for group in groups:
        need = sum(width(p.text) for p in group) + (gap if out else 0)
        if out and used + need > cells:
            break
        if out:
            out.append(Piece(" " * gap))
        out.extend(group)
        used += need
    return tuple(out)


def stacked(shares: Sequence[tuple[float, str, str]], cells: int) -> tuple[Piece, ...]:
    """A bar of `cells`, divided by (share, fill, role); rounded so that the bar is full where the
    shares sum to 1, and the rest blank where they do not. A share above 0 gets a cell if it can."""
    edges: list[int] = []
    run = 0.0
    for share, _, _ in shares:
        run += max(0.0, share)
        edges.append(min(cells, round(run * cells)))
    out: list[Piece] = []
    before = 0
    for (share, fill, role), edge in zip(shares, edges, strict=True):
        if share > 0.0 and edge <= before:
            edge = min(cells, before + 1)
        if edge > before:
            out.append(Piece(fill * (edge - before), role))
            before = edge
    if before < cells:
        out.append(Piece(" " * (cells - before)))
    return tuple(out)


def sparkline(values: Sequence[float | None], glyphs: Glyphs, top: float = 1.0) -> str:
    """One character a value, scaled to `top`; a gap where nothing is known."""
    last = len(glyphs.sparks) - 1
    out = []
    for v in values:
        if v is None:
            out.append(glyphs.gap)
        else:
            out.append(glyphs.sparks[min(last, round(min(1.0, max(0.0, v / top)) * last))])
    return "".join(out)


def rule(title: str, note: str, cells: int, glyphs: Glyphs) -> Line:
    """A section's upper edge with its name."""
    left = f"{glyphs.rule} "
    right = f" {note} {glyphs.rule}" if note else ""
    middle = cells - width(left) - width(title) - 1 - width(right)
    if middle < 1:
        return Line((Piece(fit(f"{left}{title} ", cells), "rule"),))
    return Line(
        (
            Piece(left, "rule"),
            Piece(title, "label"),
            Piece(" " + glyphs.rule * middle, "rule"),
            Piece(right, "dim"),
        )
    )


def side_by_side(sentences: Sequence[str], cells: int = LINE_CELLS) -> tuple[str, ...]:
    """Short sentences share a line while they fit."""
    out: list[str] = []
    for sentence in sentences:
        if out and width(out[-1]) + len(SENTENCE_GAP) + width(sentence) <= cells:
            out[-1] += SENTENCE_GAP + sentence
        else:
            out.append(sentence)
    return tuple(out)


def wrap(text: str, cells: int, ellipsis: str = "…") -> list[str]:
    """Words on lines of at most `cells`; a word longer than a line is cut."""
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        candidate = f"{current} {word}" if current else word
        if width(candidate) <= cells:
            current = candidate
            continue
        if current:
            lines.append(current)
        current = clip(word, cells, ellipsis)
    lines.append(current)
    return lines
