"""Text for a fixed-width screen: cell widths, clipping, control characters, numbers. No markup.

Tenant names are data: whatever they hold, one name stays one run of printable cells.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime, tzinfo

_JOINERS = "\u200d"  # zero-width joiner: emoji sequences are one glyph, and it moves no text


def safe(text: str) -> str:
    """`text` with control, format, separator and surrogate characters written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _printable(c) else _escape(c) for c in text)


def _printable(c: str) -> bool:
    if c in _JOINERS:
        return True
    category = unicodedata.category(c)
    return c == " " or not (category[0] == "C" or category[0] == "Z")


def _escape(c: str) -> str:
    code = ord(c)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def cells(text: str) -> int:
    """Columns `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cell(c) for c in text)


def _cell(c: str) -> int:
    if c in _JOINERS or unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def clip(text: str, width: int) -> str:
    """`text` cut to `width` cells, the cut marked by an ellipsis."""
    if cells(text) <= width:
        return text
    out, used = [], 0
    for c in text:
        if used + _cell(c) > width - 1:
            break
        out.append(c)
        used += _cell(c)
    return "".join(out) + "…"


def name(text: str, width: int = 18) -> str:
    """A tenant's name inside a sentence."""
    return clip(safe(text), width) if text else '""'


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Break `text` at spaces into lines of at most `width` cells; an over-long word is broken.

    Lines after the first begin with `indent`.
    """
    lines: list[str] = []
    line, empty = "", True
    for word in text.split(" "):
        rest = word
        while True:
            room = width - cells(line) - (0 if empty else 1)
            if cells(rest) <= room:
                line += rest if empty else " " + rest
                empty = False
                break
            if not empty:
                lines.append(line)
                line, empty = indent, True
                continue
            cut = max(1, _fit(rest, room))
            lines.append(line + rest[:cut])
            line, rest = indent, rest[cut:]
    lines.append(line)
    return lines


def _fit(text: str, width: int) -> int:
    used = 0
    for i, c in enumerate(text):
        used += _cell(c)
        if used > width:
            return i
    return len(text)


def clock(unix_s: float, zone: tzinfo | None = None) -> str:
    """HH:MM:SS in `zone` (None = the machine's)."""
    return local(unix_s, zone).strftime("%H:%M:%S")


def local(unix_s: float, zone: tzinfo | None = None) -> datetime:
    """The instant in `zone`; the zone's own offset at that instant."""
    return (
        datetime.fromtimestamp(unix_s, zone)
        if zone
        else datetime.fromtimestamp(unix_s).astimezone()
    )


def span_s(value: float) -> str:
    """A duration, short: 0.04s, 9.4s, 812s, 3.2h."""
    if value < 0.995:
        return f"{value:.2f}s"
    if value < 99.5:
        return f"{value:.1f}s"
    if value < 5400:
        return f"{value:.0f}s"
    return f"{value / 3600:.1f}h"


def percent(value: float) -> str:
    """0%, <1%, 71%, >99%, 100%: what is not nothing (or not all) does not read as if it were."""
    if 0.0 < value < 0.005:
        return "<1%"
    if 0.995 <= value < 1.0 - 1e-9:
        return ">99%"
    return f"{100 * value:.0f}%"


def times(value: float) -> str:
    return f"{value:.2f}x" if value < 9.95 else f"{value:.0f}x"
