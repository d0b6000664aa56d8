"""The wide table's columns, by group: all of a tenant's minute, and what follows from them.

Each is a value of a tenant (for sorting and thresholds) and a way to print it. Titles and units of
stored columns come from the vocabulary; draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from console.account import TenantNow
from console.formats import ABSENT, duration, percent, quantity
from console.panels import over, total
from telemetry.ask.rows_console import ConsoleMinutesRow
from telemetry.conventions import Kind
from telemetry.records import TenantMinute

# Columns of a tenant's minute that every picture has; the others are asked for when they are seen.
_PICTURED = frozenset(f.name for f in fields(ConsoleMinutesRow))

Value = Callable[[TenantNow], float | None]
Show = Callable[[float | None], str]

# Of the levels at a bucket's end, those that add up over engines; of others the most is told.
_LEVELS_ADD_UP = frozenset({"in_flight", "concurrency_in_use"})
_STORED = {f.name: f.metadata for f in fields(TenantMinute)}


@dataclass(frozen=True, slots=True)
class WideColumn:
    """One column: `key` is what settings and the command line call it."""

    key: str
    title: str
    width: int
    value: Value
    show: Show
    meaning: str


def byte_count(value: float | None) -> str:
    """Bytes in binary units: 0, 512B, 1.4K, 31M, 2.0G."""
    if value is None:
        return ABSENT
    for unit in ("B", "K", "M", "G"):
        if value < 1023.5 or unit == "G":
            return f"{value:.0f}{unit}" if unit == "B" or value >= 9.95 else f"{value:.1f}{unit}"
        value /= 1024
    return ABSENT


def _stored_value(name: str, kind: Kind) -> Value:
    def summed(t: TenantNow) -> float | None:
        known = total([getattr(m, name) for m in t.minutes])
        return known if known is not None or t.minutes or not t.covered_s else 0.0

    def averaged(t: TenantNow) -> float | None:
        """Over the whole of the time that was observed: idle minutes have no row and count as 0."""
        weighed = [
            (v, m.observed_seconds or m.bucket_s)
            for m in t.minutes
            if (v := getattr(m, name)) is not None
        ]
        if not weighed:
            return None if t.minutes or not t.covered_s else 0.0
        return over(sum(v * s for v, s in weighed), max(t.covered_s, max(s for _, s in weighed)))

    def highest(t: TenantNow) -> float | None:
        return max((v for m in t.minutes if (v := getattr(m, name)) is not None), default=None)

    def newest(t: TenantNow) -> float | None:
        last: dict[tuple[str, str], tuple[float, float]] = {}
        for m in t.minutes:
            v = getattr(m, name)
            if v is not None and m.bucket_start >= last.get((m.engine, m.tenant), (0.0, 0.0))[0]:
                last[m.engine, m.tenant] = (m.bucket_start, v)
        values = [v for _, v in last.values()]
        if not values:
            return None
        return sum(values) if name in _LEVELS_ADD_UP else max(values)

    return {Kind.SUM: summed, Kind.AVG: averaged, Kind.MAX: highest, Kind.LAST: newest}[kind]


def _stored(name: str, title: str, width: int = 0) -> WideColumn:
    known = _STORED[name]
    unit = known["unit"]
    show: Show = duration if unit == "s" else byte_count if unit == "By" else quantity
    value = _stored_value(name, known["kind"])
    return WideColumn(name, title, max(width, len(title), 5), value, show, known["meaning"])


def _made(key: str, title: str, value: Value, show: Show, meaning: str) -> WideColumn:
    return WideColumn(key, title, max(len(title), 5), value, show, meaning)


def _percentile(histogram: str, which: int) -> Value:
    def value(t: TenantNow) -> float | None:
        counts = [c for m in t.minutes if (c := getattr(m, histogram)) is not None]
        if not counts:
            return None
        import numpy as np  # only here: nobody waits for it before the table is open

        from telemetry.watch.frame import percentiles

        found = percentiles(np.sum(np.array(counts, dtype=np.float64), axis=0)[None, :])
        number = float(found[which][0])
        return None if number != number else number

    return value


def _latencies(histogram: str, name: str) -> tuple[WideColumn, ...]:
    said = (
        "how many",
        "half came within this",
        "99 in 100 came within this; under 20 the upper bound of the largest",
    )
    return tuple(
        _made(
            f"{histogram}_{key}",
            f"{name} {key.removesuffix('_s')}",
            _percentile(histogram, which),
            quantity if which == 0 else duration,
            f"{name}: {said[which]}",
        )
        for which, key in ((0, "n"), (1, "p50_s"), (2, "p99_s"))
    )


def _hit_rate(t: TenantNow) -> float | None:
    found, lookups = (
        total([getattr(m, c) for m in t.minutes]) for c in ("found_device", "adapter_lookups")
    )
    return over(found, lookups)


GROUPS: Mapping[str, tuple[WideColumn, ...]] = {
    "now": (
        _made("share", "share", lambda t: t.row.service_share, percent, "of the pool's service"),
        _made("fair_share", "fair", lambda t: t.row.fair_share, percent, "what its weight gives"),
        _made("kv_share", "KV", lambda t: t.row.kv_share, percent, "of the pool's bytes"),
        _made("running", "run", lambda t: t.row.running, quantity, "running now"),
        _made("waiting", "wait", lambda t: t.row.waiting, quantity, "waiting now"),
        _made("oldest", "oldest", lambda t: t.row.oldest_wait_s, duration, "its oldest wait"),
        _made("excess_s", "excess", lambda t: t.wait_s, duration, "waited beyond usual, 5 min"),
        _made("held_s", "held", lambda t: t.held_s, duration, "others' excess charged to it"),
        _made("ttft5_p99_s", "TTFT99", lambda t: t.ttft.p99_s, duration, "5 min, by histogram"),
        _made("miss_share", "miss", lambda t: t.missed_share, percent, "of those judged, 5 min"),
        _made("tokens_per_s", "tok/s", lambda t: t.row.output_tokens_per_s, quantity, "generated"),
        _made("refused", "429", lambda t: t.row.rejected, quantity, "refused, to try again"),
    ),
    "asked": (
        _stored("offered_requests", "offered"), _stored("offered_retries", "retries"),
        _stored("admitted_requests", "admitted"), _stored("rejected_rpm_requests", "-rpm"),
        _stored("rejected_tpm_requests", "-tpm"),
        _stored("rejected_concurrency_requests", "-conc"),
        _stored("rejected_queue_requests", "-queue"),
        _stored("rejected_impossible_requests", "-never"),
        _stored("offered_tokens", "off tok"), _stored("admitted_tokens", "adm tok"),
        _stored("rejected_rpm_tokens", "-rpm tok"), _stored("rejected_tpm_tokens", "-tpm tok"),
        _stored("rejected_concurrency_tokens", "-conc tok"),
        _stored("rejected_queue_tokens", "-queue tok"),
        _stored("rejected_impossible_tokens", "-never tok"),
    ),
    "got": (
        _stored("prompt_tokens", "prompt"), _stored("cached_tokens", "cached"),
        _stored("output_tokens", "output"), _stored("recomputed_tokens", "again"),
        _stored("service", "service"), _stored("engine_seconds", "engine"),
        _stored("prefill_cost_s", "prefill"),
    ),
    "waits": (
        _stored("wait_front_s", "front"), _stored("wait_slot_s", "slot"),
        _stored("wait_budget_s", "budget"), _stored("wait_kv_s", "kv"),
        _stored("wait_adapter_s", "adapter"), _stored("stall_s", "stall"),
        _stored("waiting_avg", "waiting"), _stored("waiting_max", "most"),
        _stored("oldest_wait_s", "oldest"), _stored("backlogged_s", "backlog"),
    ),
    "holds": (
        _stored("resident_seqs_avg", "run"), _stored("resident_seqs_max", "most run"),
        _stored("kv_bytes_avg", "KV"), _stored("kv_bytes_max", "most KV"),
        _stored("adapter_bytes_avg", "adapter"), _stored("adapter_bytes_max", "most adapter"),
        _stored("in_flight", "in flight"),
    ),
    "adapters": (
        _stored("adapter_lookups", "lookups"), _stored("found_device", "device"),
        _stored("found_loading", "loading"), _stored("found_host", "host"),
        _stored("found_disk", "disk"),
        _made("hit_rate", "hits", _hit_rate, percent, "lookups that found it on the device"),
        _stored("swap_in_bytes", "in"), _stored("swap_out_bytes", "out"),
        _stored("load_s", "loading s"), _stored("evictions_suffered", "evicted"),
        _stored("evictions_caused", "evicts"), _stored("preemptions_suffered", "preempted"),
        _stored("preemptions_caused", "preempts"),
    ),
    "slo": (
        _stored("slo_eligible", "judged"), _stored("slo_met", "met"),
        _stored("slo_missed", "missed"), _stored("slo_missed_ttft", "by TTFT"),
        _stored("slo_missed_tpot", "by TPOT"), _stored("slo_missed_gap", "by gap"),
        _stored("missed_waiting", "waiting"), _stored("goodput_tokens", "good tok"),
        _stored("finished", "finished"), _stored("aborted", "aborted"),
        _stored("failed", "failed"), _stored("timed_out", "timed out"),
    ),
    "latency": (
        *_latencies("ttft", "TTFT"), *_latencies("tpot", "TPOT"), *_latencies("max_gap", "gap"),
    ),
    "fairness": (
        _stored("weight", "weight"), _stored("vtc_counter", "counter"),
        _stored("vtc_gap", "gap"), _stored("vtc_gap_s", "ahead"), _stored("vtc_lifts", "lifts"),
    ),
    "quota": (
        _stored("quota_rpm_level", "rpm left"), _stored("quota_tpm_level", "tpm left"),
        _stored("concurrency_in_use", "in use"), _stored("policy_version", "policy"),
    ),
}  # fmt: skip

COLUMNS: Mapping[str, WideColumn] = {c.key: c for group in GROUPS.values() for c in group}
# Keys of columns whose values a picture has by itself.
PICTURED = frozenset(
    c.key
    for group, columns in GROUPS.items()
    for c in columns
    if group == "now" or c.key in _PICTURED or c.key.startswith("ttft_")
) | {"tenant"}
