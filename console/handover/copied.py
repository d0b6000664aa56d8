"""What `y` copies: text that a terminal and a shell can take. Pure.

It goes out as OSC 52, which is base64: what is in it reaches no terminal as such, but it is pasted
into others. So control, format and separator characters are written as escapes, and a name that
comes into a command is quoted.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, tzinfo

from telemetry.plain import safe

MOST = 4096  # characters: more are cut off by some terminals, silently
CUT = " ... (cut)"


def plain_text(text: str, most: int = MOST) -> str:
    """At most `most` characters on one line; what is cut is said."""
    said = safe(" ".join(text.split()))
    return said if len(said) <= most else said[: most - len(CUT)] + CUT


def view_command(
    where: Sequence[str],
    *,
    page: str,
    pool: str | None,
    at: float | None,
    tenant: str | None = None,
    tz: tzinfo | None = None,
) -> str:
    """The command that shows this view again. `where` are the options that name the source; `at` is
    an instant of the past, None = now; `tenant`: whose page it is."""
    words = ["tenantscope", "console", *where]
    if pool:
        words += ["--pool", pool]
    if at is not None:
        words += ["--at", instant(at, tz)]
    if page != "overview":
        words += ["--once", "--page", page]
        words += ["--tenant", tenant] if tenant is not None else []
    return command(words)


def command(words: Sequence[str]) -> str:
    """Words as a shell takes them; one with control characters is quoted and escaped."""
    return " ".join(_quoted(w) for w in words)


def _quoted(word: str) -> str:
    escaped = safe(word)
    if escaped == word:
        return shlex.quote(word)
    # bash's and zsh's own form takes the escapes that `safe` writes.
    return "$'" + escaped_in_quotes(word) + "'"


def escaped_in_quotes(word: str) -> str:
    doubled = word.replace("\\", "\\\\").replace("'", "\\'")
    return "".join(c if safe(c) == c else _escape(c) for c in doubled)


def _escape(c: str) -> str:
    # Above ASCII bash takes \x85 for a byte, not for a character.
    return f"\\u{ord(c):04x}" if 0x7F < ord(c) <= 0xFF else safe(c)


def instant(at: float, tz: tzinfo | None = None) -> str:
    """An instant as every command reads it, with its zone."""
    local = datetime.fromtimestamp(at, tz) if tz else datetime.fromtimestamp(at).astimezone()
    return local.isoformat(timespec="milliseconds" if at % 1 else "seconds")
