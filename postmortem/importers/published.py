"""Published traces and the serving benchmark's results, as logged requests. Reads only.

Azure, Mooncake and VTC are read by the simulator's own readers; this file only says what of their
rows a log would hold. vLLM's results are lists side by side, one object a run.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.errors import WorkloadError
from engine.simulation.traces.reader import read_trace
from engine.simulation.traces.trace import TraceOptions, shown
from postmortem.importers.logged import SHOWN, Account, BadLine, ImportProblem, Logged
from postmortem.importers.tabular import MOST_TOKENS


def trace_rows(
    path: Path, form: str, origin: float | None, account: Account, fallback: float
) -> Iterator[Logged]:
    """Rows of a trace. `origin` is the instant of the first row where the trace has none of its
    own (None: `fallback`). Raises ImportProblem."""
    try:
        # One made-up tenant: spreading rows over several would be an invention.
        trace = read_trace(path, form, TraceOptions(tenants=1, strict=not account.skip_bad))
        seen = 0
        for row in trace.rows():
            seen += 1
            begins = trace.origin_unix_s
            if begins is None:
                begins = fallback if origin is None else origin
                account.note(
                    f"the stamps count from 0: they were put after {_iso(begins)} "
                    "(--from says another)"
                )
            elif origin is not None:
                raise ImportProblem(
                    f"--from: {path} has instants of its own, its first is {_iso(begins)}"
                )
            account.read += 1
            yield Logged(
                where=row.where,
                arrived=begins + row.at_s,
                tenant=row.tenant if form == "vtc" else None,
                prompt_tokens=row.prompt_tokens,
                output_tokens=None if row.refused else row.output_tokens,
                max_tokens=row.output_tokens if form == "vtc" else None,
                ttft_s=None if row.refused else row.ttft_s,
                latency_s=None if row.refused else row.latency_s,
                outcome="rejected" if row.refused else None,
            )
    except WorkloadError as e:
        raise ImportProblem(str(e)) from None
    report = trace.report
    bad = report.read - seen
    account.read += bad
    account.bad += bad
    account.examples += list(report.examples)[: SHOWN - len(account.examples)]
    if form == "vtc":
        account.note("tenants are the clients of the run (adapter_dir)")


def vllm_rows(
    path: Path, origin: float | None, account: Account, fallback: float
) -> Iterator[Logged]:
    """Rows of `vllm bench serve --save-result --save-detailed`: one JSON object a run, a line each
    (or one object over many lines). Raises ImportProblem."""
    for where, run in _runs(path, account):
        lists = {k: run.get(k) for k in ("start_times", "input_lens", "output_lens", "ttfts")}
        lacking = [k for k, v in lists.items() if not isinstance(v, list)]
        if lacking:
            raise ImportProblem(
                f"{where}: no list {', '.join(lacking)}: benchmark with --save-result "
                "--save-detailed, by a version that writes start_times"
            )
        starts: list[Any] = run["start_times"]
        uneven = [k for k, v in lists.items() if v is not None and len(v) != len(starts)]
        if uneven:
            raise ImportProblem(
                f"{where}: {uneven[0]} has {len(run[uneven[0]])} entries, start_times "
                f"{len(starts)}: the lists belong side by side"
            )
        begins = _begins(run, where, origin, account, fallback)
        first = min((s for s in starts if _is_number(s)), default=0.0)
        for i in range(len(starts)):
            account.read += 1
            try:
                yield _vllm_row(run, i, begins, first, f"{where}: request {i + 1}")
            except BadLine as bad:
                account.skip(bad)


def _runs(path: Path, account: Account) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig") as f:
            head = f.readline()
            f.seek(0)
            if head.strip() and not _parses(head):
                yield str(path), _object(f.read(), str(path))
                return
            for number, line in enumerate(f, 1):
                if line.strip():
                    yield f"{path}:{number}", _object(line, f"{path}:{number}")
    except UnicodeDecodeError as e:
        raise ImportProblem(f"{path}: not UTF-8 text: {e.reason}") from None


def _parses(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        run = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ImportProblem(f"{where}: no JSON: {e}") from None
    if not isinstance(run, dict):
        raise ImportProblem(f"{where}: expected one object a run")
    return run


def _begins(
    run: dict[str, Any], where: str, origin: float | None, account: Account, fallback: float
) -> float:
    """When the run's first request was sent: the clock of start_times counts from anywhere."""
    if origin is not None:
        return origin
    date, duration = run.get("date"), run.get("duration")
    if isinstance(date, str):
        try:
            ended = datetime.strptime(date, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise ImportProblem(
                f"{where}: date = {date!r}: expected like 20261129-170000"
            ) from None
        account.note(
            "the run's `date` is when it ended, in a zone it does not name: read as UTC, minus its "
            "duration (--from says another)"
        )
        lasted_s = float(duration) if _is_number(duration) else 0.0  # type: ignore[arg-type]
        return ended - lasted_s
    account.note(f"the run has no date: it was put at {_iso(fallback)} (--from says another)")
    return fallback


def _vllm_row(run: dict[str, Any], i: int, begins: float, first: float, where: str) -> Logged:
    start, ttft = run["start_times"][i], run["ttfts"][i]
    if not _is_number(start):
        raise BadLine(f"{where}: start_times = {shown(start)}: expected seconds")
    lengths = run["input_lens"][i], run["output_lens"][i]
    for name, value in zip(("input_lens", "output_lens"), lengths, strict=True):
        if type(value) is not int or not 0 <= value <= MOST_TOKENS:
            raise BadLine(
                f"{where}: {name} = {shown(value)}: expected a whole number, 0 to {MOST_TOKENS:,}"
            )
    errors, itls = run.get("errors"), run.get("itls")
    error = errors[i] if isinstance(errors, list) and i < len(errors) else ""
    gaps = itls[i] if isinstance(itls, list) and i < len(itls) else None
    gaps = gaps if isinstance(gaps, list) and all(_is_number(g) for g in gaps) else None
    known = _is_number(ttft) and ttft >= 0 and not error
    return Logged(
        where=where,
        arrived=begins + float(start) - first,
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        ttft_s=float(ttft) if known else None,
        latency_s=float(ttft) + math.fsum(gaps) if known and gaps is not None else None,
        max_gap_s=max(gaps) if known and gaps else None,
        outcome="failed" if error else "finished",
    )


def _is_number(value: object) -> bool:
    # Not `isfinite`: it raises for a whole number that is past every float.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()
