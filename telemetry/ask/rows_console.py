"""The rows a console's pictures are made of, as types. Declares only; runs nothing.

Instants are unix seconds. None is absent: not observed, or of an older sender.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ConsoleGlanceRow:
    """A row of `console_glance`. Without a tenant it is all others', `others` of them."""

    bucket_start: float
    bucket_s: float
    engine: str
    run_id: str
    pool: str
    tenant: str | None
    offered_requests: int | None
    admitted_requests: int | None
    rejected_rpm_requests: int | None
    rejected_tpm_requests: int | None
    rejected_concurrency_requests: int | None
    rejected_queue_requests: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    service: float | None
    engine_seconds: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    stall_s: float | None
    waiting_avg: float | None
    oldest_wait_s: float | None
    resident_seqs_avg: float | None
    kv_bytes_avg: float | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    preemptions_caused: float | None
    evictions_caused: float | None
    slo_eligible: int | None
    slo_missed: int | None
    weight: float | None
    backlogged_s: float | None
    observed_seconds: float | None
    others: int | None


@dataclass(frozen=True, slots=True)
class ConsoleMatrixRow:
    """A row of `console_matrix`."""

    bucket_start: float
    bucket_s: float | None
    engine: str
    run_id: str | None
    pool: str
    victim: str
    reason: str | None
    holder_kind: str | None
    holder: str
    charged_s: float | None


@dataclass(frozen=True, slots=True)
class ConsoleMinutesRow:
    """A row of `console_minutes`."""

    bucket_start: float
    bucket_s: float | None
    engine: str
    run_id: str | None
    pool: str
    tenant: str
    offered_requests: int | None
    offered_tokens: int | None
    offered_retries: int | None
    admitted_requests: int | None
    rejected_rpm_requests: int | None
    rejected_tpm_requests: int | None
    rejected_concurrency_requests: int | None
    rejected_queue_requests: int | None
    rejected_impossible_requests: int | None
    wait_front_s: float | None
    quota_rpm_level: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    recomputed_tokens: int | None
    service: float | None
    engine_seconds: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    stall_s: float | None
    waiting_avg: float | None
    oldest_wait_s: float | None
    resident_seqs_avg: float | None
    kv_bytes_avg: float | None
    adapter_bytes_avg: float | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    evictions_caused: float | None
    preemptions_caused: float | None
    slo_eligible: int | None
    slo_missed: int | None
    finished: int | None
    ttft: str | None
    weight: float | None
    backlogged_s: float | None
    observed_seconds: float | None
    policy_version: float | None


@dataclass(frozen=True, slots=True)
class ConsoleMinutesAllRow:
    """A row of `console_minutes_all`."""

    bucket_start: float
    bucket_s: float | None
    engine: str
    run_id: str | None
    pool: str
    tenant: str
    offered_requests: int | None
    offered_tokens: int | None
    offered_retries: int | None
    admitted_requests: int | None
    admitted_tokens: int | None
    rejected_rpm_requests: int | None
    rejected_rpm_tokens: int | None
    rejected_tpm_requests: int | None
    rejected_tpm_tokens: int | None
    rejected_concurrency_requests: int | None
    rejected_concurrency_tokens: int | None
    rejected_queue_requests: int | None
    rejected_queue_tokens: int | None
    rejected_impossible_requests: int | None
    rejected_impossible_tokens: int | None
    wait_front_s: float | None
    quota_rpm_level: float | None
    quota_tpm_level: float | None
    concurrency_in_use: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    recomputed_tokens: int | None
    service: float | None
    engine_seconds: float | None
    prefill_cost_s: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    stall_s: float | None
    waiting_avg: float | None
    waiting_max: float | None
    oldest_wait_s: float | None
    resident_seqs_avg: float | None
    resident_seqs_max: float | None
    kv_bytes_avg: float | None
    kv_bytes_max: float | None
    adapter_bytes_avg: float | None
    adapter_bytes_max: float | None
    adapter_lookups: int | None
    found_device: int | None
    found_loading: int | None
    found_host: int | None
    found_disk: int | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    load_s: float | None
    evictions_suffered: int | None
    evictions_caused: float | None
    preemptions_suffered: int | None
    preemptions_caused: float | None
    slo_eligible: int | None
    slo_met: int | None
    slo_missed: int | None
    slo_missed_ttft: int | None
    slo_missed_tpot: int | None
    slo_missed_gap: int | None
    missed_waiting: int | None
    goodput_tokens: int | None
    finished: int | None
    aborted: int | None
    failed: int | None
    timed_out: int | None
    in_flight: float | None
    ttft: str | None
    tpot: str | None
    max_gap: str | None
    vtc_counter: float | None
    vtc_gap: float | None
    vtc_gap_s: float | None
    vtc_lifts: int | None
    weight: float | None
    backlogged_s: float | None
    observed_seconds: float | None
    policy_version: float | None


CONSOLE_ROWS: dict[str, type[Any]] = {
    "console_glance": ConsoleGlanceRow,
    "console_matrix": ConsoleMatrixRow,
    "console_minutes": ConsoleMinutesRow,
    "console_minutes_all": ConsoleMinutesAllRow,
}
