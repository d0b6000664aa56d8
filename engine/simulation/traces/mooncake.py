"""Mooncake's conversation trace (Qin et al., FAST 2025; Apache-2.0). Reads only.

JSON lines: timestamp (ms), input_length, output_length, hash_ids: one id for each block of 512
tokens of the prompt; equal ids at the front are a shared prefix, and go into `Arrival.prefix`.
Rows name no tenant: a conversation (by the second block, the first is the same for all) goes to
one made-up tenant, so that prefixes are shared inside a tenant, where a cache may share them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.simulation.traces.trace import (
    Account,
    BadRow,
    Row,
    Spread,
    Trace,
    TraceOptions,
    shown,
    tokens,
)

BLOCK_TOKENS = 512


def mooncake(path: Path, options: TraceOptions) -> Trace:
    spread = Spread(options)

    def rows(account: Account) -> Iterator[Row]:
        account.note(spread.note + "; one for each conversation, by its second prefix block")
        account.note(f"prefix blocks are of {BLOCK_TOKENS} tokens")
        first_ms: float | None = None
        with path.open(encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                if not line.strip():
                    continue
                account.read += 1
                where = f"{path}: line {number}"
                try:
                    at_ms, prompt, output, blocks = _row(line, where)
                except BadRow as bad:
                    account.bad(bad)
                    continue
                first_ms = at_ms if first_ms is None else first_ms
                key = blocks[1] if len(blocks) > 1 else f"row {number}"
                at_s = (at_ms - first_ms) / 1000
                yield Row(at_s, spread.of(key), prompt, output, where, blocks, BLOCK_TOKENS)

    return Trace("mooncake", options, spread.names, rows)


def _row(line: str, where: str) -> tuple[float, int, int, tuple[int, ...]]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise BadRow("unreadable", f"{where}: no JSON: {e}") from None
    if not isinstance(row, dict):
        raise BadRow("unreadable", f"{where}: expected a JSON object")
    at_ms = row.get("timestamp")
    if isinstance(at_ms, bool) or not isinstance(at_ms, int | float) or not 0 <= at_ms < 1e15:
        raise BadRow("unreadable", f"{where}: timestamp = {shown(at_ms)}: expected milliseconds")
    blocks = row.get("hash_ids", [])
    if not isinstance(blocks, list) or any(type(b) is not int for b in blocks):
        raise BadRow("unreadable", f"{where}: hash_ids: expected a list of whole numbers")
    prompt = tokens(row.get("input_length"), "input_length", where)
    output = tokens(row.get("output_length"), "output_length", where)
    return float(at_ms), prompt, output, tuple(blocks)
