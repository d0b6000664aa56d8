"""Plain numbers of one open bucket: an adapter's and the engine's. Knows no time but the instants
handed in, and no rule about who is charged."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.ledger.tenants import BUCKETS
from telemetry.records import AdapterMinute, EngineMinute


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

    def area(self, end: float) -> float:
        """Its integral since the bucket's start."""
        return self._area + self.value * (end - self._then)

    def restart(self, now: float) -> None:
        self._area = 0.0
        self._start = self._then = now
        self.most = self.value


class AdapterBook:
    """One adapter's open bucket."""

    __slots__ = ("bytes", "evictions", "load_s", "loads", "lookups", "referenced", "resident")

    def __init__(self, now: float) -> None:
        self.lookups = self.loads = self.evictions = 0
        self.load_s = 0.0
        self.bytes = 0.0
        self.resident = Level(now)
        self.referenced = Level(now)

    def idle(self) -> bool:
        return not self.resident.value

    def restart(self, now: float) -> None:
        self.lookups = self.loads = self.evictions = 0
        self.load_s = 0.0
        self.resident.restart(now)
        self.referenced.restart(now)

    def numbers(self, end: float) -> tuple[int, int, int, float, float, float, float]:
        """As `adapter_row` takes them: a copy without a row's price."""
        return (
            self.lookups,
            self.loads,
            self.evictions,
            self.load_s,
            self.resident.area(end),
            self.referenced.area(end),
            self.bytes if self.resident.most else 0.0,
        )


def adapter_row(
    keys: dict[str, Any], numbers: tuple[int, int, int, float, float, float, float]
) -> AdapterMinute:
    lookups, loads, evictions, load_s, resident_s, referenced_s, size = numbers
    return AdapterMinute(
        **keys,
        lookups=lookups,
        loads=loads,
        evictions=evictions,
        load_s=load_s,
        resident_s=resident_s,
        referenced_s=referenced_s,
        device_bytes=size,
    )


_COUNTS = ("preemptions", "evictions", "loads")
_LEVELS = ("running", "waiting", "kv_bytes", "adapter_bytes", "cached_bytes", "free_bytes")


class EngineBook:
    """The engine's open bucket. Its levels are integrated as time passes: what lasted no time at
    all inside an instant is not a maximum."""

    def __init__(self) -> None:
        self.running = self.waiting = 0.0
        self.kv_bytes = self.adapter_bytes = self.cached_bytes = self.free_bytes = 0.0
        self.restart()

    def restart(self) -> None:
        self._counts: dict[str, float] = dict.fromkeys(_COUNTS, 0)
        self.steps = self.prefill_tokens = self.decode_tokens = 0
        self.busy_s = self.idle_s = self.predicted_s = self.capacity_s = self.base_cost_s = 0.0
        self._step_time = [0] * BUCKETS
        self._age_most = 0.0
        self._span = 0.0
        self._areas = [0.0] * len(_LEVELS)
        self._running_most = self._waiting_most = 0.0

    def add(self, column: str, amount: float = 1) -> None:
        self._counts[column] += amount

    def step(self, duration_s: float) -> None:
        """A step is over."""
        self.steps += 1
        self._step_time[bisect_left(LATENCY_BOUNDS_S, duration_s)] += 1

    def token_age(self, age_s: float) -> None:
        if age_s > self._age_most:
            self._age_most = age_s

    def passed(self, seconds: float) -> None:
        """The levels were as they are for so long."""
        self._span += seconds
        areas = self._areas
        areas[0] += self.running * seconds
        areas[1] += self.waiting * seconds
        areas[2] += self.kv_bytes * seconds
        areas[3] += self.adapter_bytes * seconds
        areas[4] += self.cached_bytes * seconds
        areas[5] += self.free_bytes * seconds
        if self.running > self._running_most:
            self._running_most = self.running
        if self.waiting > self._waiting_most:
            self._waiting_most = self.waiting

    def row(
        self,
        keys: dict[str, Any],
        common: dict[str, Any],
        slots: int,
        pool_bytes: int,
        age_s: float,
    ) -> EngineMinute:
        span = self._span
        values = [getattr(self, name) for name in _LEVELS]
        counts: dict[str, Any] = {k: int(v) for k, v in self._counts.items()}
        means = [a / span for a in self._areas] if span > 0 else values
        return EngineMinute(
            **keys,
            **common,
            **counts,
            steps=self.steps,
            prefill_tokens=self.prefill_tokens,
            decode_tokens=self.decode_tokens,
            busy_s=self.busy_s,
            idle_s=self.idle_s,
            predicted_s=self.predicted_s,
            capacity_s=self.capacity_s,
            base_cost_s=self.base_cost_s,
            step_time=tuple(self._step_time),
            running_avg=means[0],
            running_max=max(self._running_most, self.running),
            waiting_avg=means[1],
            waiting_max=max(self._waiting_most, self.waiting),
            slots=float(slots),
            pool_bytes=float(pool_bytes),
            kv_bytes_avg=means[2],
            adapter_bytes_avg=means[3],
            cached_bytes_avg=means[4],
            free_bytes_avg=means[5],
            last_token_age_s=age_s,
            last_token_age_max_s=self._age_most,
        )
