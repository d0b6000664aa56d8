"""The report as Markdown. Names and free text are escaped: none can break a table or become
markup."""

from __future__ import annotations

import re
from datetime import tzinfo

from postmortem.report.document import Code, Figure, Grid, Section
from postmortem.report.model import Report
from postmortem.report.told import document, title
from telemetry.plain import safe

_SPECIAL = frozenset("\\`*_[]<>|~&#$")
_AT_LINE_START = frozenset("+-=")


def inline(text: str) -> str:
    """`text` inside a line: it shows itself and nothing else."""
    return "".join("\\" + c if c in _SPECIAL else c for c in safe(text))


def escape(text: str) -> str:
    """`text` at the beginning of a block, where more characters have a meaning."""
    out = inline(text)
    if out[:1] in _AT_LINE_START:
        return "\\" + out
    digits = len(out) - len(out.lstrip("0123456789"))
    if digits and out[digits : digits + 1] in (".", ")"):
        return out[:digits] + "\\" + out[digits:]
    return out


def render(report: Report, zone: tzinfo | None = None) -> str:
    blocks = [f"# {escape(title(report, zone))}"]
    for section in document(report, zone):
        blocks += _section(section)
    return "\n\n".join(blocks) + "\n"


def _section(section: Section) -> list[str]:
    blocks = [f"## {escape(section.title)}"]
    for part in section.parts:
        if isinstance(part, Grid):
            blocks.append(_table(part))
        elif isinstance(part, Code):
            blocks.append(_fenced(part.lines))
        elif isinstance(part, Figure):
            continue  # its numbers follow
        elif isinstance(part, tuple):
            blocks.append("\n".join(f"- {escape(line)}" for line in part))
        else:
            blocks.append(escape(part))
    return blocks


def _fenced(lines: tuple[str, ...]) -> str:
    """A block to copy from, in a fence that is longer than any run of backticks inside."""
    text = "\n".join(safe(line) for line in lines)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def _table(grid: Grid) -> str:
    rule = ("---:" if i in grid.right else "---" for i in range(len(grid.head)))
    rows = [_row(tuple(inline(c) for c in grid.head)), _row(tuple(rule))]
    rows += [_row(tuple(inline(c) for c in row)) for row in grid.rows]
    return "\n".join(rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(c or " " for c in cells) + " |"
