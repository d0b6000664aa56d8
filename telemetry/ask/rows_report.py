"""The rows of the queries that report and what-if ask, as types. Declares only; runs nothing.

Of three there come hundreds of thousands: those are tuples, made in a tenth of the time.
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
    """A row of `report_matrix`."""

    bucket_start: float
    bucket_s: float
    pool: str
    victim: str
    reason: str
    holder_kind: str
    holder: str
    charged_s: float | None


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
    "report_requests": ReportRequests,
    "report_worst": ReportWorst,
    "whatif_requests": WhatifRequests,
}
