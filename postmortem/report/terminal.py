"""The report as plain text for a terminal of a given width: no markup, no colour, no control
characters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from postmortem.report.document import Code, Figure, Grid, Part
from postmortem.report.model import Report
from postmortem.report.told import document, title
from telemetry.plain import cells, clip, safe, wrap

NARROWEST = 40
_PROSE_CELLS = 30  # a last column of text is wrapped to no less
_NAME_CELLS = 24  # of a first column, before wide tables are stacked


def render(report: Report, zone: tzinfo | None = None, *, width: int = 80) -> str:
    """Text of at most `width` cells a line (at least 40)."""
    width = max(NARROWEST, width)
    lines = [*wrap(safe(title(report, zone)), width, "  ")]
    lines.append("=" * min(width, max(cells(x) for x in lines)))
    for section in document(report, zone):
        lines += ["", section.title.upper()]
        for part in section.parts:
            if isinstance(part, Grid):
                lines += [*([""] if lines[-1] else []), *lines_of(part, width), ""]
            else:
                lines += lines_of(part, width)
        if not lines[-1]:
            lines.pop()
    return "\n".join(lines) + "\n"


def lines_of(part: Part, width: int) -> list[str]:
    """One part as lines of at most `width` cells; a figure has none, its numbers follow it."""
    if isinstance(part, Grid):
        return _table(part, width)
    if isinstance(part, Code):
        return [c for line in part.lines for c in _command(safe(line), width)]
    if isinstance(part, Figure):
        return []
    if isinstance(part, tuple):
        return [line for item in part for line in wrap("- " + safe(item), width, "  ")]
    return wrap(safe(part), width)


def _table(grid: Grid, width: int) -> list[str]:
    """Columns as wide as their cells. Too wide for the screen, a last column of text is wrapped,
    else names are clipped; if that is not enough each row becomes a block of `head cell`."""
    head = [safe(h) for h in grid.head]
    rows = [[safe(c) for c in row] for row in grid.rows]
    last = len(head) - 1
    for most in (width, _NAME_CELLS, 12):
        cut_head = [clip(h, most) for h in head]
        cut = [[clip(c, most) if i not in grid.right else c for i, c in enumerate(r)] for r in rows]
        widths = [max(cells(r[i]) for r in [cut_head, *cut]) for i in range(len(head))]
        gap = 2 if sum(widths) + 2 * last <= width else 1
        if sum(widths) + gap * last <= width:
            return [_line(r, widths, grid.right, gap) for r in [cut_head, *cut]]
        room = width - sum(widths[:-1]) - 2 * last
        if last not in grid.right and room >= _PROSE_CELLS:
            return _wrapped([head, *rows], [*widths[:-1], room], grid.right)
    return _stacked(head, rows, width)


def _command(text: str, width: int) -> list[str]:
    """Cut at spaces, each cut marked so that a shell takes the lines together."""
    lines = wrap("  " + text, width - 2, "    ")
    return [line + " \\" for line in lines[:-1]] + lines[-1:]


def _wrapped(
    rows: Sequence[Sequence[str]], widths: Sequence[int], right: frozenset[int]
) -> list[str]:
    out: list[str] = []
    for row in rows:
        text = wrap(row[-1], widths[-1])
        front = [clip(c, w) for c, w in zip(row[:-1], widths[:-1], strict=True)]
        out.append(_line([*front, text[0]], widths, right, 2))
        blank = [""] * len(front)
        out += [_line([*blank, more], widths, right, 2) for more in text[1:]]
    return out


def _line(row: Sequence[str], widths: Sequence[int], right: frozenset[int], gap: int) -> str:
    out = []
    for i, (cell, w) in enumerate(zip(row, widths, strict=True)):
        pad = " " * (w - cells(cell))
        out.append(pad + cell if i in right else cell + pad)
    return (" " * gap).join(out).rstrip()


def _stacked(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    out: list[str] = []
    named = 1 if head[0] else 2  # a first column without a heading is a mark before the name
    for row in rows:
        out += wrap(" ".join(c for c in row[:named] if c), width)
        rest = zip(head[named:], row[named:], strict=True)
        pairs = ", ".join(f"{h} {c}" for h, c in rest if c != "-")
        out += ["  " + line for line in wrap(pairs, width - 2)]
    return out
