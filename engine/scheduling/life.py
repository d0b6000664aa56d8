"""Turns a request that has ended into the row that remembers it. Pure."""

from __future__ import annotations

from engine.clock import ClockBase
from engine.scheduling.request import Outcome, Request
from telemetry.ledger.views import Identity, Verdict
from telemetry.records import RequestRecord


def tpot_s(request: Request) -> float | None:
    """(last - first token) / (output tokens - 1); None below two tokens."""
    first, last, count = request.first_token_s, request.last_token_s, request.produced
    if first is None or last is None or count < 2:
        return None
    return (last - first) / (count - 1)


def record(
    request: Request,
    outcome: Outcome,
    now: float,
    identity: Identity,
    base: ClockBase,
    verdict: Verdict,
) -> RequestRecord:
    """Milestones never reached are None, and so is what is counted from them. Made after the
    request has ended: nothing of it changes any more."""
    ask, waits = request.ask, request.waits
    trace = ask.trace

    def unix(at: float | None) -> float | None:
        return None if at is None else base.unix(at)

    first = request.first_token_s
    slot, budget, kv, adapter = waits.before
    again = waits.after if first is not None else (None, None, None, None)
    return RequestRecord(
        engine=identity.engine,
        run_id=identity.run_id,
        pool=identity.pool,
        request_id=ask.request_id,
        tenant=ask.tenant,
        adapter=ask.adapter_name,
        outcome=outcome.value,
        policy_version=request.policy_version,
        is_retry=ask.is_retry,
        arrived=base.unix(ask.arrived_s),
        admitted=base.unix(ask.admitted_s),
        first_scheduled=unix(request.first_scheduled_s),
        first_token=unix(first),
        last_token=unix(request.last_token_s),
        ended=base.unix(now),
        prompt_tokens=request.prompt_tokens,
        max_tokens=ask.max_tokens,
        cached_tokens=request.cached,
        output_tokens=request.produced,
        recomputed_tokens=request.recomputed,
        preemptions=request.preemptions,
        adapter_state=request.adapter_state,
        wait_front_s=request.joined_s - ask.arrived_s,  # and on the way from there
        wait_slot_s=slot,
        wait_budget_s=budget,
        wait_kv_s=kv,
        wait_adapter_s=adapter,
        prefill_s=waits.prefill_s if request.first_scheduled_s is not None else None,
        ttft_s=None if first is None else first - ask.arrived_s,
        rewait_slot_s=again[0],
        rewait_budget_s=again[1],
        rewait_kv_s=again[2],
        rewait_adapter_s=again[3],
        stall_s=request.stall_s if request.first_scheduled_s is not None else None,
        tpot_s=tpot_s(request),
        max_gap_s=request.max_gap_s,
        slo_met=verdict.met,
        missed_ttft=verdict.ttft,
        missed_tpot=verdict.tpot,
        missed_gap=verdict.gap,
        trace_id=None if trace is None else trace.trace_id,
        parent_span_id=None if trace is None else trace.parent_span_id,
        trace_sampled=None if trace is None else trace.sampled,
    )
