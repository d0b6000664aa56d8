"""The request lists of the VTC paper's published runs (Sheng et al., OSDI 2024; Apache-2.0).

Reads only. One JSON object a line (a run each, the first is taken): result.responses holds
adapter_dir, which is the client, prompt_len, output_len and req_time, the arrival. A latency of
-1 means that the run rejected the request: it was offered all the same, so it is kept and counted.
The clients' adapters are left out: the published pool holds none of them at its 10,000 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.errors import WorkloadError
from engine.simulation.traces.trace import Account, BadRow, Row, Trace, TraceOptions, shown, tokens
from telemetry.otlp.read import LONGEST_NAME


def vtc(path: Path, options: TraceOptions) -> Trace:
    responses = _responses(path)
    clients = {r["adapter_dir"] for r in responses if isinstance(r.get("adapter_dir"), str)}

    def rows(account: Account) -> Iterator[Row]:
        account.note("the client is adapter_dir; the adapters themselves are left out")
        found: list[Row] = []
        rejected = 0
        for number, response in enumerate(responses, 1):
            account.read += 1
            try:
                found.append(_row(response, f"{path}: response {number}"))
            except BadRow as bad:
                account.bad(bad)
                continue
            rejected += response.get("first_token_latency") == -1
        if rejected:
            account.note(f"{rejected} were rejected in the published run; they are kept")
        # They stand in the order in which they ended in some runs.
        yield from sorted(found, key=lambda r: r.at_s)

    return Trace("vtc", options, tuple(sorted(clients)), rows)


def _responses(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as f:
        line = f.readline()
    try:
        responses = json.loads(line)["result"]["responses"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WorkloadError(
            f"{path}: line 1: expected a JSON object with result.responses"
        ) from None
    if not isinstance(responses, list) or any(not isinstance(r, dict) for r in responses):
        raise WorkloadError(f"{path}: line 1: result.responses: expected a list of objects")
    return responses


def _row(response: dict[str, Any], where: str) -> Row:
    client, at_s = response.get("adapter_dir"), response.get("req_time")
    if not isinstance(client, str) or not client or len(client) > LONGEST_NAME:
        raise BadRow("unreadable", f"{where}: adapter_dir = {shown(client)}: expected a name")
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < 1e12:
        raise BadRow("unreadable", f"{where}: req_time = {shown(at_s)}: expected seconds")
    prompt = tokens(response.get("prompt_len"), "prompt_len", where)
    ttft_s = _measured(response.get("first_token_latency"))
    return Row(
        float(at_s),
        client,
        prompt,
        tokens(response.get("output_len"), "output_len", where),
        where,
        ttft_s=ttft_s,
        latency_s=_measured(response.get("request_latency")),
        refused=response.get("first_token_latency") == -1,
    )


def _measured(value: object) -> float | None:
    """Seconds the run measured; -1 stands for a request that it rejected."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if known else None  # type: ignore[arg-type]
