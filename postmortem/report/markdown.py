"""The report as Markdown. Names and free text are escaped: none can break a table or become
markup."""

from __future__ import annotations

from datetime import tzinfo

from postmortem.report.document import Grid, Section, document, title
from postmortem.report.model import Report
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
        elif isinstance(part, tuple):
            blocks.append("\n".join(f"- {escape(line)}" for line in part))
        else:
            blocks.append(escape(part))
    return blocks


def _table(grid: Grid) -> str:
    rule = ("---:" if i in grid.right else "---" for i in range(len(grid.head)))
    rows = [_row(tuple(inline(c) for c in grid.head)), _row(tuple(rule))]
    rows += [_row(tuple(inline(c) for c in row)) for row in grid.rows]
    return "\n".join(rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(c or " " for c in cells) + " |"
