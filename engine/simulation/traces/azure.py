"""Azure's public traces of two LLM services (Patel et al., ISCA 2024; CC-BY-4.0). Reads only.

CSV: TIMESTAMP,ContextTokens,GeneratedTokens. Stamps have no zone and 7 digits of a second; lines
end in CRLF and the last may end in nothing. Rows name no tenant: they are spread over made-up ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from engine.errors import WorkloadError
from engine.simulation.traces.trace import (
    Account,
    BadRow,
    Row,
    Spread,
    Trace,
    TraceOptions,
    tokens,
)

HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?")
_EPOCH = datetime(1970, 1, 1)


def azure(path: Path, options: TraceOptions) -> Trace:
    spread = Spread(options)

    def rows(account: Account) -> Iterator[Row]:
        account.note(spread.note)
        first: int | None = None
        with path.open(encoding="utf-8-sig", newline=None) as f:
            header = tuple(c.strip() for c in f.readline().split(","))
            if header != HEADER:
                raise WorkloadError(f"{path}: line 1: expected the columns {', '.join(HEADER)}")
            for number, line in enumerate(f, 2):
                if not line.strip():
                    continue
                account.read += 1
                try:
                    at_ns, prompt, output = _row(line, f"{path}: line {number}")
                except BadRow as bad:
                    account.bad(bad)
                    continue
                if first is None:
                    first, account.origin_unix_s = at_ns, at_ns / 1e9
                at_s = (at_ns - first) / 1e9
                where = f"{path}: line {number}"
                yield Row(at_s, spread.of(number), prompt, output, where)

    return Trace("azure", options, spread.names, rows)


def _row(line: str, where: str) -> tuple[int, int, int]:
    """(nanoseconds since 1970, prompt tokens, output tokens)."""
    cells = [c.strip() for c in line.split(",")]
    if len(cells) != len(HEADER):
        raise BadRow("unreadable", f"{where}: {len(cells)} columns: expected {len(HEADER)}")
    stamp = _STAMP.fullmatch(cells[0])
    try:
        whole = datetime.fromisoformat(stamp[1]) if stamp else None
    except ValueError:
        whole = None
    if stamp is None or whole is None:
        raise BadRow(
            "unreadable",
            f"{where}: {HEADER[0]} = {cells[0]!r}: expected like 2023-11-16 18:17:03.9799600",
        )
    # In whole nanoseconds: a float of seconds since 1970 would lose the seventh digit.
    at_ns = int((whole - _EPOCH).total_seconds()) * 10**9 + int((stamp[2] or "0").ljust(9, "0"))
    return at_ns, tokens(cells[1], HEADER[1], where), tokens(cells[2], HEADER[2], where)
