"""The rows of the queries that report and what-if ask, as types. Declares only; runs nothing.

Of four there come tens or hundreds of thousands: those are tuples, made in a tenth of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class ReportLives(NamedTuple):
    """A row of `report_lives`."""

    pool: str
    tenant: str
    arrived: float
    ended: float | None
    adapter: str | None


class ReportMatrix(NamedTuple):
    """A row of `report_matrix`: a cell, its names alone; or a charge, without them."""

    cell: int
    victim: str | None
    reason: str | None
    holder_kind: str | None
    holder: str | None
    bucket_start: float | None
    bucket_s: float | None
    charged_s: float | None


class ReportMinutes(NamedTuple):
    """A row of `report_minutes`: columns of `tenant_minute`."""

    bucket_start: float
    bucket_s: float
    engine: str
    run_id: str
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
    quota_tpm_level: float | None
    concurrency_in_use: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    recomputed_tokens: int | None
    service: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    stall_s: float | None
    kv_bytes_avg: float | None
    adapter_bytes_avg: float | None
    swap_in_bytes: int | None
    load_s: float | None
    evictions_caused: float | None
    preemptions_caused: float | None
    slo_eligible: int | None
    slo_missed: int | None
    goodput_tokens: int | None
    finished: int | None
    weight: float | None
    observed_seconds: float | None


@dataclass(frozen=True, slots=True)
class ReportRequests:
    """A row of `report_requests`."""

    span: str
    tenant: str
    requests: int
    let_in: int
    n: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_max_s: float | None
    max_gap_s: float | None
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ReportWorst:
    """A row of `report_worst`."""

    tenant: str
    engine: str
    run_id: str
    request_id: str
    arrived: float
    outcome: str
    ttft_s: float | None
    waited_s: float | None
    wait_front_s: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    prefill_s: float | None
    max_gap_s: float | None
    stall_s: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    preemptions: int | None


class WhatifRequests(NamedTuple):
    """A row of `whatif_requests`."""

    engine: str
    run_id: str
    pool: str
    tenant: str
    adapter: str | None
    outcome: str
    reject_reason: str | None
    is_retry: bool | None
    arrived: float
    first_token: float | None
    last_token: float | None
    ended: float | None
    prompt_tokens: int | None
    max_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    wait_front_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    max_gap_s: float | None


REPORT_ROWS: dict[str, type[Any]] = {
    "report_lives": ReportLives,
    "report_matrix": ReportMatrix,
    "report_minutes": ReportMinutes,
    "report_requests": ReportRequests,
    "report_worst": ReportWorst,
    "whatif_requests": WhatifRequests,
}
