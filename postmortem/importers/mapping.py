"""Which column of a generic log is what: the targets there are, and `--map`. Reads no file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from postmortem.importers.logged import ImportProblem


@dataclass(frozen=True, slots=True)
class Target:
    """What a column may be mapped to. `usual` are names it is found under without `--map`."""

    name: str
    meaning: str
    usual: tuple[str, ...]


TARGETS: tuple[Target, ...] = (
    Target("arrived", "when the request came (ISO, or s, ms, us, ns)",
           ("arrived", "timestamp", "time", "ts", "start_time", "arrival_time", "created_at")),
    Target("request_id", "its name, unique in the log", ("request_id", "id", "trace_id")),
    Target("tenant", "whose it is",
           ("tenant", "tenant_id", "user_id", "user", "customer", "api_key_alias", "team_id")),
    Target("adapter", "the LoRA adapter or model it named", ("adapter", "lora", "model")),
    Target("prompt_tokens", "tokens of the prompt",
           ("prompt_tokens", "input_tokens", "input_length", "context_tokens")),
    Target("cached_tokens", "of them found in a cache", ("cached_tokens",)),
    Target("output_tokens", "tokens of the answer",
           ("output_tokens", "completion_tokens", "output_length", "generated_tokens")),
    Target("max_tokens", "most tokens asked for", ("max_tokens", "max_completion_tokens")),
    Target("ttft_s", "seconds to the first token", ("ttft_s", "time_to_first_token_s")),
    Target("ttft_ms", "the same in milliseconds", ("ttft_ms", "time_to_first_token_ms")),
    Target("latency_s", "seconds to the end", ("latency_s", "e2e_latency_s", "duration_s")),
    Target("latency_ms", "the same in milliseconds", ("latency_ms", "duration_ms")),
    Target("ended", "when it ended, in place of a latency", ("ended", "end_time", "ended_at")),
    Target("outcome", "finished, aborted, failed, timed_out, rejected, or an HTTP status",
           ("outcome", "status", "status_code")),
    Target("reject_reason", "rpm, tpm, concurrency, queue or impossible", ("reject_reason",)),
    Target("is_retry", "true where it was a retry", ("is_retry", "retry")),
)  # fmt: skip
NAMES = tuple(t.name for t in TARGETS)


def read_map(text: str | None) -> dict[str, str]:
    """`tenant=user_id,arrived=ts` as {target: column}. Raises ImportProblem for an unknown target,
    one given twice, and a piece that is no pair."""
    out: dict[str, str] = {}
    for piece in (text or "").split(","):
        if not piece.strip():
            continue
        target, equals, column = (p.strip() for p in piece.partition("="))
        if not equals or not target or not column:
            raise ImportProblem(f"--map {piece.strip()!r}: expected TARGET=COLUMN, with commas")
        if target not in NAMES:
            raise ImportProblem(
                f"--map {target!r} is no target{_near(target, NAMES)}; there are: "
                f"{', '.join(NAMES)}"
            )
        if target in out:
            raise ImportProblem(f"--map names {target!r} twice: {out[target]!r} and {column!r}")
        out[target] = column
    return out


def resolve(given: Mapping[str, str], columns: Collection[str], where: str) -> dict[str, str]:
    """{target: column} for a log with these columns: what was mapped, else the usual names.

    Raises ImportProblem where a mapped column is not there, or none holds the arrival.
    """
    for target, column in given.items():
        if column not in columns:
            raise ImportProblem(
                f"{where}: no column {column!r} (--map {target}={column})"
                f"{_near(column, columns)}; it has: {', '.join(list(columns)[:30])}"
            )
    taken = set(given.values())
    lower = {c.lower(): c for c in columns if c not in taken}
    out = dict(given)
    for known in TARGETS:
        if known.name in out or _other(known.name) in out:
            continue
        found = next((lower[u] for u in known.usual if u in lower), None)
        if found is not None:
            out[known.name] = found
    if "arrived" not in out:
        raise ImportProblem(
            f"{where}: no column says when a request came: name it with --map arrived=COLUMN; "
            f"it has: {', '.join(list(columns)[:30])}"
        )
    return out


def _other(target: str) -> str:
    """The target that says the same in the other unit."""
    pairs = {"ttft_s": "ttft_ms", "latency_s": "latency_ms"}
    pairs |= {b: a for a, b in pairs.items()}
    return pairs.get(target, "")


def _near(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def help_lines() -> str:
    """The targets, one a line, for --help."""
    return "\n".join(f"  {t.name:<14} {t.meaning}" for t in TARGETS)
