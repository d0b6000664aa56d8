"""What a watched tenant's row holds, as data: names, units, kinds, and how each adds up. Pure.

Stored columns take unit and meaning from the vocabulary; what is worked out from them is declared
here. Touches no rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.conventions import Kind
from telemetry.tables import TABLES

SHARE, PERCENTILE, COUNT = "share", "percentile", "sum"
REJECTED = (
    "rejected_rpm_requests", "rejected_tpm_requests", "rejected_concurrency_requests",
    "rejected_queue_requests", "rejected_impossible_requests",
)  # fmt: skip
# Of the levels at a bucket's end, those that add up over tenants and pools; of others the most.
LEVELS_ADD_UP = frozenset({"in_flight"})
_DERIVED = {
    "share": (SHARE, "1", "service over all service of the window"),
    "fair_share": (
        SHARE, "1", "weight over the weights of the tenants backlogged in the bucket, averaged "
        "over the window; absent where it was not backlogged",
    ),
    "rejected_requests": (COUNT, "{request}", "refused, for whatever reason"),
    "ttft_n": (COUNT, "{request}", "first tokens in the window"),
    "ttft_p50_s": (PERCENTILE, "s", "half of the first tokens came within this, by histogram"),
    "ttft_p99_s": (
        PERCENTILE, "s", "99 in 100 first tokens came within this, by histogram; under 20 samples "
        "the upper bound of the largest",
    ),
}  # fmt: skip
_SHOWN = (
    "service", "share", "fair_share", "offered_requests", "offered_retries", "admitted_requests",
    "rejected_requests", "output_tokens", "prompt_tokens", "cached_tokens", "engine_seconds",
    "wait_front_s", "wait_slot_s", "wait_budget_s", "wait_kv_s", "wait_adapter_s", "stall_s",
    "waiting_avg", "oldest_wait_s", "in_flight", "resident_seqs_avg", "kv_bytes_avg",
    "adapter_bytes_avg", "slo_eligible", "slo_missed", "missed_waiting", "ttft_n", "ttft_p50_s",
    "ttft_p99_s", "preemptions_suffered", "preemptions_caused", "evictions_suffered",
    "evictions_caused", "vtc_gap",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WatchColumn:
    """One column of a frame. `kind`: sum, avg, max, last (as stored), share or percentile."""

    name: str
    unit: str
    kind: str
    meaning: str


_STORED = {c.name: c for c in TABLES["tenant_minute"].columns}


def _column(name: str) -> WatchColumn:
    if name in _DERIVED:
        kind, unit, meaning = _DERIVED[name]
        return WatchColumn(name, unit, kind, meaning)
    stored = _STORED[name]
    return WatchColumn(name, stored.unit, stored.kind.value, stored.meaning)


COLUMNS: tuple[WatchColumn, ...] = tuple(map(_column, _SHOWN))
AT: dict[str, int] = {c.name: i for i, c in enumerate(COLUMNS)}

# What is kept of a tenant's minute: the stored columns above, and what the derived ones need.
_KEPT = (*(n for n in _SHOWN if n in _STORED), *REJECTED, "weight", "backlogged_s")
SUMS = tuple(n for n in _KEPT if _STORED[n].kind is Kind.SUM)
AVERAGES = tuple(n for n in _KEPT if _STORED[n].kind is Kind.AVG)
MAXIMA = tuple(n for n in _KEPT if _STORED[n].kind is Kind.MAX)
LEVELS = tuple(n for n in _KEPT if _STORED[n].kind is Kind.LAST)
KEPT = (*SUMS, *AVERAGES, *MAXIMA, *LEVELS)
HISTOGRAM = "ttft"

# The strip of a pool: of its newest bucket, as the engine wrote it.
POOL_COLUMNS: tuple[WatchColumn, ...] = tuple(
    WatchColumn(c.name, c.unit, c.kind.value, c.meaning)
    for c in TABLES["engine_minute"].columns
    if c.name
    in (
        "running_avg", "waiting_avg", "slots", "pool_bytes", "kv_bytes_avg", "adapter_bytes_avg",
        "cached_bytes_avg", "free_bytes_avg", "last_token_age_s", "policy_version",
    )
)  # fmt: skip
