"""The rows of the console's pages, as types. Declares only; runs nothing.

Instants are unix seconds. None is absent: not observed, or of an older sender.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AdaptersFoundRow:
    """A row of `adapters_found`."""

    lookups: int | None
    device: int | None
    loading: int | None
    host: int | None
    disk: int | None
    in_bytes: int | None
    out_bytes: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class AdaptersMapRow:
    """A row of `adapters_map`."""

    bucket_start: float | None
    bucket_s: float | None
    adapter: str | None
    resident_s: float | None
    loads: int | None


@dataclass(frozen=True, slots=True)
class AdaptersPageRow:
    """A row of `adapters_page`."""

    adapter: str
    name: str
    rank: int | None
    bytes: int | None
    device_bytes: float | None
    lookups: int | None
    loads: int | None
    evictions: int | None
    load_s: float | None
    resident_s: float | None
    referenced_s: float | None
    reloads: int | None
    tenants: int | None
    used_by: str | None
    last_use: float | None
    now_s: float | None
    loading_s: float | None
    newest_s: float | None
    adapters: int | None


@dataclass(frozen=True, slots=True)
class EventsPageRow:
    """A row of `events_page`."""

    at_s: float | None
    kind: str
    tenant: str | None
    adapter: str | None
    request_id: str | None
    cause_tenant: str | None
    detail: str | None
    value: float | None
    engine: str
    run_id: str | None
    event_id: str | None
    matching: int | None


@dataclass(frozen=True, slots=True)
class HeatMinutesRow:
    """A row of `heat_minutes`."""

    bucket_start: float
    bucket_s: float | None
    tenant: str | None
    tenants: int | None
    part: float | None
    whole: float | None
    ttft: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class PolicyTenantsRow:
    """A row of `policy_tenants`."""

    tenant: str | None
    weight: float | None
    tier: int | None
    rpm: int | None
    tpm: int | None
    concurrency: int | None
    at_start: bool | None
    start_weight: float | None
    start_tier: int | None
    start_rpm: int | None
    start_tpm: int | None
    start_concurrency: int | None
    own_pool: str | None
    since_version: int | None
    oldest: int | None
    since_at: float | None
    who: str | None
    why: str | None
    differs: bool | None
    matching: int | None


@dataclass(frozen=True, slots=True)
class PolicyVersionsRow:
    """A row of `policy_versions`."""

    engine: str | None
    run_id: str | None
    version: int | None
    at_s: float | None
    policy: str | None
    previous: str | None
    who: str | None
    why: str | None
    held: str | None
    was: str | None
    said: str | None
    matching: int | None


@dataclass(frozen=True, slots=True)
class RequestsPageRow:
    """A row of `requests_page`."""

    request_id: str | None
    tenant: str | None
    adapter: str | None
    adapter_state: str | None
    outcome: str | None
    reject_reason: str | None
    is_retry: bool | None
    arrived: float | None
    ended: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    max_tokens: int | None
    output_tokens: int | None
    preemptions: int | None
    wait_front_s: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    prefill_s: float | None
    ttft_s: float | None
    rewait_s: float | None
    after_first_s: float | None
    life_s: float | None
    slo_met: bool | None
    missed_ttft: bool | None
    missed_tpot: bool | None
    missed_gap: bool | None
    matching: int | None


@dataclass(frozen=True, slots=True)
class TenantChargedRow:
    """A row of `tenant_charged`."""

    side: str | None
    kind: str
    name: str
    folded: int | None
    slot_s: float | None
    budget_s: float | None
    kv_s: float | None
    adapter_s: float | None
    stall_s: float | None
    charged_s: float | None


@dataclass(frozen=True, slots=True)
class TenantHistoryRow:
    """A row of `tenant_history`."""

    bucket_start: float
    bucket_s: float | None
    observed_s: float | None
    pool_bytes: float | None
    provisional: bool | None
    there: bool | None
    pool_service: float | None
    fair_share: float | None
    service: float | None
    wait_front_s: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_kv_s: float | None
    wait_adapter_s: float | None
    stall_s: float | None
    kv_bytes_avg: float | None
    adapter_lookups: int | None
    found_device: int | None
    found_loading: int | None
    found_host: int | None
    found_disk: int | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    evictions_suffered: int | None
    preemptions_suffered: int | None
    slo_eligible: int | None
    slo_missed: int | None
    slo_missed_ttft: int | None
    slo_missed_tpot: int | None
    slo_missed_gap: int | None
    missed_waiting: int | None
    offered_requests: int | None
    admitted_requests: int | None
    rejected_rpm_requests: int | None
    rejected_tpm_requests: int | None
    rejected_concurrency_requests: int | None
    rejected_queue_requests: int | None
    rejected_impossible_requests: int | None
    quota_rpm_level: float | None
    quota_tpm_level: float | None
    concurrency_in_use: float | None


@dataclass(frozen=True, slots=True)
class TenantTtftRow:
    """A row of `tenant_ttft`."""

    state: str | None
    octave: int | None
    requests: int | None
    n: int | None
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


PAGE_ROWS: dict[str, type[Any]] = {
    "adapters_found": AdaptersFoundRow,
    "adapters_map": AdaptersMapRow,
    "adapters_page": AdaptersPageRow,
    "events_page": EventsPageRow,
    "heat_minutes": HeatMinutesRow,
    "policy_tenants": PolicyTenantsRow,
    "policy_versions": PolicyVersionsRow,
    "requests_page": RequestsPageRow,
    "tenant_charged": TenantChargedRow,
    "tenant_history": TenantHistoryRow,
    "tenant_ttft": TenantTtftRow,
}
