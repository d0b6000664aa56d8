"""A request row as a span tree: the request, and what its time went to. Pure; sends nothing.

A row holds totals, not instants: the parts of a request are laid one after the other in one fixed
order (front, waits, prefill; then waits again, decode), so a part's length is true and its place,
but for the front's, is not: it is marked `tenantscope.layout = total`. Ids follow from the row's
identity: a row that comes twice makes the same spans. Only columns of the row enter a span.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from telemetry.conventions import WAIT_REASONS
from telemetry.instants import micros
from telemetry.outbound.trace_context import is_span_id, is_trace_id
from telemetry.records import RequestRecord

ROOT = "request"
TOTAL, CUT = "total", "cut"
# Instants are kept to the microsecond, durations are not: so far the parts of a whole row may
# reach beyond its end. The request then ends with them.
SLACK_NS = 10_000
_LONGEST_S = 1e7
_LAST_NS = (1 << 63) - 1 - SLACK_NS
_ERRORS = ("failed", "timed_out")

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Ids are lower-case hex, instants unix nanoseconds; the root's parent is the
    client's span or None."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]
    error: str | None = None

    @property
    def is_root(self) -> bool:
        return self.name == ROOT


def trace_id_of(row: RequestRecord) -> str:
    """The client's trace, or one of the request's own."""
    if row.trace_id is not None and is_trace_id(row.trace_id):
        return row.trace_id
    return _digest(row, "trace", 16)


def root_id_of(row: RequestRecord) -> str:
    """The request's span."""
    return _digest(row, ROOT, 8)


def spans_of(
    row: RequestRecord, base_model: str | None = None, kept: str | None = None
) -> tuple[Span, ...]:
    """The request's span and its children, in order of time. Never raises.

    `base_model` is the model of its run, where known; `kept` says why the trace is here. Children
    lie inside the root and beside each other. A part of no length has no span.
    """
    trace, root = trace_id_of(row), root_id_of(row)
    start_ns = _ns(row.arrived)
    end_ns = max(start_ns, _ns(_end(row)))
    limit_ns = min(end_ns + SLACK_NS, _LAST_NS)
    children: list[Span] = []
    at = start_ns
    for name, length_s, from_ns in _parts(row):
        at = max(at, min(from_ns, limit_ns))
        until = min(at + round(length_s * 1e9), limit_ns)
        if until <= at:
            continue
        attributes: dict[str, Value] = {}
        if at + round(length_s * 1e9) > until:
            attributes["tenantscope.layout"] = CUT
        elif name != "front":
            attributes["tenantscope.layout"] = TOTAL
        children.append(Span(name, trace, _digest(row, name, 8), root, at, until, attributes))
        at = until
    parent = row.parent_span_id if trace == row.trace_id else None
    whole = Span(
        ROOT,
        trace,
        root,
        parent if is_span_id(parent) else None,
        start_ns,
        max(end_ns, at),
        _attributes(row, base_model, kept),
        row.outcome if row.outcome in _ERRORS else None,
    )
    return (whole, *children)


def _parts(row: RequestRecord) -> Iterator[tuple[str, float, int]]:
    """(name, seconds, not before which nanosecond) of the row's parts, in their fixed order."""
    yield "front", _seconds(row.wait_front_s), 0
    for reason in WAIT_REASONS:
        yield f"wait.{reason}", _seconds(getattr(row, f"wait_{reason}_s")), 0
    yield "prefill", _seconds(row.prefill_s), 0
    if row.first_token is None:
        return
    first_ns = _ns(row.first_token)
    for reason in WAIT_REASONS:
        yield f"rewait.{reason}", _seconds(getattr(row, f"rewait_{reason}_s")), first_ns
    yield "decode", _decode_s(row) or 0.0, first_ns


def _decode_s(row: RequestRecord) -> float | None:
    """First token to outcome, without the waits in between; None when no token came."""
    if row.first_token is None:
        return None
    again = sum(_seconds(getattr(row, f"rewait_{r}_s")) for r in WAIT_REASONS)
    return _seconds(_end(row) - row.first_token - again)


def _end(row: RequestRecord) -> float:
    known = (row.ended, row.last_token, row.first_token, row.arrived)
    return next(at for at in known if at is not None)


def _attributes(row: RequestRecord, base_model: str | None, kept: str | None) -> dict[str, Value]:
    waits = [getattr(row, f"wait_{r}_s") for r in WAIT_REASONS]
    given: dict[str, Value | None] = {
        "gen_ai.request.model": row.adapter or base_model,
        "gen_ai.request.max_tokens": row.max_tokens,
        "gen_ai.usage.input_tokens": row.prompt_tokens,
        "gen_ai.usage.output_tokens": row.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": row.cached_tokens,
        "gen_ai.latency.time_in_queue": (
            None if all(w is None for w in waits) else sum(map(_seconds, waits))
        ),
        "gen_ai.latency.time_to_first_token": row.ttft_s,
        "gen_ai.latency.e2e": None if row.ended is None else _seconds(row.ended - row.arrived),
        "gen_ai.latency.time_in_model_prefill": row.prefill_s,
        "gen_ai.latency.time_in_model_decode": _decode_s(row),
        "error.type": row.outcome if row.outcome in _ERRORS else None,
        "tenantscope.engine": row.engine,
        "tenantscope.run_id": row.run_id,
        "tenantscope.request_id": row.request_id,
        "tenantscope.tenant": row.tenant,
        "tenantscope.adapter": row.adapter,
        "tenantscope.adapter_state": row.adapter_state,
        "tenantscope.outcome": row.outcome,
        "tenantscope.reject_reason": row.reject_reason,
        "tenantscope.is_retry": row.is_retry,
        "tenantscope.policy_version": row.policy_version,
        "tenantscope.slo_met": row.slo_met,
        "tenantscope.preemptions": row.preemptions,
        "tenantscope.recomputed_tokens": row.recomputed_tokens,
        "tenantscope.stall": row.stall_s,
        "tenantscope.max_gap": row.max_gap_s,
        "tenantscope.wait.front": row.wait_front_s,
        "tenantscope.kept": kept,
    }
    for reason, wait in zip(WAIT_REASONS, waits, strict=True):
        given[f"tenantscope.wait.{reason}"] = wait
        given[f"tenantscope.rewait.{reason}"] = getattr(row, f"rewait_{reason}_s")
    return {name: value for name, value in given.items() if value is not None}


def _seconds(value: float | None) -> float:
    """A length that can be drawn: what is absent, below zero or no number has none."""
    if value is None or not math.isfinite(value):
        return 0.0
    return min(max(value, 0.0), _LONGEST_S)


def _ns(at: float) -> int:
    """Unix nanoseconds, to the microsecond as the store has them."""
    if not math.isfinite(at):
        return 0
    return min(max(micros(at) * 1000, 0), _LAST_NS)


def _digest(row: RequestRecord, what: str, size: int) -> str:
    """Hex of `size` bytes from the row's identity, never all zero. Framed: no two meet by where
    one word ends."""
    framed = b"".join(
        len(part).to_bytes(4, "big") + part
        for part in (
            word.encode("utf-8", "surrogatepass")
            for word in (row.engine, row.run_id, row.request_id, what)
        )
    )
    digest = blake2b(framed, digest_size=size, person=b"tenantscope.span").digest()
    return (digest if any(digest) else b"\1" * size).hex()
