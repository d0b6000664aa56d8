"""The rows of every named query, as types. Owns the declarations; runs nothing.

Instants are unix seconds; None is absent. `typed` turns an answer into rows of its query.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from telemetry.ask.reading import Result
from telemetry.ask.rows_alerts import ALERT_ROWS
from telemetry.ask.rows_console import CONSOLE_ROWS
from telemetry.ask.rows_pages import PAGE_ROWS
from telemetry.ask.rows_report import REPORT_ROWS
from telemetry.errors import QueryError


@dataclass(frozen=True, slots=True)
class EngineTime:
    """A row of `engine_time`."""

    period: str
    observed_s: float | None
    busy_s: float | None
    idle_s: float | None
    base_cost_s: float | None
    capacity_s: float | None
    predicted_s: float | None
    early_s: float | None
    provisional: bool | None


@dataclass(frozen=True, slots=True)
class ExtentRow:
    """A row of `extent`."""

    name: str
    rows: int
    first_instant: float
    last_instant: float


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A row of `faults`."""

    engine: str
    kind: str
    detail: str | None
    times: int
    last_at: float


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """A row of `foreign`."""

    engine: str
    metric: str
    kind: str
    unit: str
    points: int
    series: int
    last_at: float
    last_value: float | None
    observations: int | None


@dataclass(frozen=True, slots=True)
class HealthRow:
    """A row of `health`."""

    engine: str
    pool: str
    last_bucket_end: float | None
    last_sealed_end: float | None
    bucket_s: float
    buckets: int
    gaps: int
    gap_s: float | None
    longest_gap_s: float | None
    left_open: int


@dataclass(frozen=True, slots=True)
class HeldWhile:
    """A row of `held_while`."""

    reason: str
    holder_kind: str
    holder: str
    charged_s: float | None
    first_bucket_start: float | None
    last_bucket_end: float | None


@dataclass(frozen=True, slots=True)
class LostRow:
    """A row of `lost`."""

    engine: str
    run_id: str
    batches: int
    times: int
    last_at: float
    detail: str | None


@dataclass(frozen=True, slots=True)
class PoolMinutes:
    """A row of `pool_minutes`."""

    bucket_start: float
    bucket_s: float
    engine: str
    pool: str
    steps: int | None
    busy_s: float | None
    idle_s: float | None
    predicted_s: float | None
    capacity_s: float | None
    base_cost_s: float | None
    prefill_tokens: int | None
    decode_tokens: int | None
    running_avg: float | None
    running_max: float | None
    waiting_avg: float | None
    waiting_max: float | None
    slots: float | None
    pool_bytes: float | None
    kv_bytes_avg: float | None
    adapter_bytes_avg: float | None
    cached_bytes_avg: float | None
    free_bytes_avg: float | None
    last_token_age_s: float | None
    last_token_age_max_s: float | None
    preemptions: int | None
    evictions: int | None
    loads: int | None
    observed_seconds: float | None
    policy_version: float | None
    provisional: bool | None


@dataclass(frozen=True, slots=True)
class Reconcile:
    """A row of `reconcile`."""

    tenant: str
    offered: int
    rejected: int
    admitted: int
    offered_unaccounted: int
    outcomes: int
    in_flight_at_start: int
    in_flight_at_end: int
    admitted_unaccounted: int


@dataclass(frozen=True, slots=True)
class RequestFind:
    """A row of `request_find`."""

    engine: str
    run_id: str
    pool: str
    tenant: str
    arrived: float
    outcome: str


@dataclass(frozen=True, slots=True)
class RequestNear:
    """A row of `request_near`."""

    request_id: str
    arrived: float
    tenant: str


@dataclass(frozen=True, slots=True)
class RequestsPercentiles:
    """A row of `requests_percentiles`."""

    tenant: str
    n: int
    n_ttft: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_max_s: float | None
    tpot_p50_s: float | None
    n_gap: int
    max_gap_p99_s: float | None
    max_gap_max_s: float | None
    eligible: int
    met: int
    missed: int
    goodput_tokens: int
    output_tokens: int
    finished: int
    aborted: int
    failed: int
    timed_out: int
    rejected: int


