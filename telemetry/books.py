"""Plain numbers of one open bucket: a tenant's, an adapter's, the engine's. Knows no time but
the instants handed in, and no rule about who is charged."""

from __future__ import annotations

from typing import Any

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.records import AdapterMinute, EngineMinute, TenantMinute

_BUCKETS = len(LATENCY_BOUNDS_S) + 1


class Level:
    """A quantity over time: its integral and its maximum in the bucket."""

    __slots__ = ("_area", "_start", "_then", "most", "value")

    def __init__(self, now: float, value: float = 0.0) -> None:
        self.value = value
        self.most = value
        self._area = 0.0
        self._start = self._then = now

    def set(self, value: float, now: float) -> None:
        if value == self.value:
            return
        self._area += self.value * (now - self._then)
        self._then = now
        self.value = value
        if value > self.most:
            self.most = value

    def add(self, by: float, now: float) -> None:
        self.set(self.value + by, now)

    def mean(self, end: float) -> float:
        """Time-weighted since the bucket's start; the value itself for an empty span."""
        span = end - self._start
        if span <= 0:
            return self.value
        return (self._area + self.value * (end - self._then)) / span

    def restart(self, now: float) -> None:
        self._area = 0.0
        self._start = self._then = now
        self.most = self.value


_TENANT_COUNTS = (
    "prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens", "service",
    "engine_seconds", "prefill_cost_s", "adapter_lookups", "found_device", "found_loading",
    "found_host", "found_disk", "swap_in_bytes", "swap_out_bytes", "load_s",
    "evictions_suffered", "evictions_caused", "preemptions_suffered", "preemptions_caused",
    "slo_eligible", "slo_met", "slo_missed", "slo_missed_ttft", "slo_missed_tpot",
    "slo_missed_gap", "missed_waiting", "goodput_tokens", "finished", "aborted", "failed",
    "timed_out", "vtc_lifts",
)  # fmt: skip
_REAL = frozenset(
    ("service", "engine_seconds", "prefill_cost_s", "load_s", "evictions_caused",
     "preemptions_caused")
)  # fmt: skip


def _number(name: str, value: float) -> Any:
    return value if name in _REAL else int(value)


class TenantBook:
    """One tenant's open bucket."""

    def __init__(self, now: float) -> None:
        self._counts: dict[str, float] = dict.fromkeys(_TENANT_COUNTS, 0)
        self.waiting = Level(now)
        self.backlogged = Level(now)
        self.resident = Level(now)
        self.kv_bytes = Level(now)
        self.adapter_bytes = Level(now)
        self.in_flight = 0
        self.vtc_counter: float | None = None
        self._born = now
        self._oldest = 0.0
        self.ttft = [0] * _BUCKETS
        self.tpot = [0] * _BUCKETS
        self.max_gap = [0] * _BUCKETS

    def add(self, column: str, amount: float = 1) -> None:
        self._counts[column] += amount

    def oldest(self, age_s: float) -> None:
        if age_s > self._oldest:
            self._oldest = age_s

    def wait_changed(self, by: int, now: float) -> None:
        self.waiting.add(by, now)
        self.backlogged.set(1.0 if self.waiting.value > 0 else 0.0, now)

    def idle(self) -> bool:
        """Nothing in flight: the next bucket needs no row unless something happens."""
        return not self.in_flight and not self.resident.value

    def restart(self, now: float) -> None:
        self._counts = dict.fromkeys(_TENANT_COUNTS, 0)
        self._oldest = 0.0
        self._born = now
        for level in (
            self.waiting, self.backlogged, self.resident, self.kv_bytes, self.adapter_bytes
        ):  # fmt: skip
            level.restart(now)
        for histogram in (self.ttft, self.tpot, self.max_gap):
            histogram[:] = [0] * _BUCKETS

    def row(
        self,
        keys: dict[str, Any],
        common: dict[str, Any],
        end: float,
        waits: dict[str, Any],
        weight: float,
    ) -> TenantMinute:
        # A tenant first seen inside the bucket was idle before: its averages cover the bucket.
        observed = common["observed_seconds"]
        part = (end - self._born) / observed if observed > 0 else 1.0
        return TenantMinute(
            **keys,
            **common,
            **waits,
            **{k: _number(k, v) for k, v in self._counts.items()},
            waiting_avg=self.waiting.mean(end) * part,
            waiting_max=self.waiting.most,
            oldest_wait_s=self._oldest,
            resident_seqs_avg=self.resident.mean(end) * part,
            resident_seqs_max=self.resident.most,
            kv_bytes_avg=self.kv_bytes.mean(end) * part,
            kv_bytes_max=self.kv_bytes.most,
            adapter_bytes_avg=self.adapter_bytes.mean(end) * part,
            adapter_bytes_max=self.adapter_bytes.most,
            in_flight=float(self.in_flight),
            ttft=tuple(self.ttft),
            tpot=tuple(self.tpot),
            max_gap=tuple(self.max_gap),
            vtc_counter=self.vtc_counter,
            weight=weight,
            backlogged_s=self.backlogged.mean(end) * (end - self._born),
        )


