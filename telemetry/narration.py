"""What a process says on stderr, line by line. Owns the form of it; never what is said.

Names and values of strangers stand in log lines and in errors: a terminal prints them and does not
obey them.
"""

from __future__ import annotations

import logging
import sys

from telemetry.plain import safe


def one_line(error: BaseException) -> str:
    """What an error says, as one line: a library's words inside ours may come in several."""
    said = " ".join(line.strip() for line in str(error).splitlines())
    return safe(said) or type(error).__name__


def begin(prefix: str) -> None:
    """Log from INFO up to stderr, each record as `prefix: message`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain(f"{prefix}: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # The lines of a traceback stay lines.
        return "\n".join(safe(line.expandtabs()) for line in super().format(record).split("\n"))