@dataclass(frozen=True, slots=True)
class RowCounts:
    """`row_counts`: Rows of every table, in the whole store."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class SpanRow:
    """`span`: Start of the first bucket and end of the last one, as instants."""

    first_bucket_start: float | None
    last_bucket_end: float | None


@dataclass(frozen=True, slots=True)
class TenantSeries:
    """A row of `tenant_series`."""

    bucket_start: float
    bucket_s: float
    offered_requests: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    service: float | None
    engine_seconds: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    stall_s: float | None
    kv_bytes_avg: float | None
    slo_eligible: int | None
    slo_missed: int | None
    provisional: bool | None


@dataclass(frozen=True, slots=True)
class TenantsNow:
    """A row of `tenants_now`."""

    tenant: str
    offered_requests: int | None
    offered_retries: int | None
    admitted_requests: int | None
    rejected_requests: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    service: float | None
    engine_seconds: float | None
    wait_front_s: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    stall_s: float | None
    slo_eligible: int | None
    slo_met: int | None
    slo_missed: int | None
    missed_waiting: int | None
    goodput_tokens: int | None
    finished: int | None
    aborted: int | None
    failed: int | None
    timed_out: int | None
    waiting_max: float | None
    oldest_wait_s: float | None
    kv_bytes_max: float | None
    weight: float | None
    share: float | None
    waiting_avg: float | None
    resident_seqs_avg: float | None
    kv_bytes_avg: float | None
    adapter_bytes_avg: float | None
    observed_s: float | None
    provisional: bool | None


@dataclass(frozen=True, slots=True)
class TokenShare:
    """A row of `token_share`."""

    bucket_start: float
    bucket_s: float
    tenant: str
    service: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class TokenTotals:
    """`token_totals`: Tokens of each tenant over the buckets that start in [start, end)."""

    tenant: str
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    recomputed_tokens: int | None


@dataclass(frozen=True, slots=True)
class TopTenants:
    """A row of `top_tenants`."""

    tenant: str
    service: float | None
    share: float | None
    output_tokens: int | None
    wait_s: float | None
    stall_s: float | None
    slo_eligible: int | None
    slo_missed: int | None
    provisional: bool | None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A row of `usage`."""

    period: str
    tenant: str
    offered_requests: int
    admitted_requests: int
    finished: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    recomputed_tokens: int
    engine_seconds: float | None
    provisional: bool | None


ROWS: dict[str, type[Any]] = {
    "engine_time": EngineTime,
    "extent": ExtentRow,
    "faults": FaultRow,
    "foreign": ForeignRow,
    "health": HealthRow,
    "held_while": HeldWhile,
    "lost": LostRow,
    "pool_minutes": PoolMinutes,
    "reconcile": Reconcile,
    "request_find": RequestFind,
    "request_near": RequestNear,
    "requests_percentiles": RequestsPercentiles,
    "row_counts": RowCounts,
    "span": SpanRow,
    "tenant_series": TenantSeries,
    "tenants_now": TenantsNow,
    "token_share": TokenShare,
    "token_totals": TokenTotals,
    "top_tenants": TopTenants,
    "usage": UsageRow,
    "usage_of": UsageRow,
    **ALERT_ROWS,
    **CONSOLE_ROWS,
    **PAGE_ROWS,
    **REPORT_ROWS,
}


def columns_of(row: type[Any]) -> tuple[str, ...]:
    """The names of a row type, in the order of its columns."""
    if issubclass(row, tuple):
        named: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
        return named
    return tuple(f.name for f in fields(row))


def typed(name: str, result: Result) -> list[Any]:
    """The answer of the query `name` as its row type. Raises QueryError for a query that has none,
    and for an answer of another version."""
    row = ROWS.get(name)
    if row is None:
        raise QueryError(f"no rows are declared for {name!r}: there are {', '.join(ROWS)}")
    if result.columns != columns_of(row):
        raise QueryError(
            f"{name} came with columns {result.columns}: the two sides are of different versions"
        )
    return [row(*values) for values in result.rows]