class AdapterBook:
    """One adapter's open bucket."""

    def __init__(self, now: float) -> None:
        self.lookups = self.loads = self.evictions = 0
        self.load_s = 0.0
        self.bytes = 0.0
        self.resident = Level(now)
        self.referenced = Level(now)
        self._born = now

    def idle(self) -> bool:
        return not self.resident.value

    def restart(self, now: float) -> None:
        self.lookups = self.loads = self.evictions = 0
        self.load_s = 0.0
        self._born = now
        self.resident.restart(now)
        self.referenced.restart(now)

    def row(self, keys: dict[str, Any], end: float) -> AdapterMinute:
        span = end - self._born
        return AdapterMinute(
            **keys,
            lookups=self.lookups,
            loads=self.loads,
            evictions=self.evictions,
            load_s=self.load_s,
            resident_s=self.resident.mean(end) * span,
            referenced_s=self.referenced.mean(end) * span,
            device_bytes=self.bytes if self.resident.most else 0.0,
        )


_ENGINE_COUNTS = ("steps", "prefill_tokens", "decode_tokens", "preemptions", "evictions", "loads")


def _whole(counts: dict[str, float]) -> dict[str, Any]:
    return {k: int(v) for k, v in counts.items()}


class EngineBook:
    """The engine's open bucket."""

    def __init__(self, now: float) -> None:
        self._counts: dict[str, float] = dict.fromkeys(_ENGINE_COUNTS, 0)
        self.busy_s = self.idle_s = self.predicted_s = self.capacity_s = self.base_cost_s = 0.0
        self.step_time = [0] * _BUCKETS
        self.running = Level(now)
        self.waiting = Level(now)
        self.kv_bytes = Level(now)
        self.adapter_bytes = Level(now)
        self.cached_bytes = Level(now)
        self.free_bytes = Level(now)
        self._age_most = 0.0

    def add(self, column: str, amount: float = 1) -> None:
        self._counts[column] += amount

    def token_age(self, age_s: float) -> None:
        if age_s > self._age_most:
            self._age_most = age_s

    def restart(self, now: float) -> None:
        self._counts = dict.fromkeys(_ENGINE_COUNTS, 0)
        self.busy_s = self.idle_s = self.predicted_s = self.capacity_s = self.base_cost_s = 0.0
        self.step_time[:] = [0] * _BUCKETS
        self._age_most = 0.0
        for level in (
            self.running, self.waiting, self.kv_bytes, self.adapter_bytes, self.cached_bytes,
            self.free_bytes,
        ):  # fmt: skip
            level.restart(now)

    def row(
        self,
        keys: dict[str, Any],
        common: dict[str, Any],
        end: float,
        slots: int,
        pool_bytes: int,
        age_s: float,
    ) -> EngineMinute:
        return EngineMinute(
            **keys,
            **common,
            **_whole(self._counts),
            busy_s=self.busy_s,
            idle_s=self.idle_s,
            predicted_s=self.predicted_s,
            capacity_s=self.capacity_s,
            base_cost_s=self.base_cost_s,
            step_time=tuple(self.step_time),
            running_avg=self.running.mean(end),
            running_max=self.running.most,
            waiting_avg=self.waiting.mean(end),
            waiting_max=self.waiting.most,
            slots=float(slots),
            pool_bytes=float(pool_bytes),
            kv_bytes_avg=self.kv_bytes.mean(end),
            adapter_bytes_avg=self.adapter_bytes.mean(end),
            cached_bytes_avg=self.cached_bytes.mean(end),
            free_bytes_avg=self.free_bytes.mean(end),
            last_token_age_s=age_s,
            last_token_age_max_s=self._age_most,
        )
