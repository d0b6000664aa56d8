"""The dense index of tenants and their open bucket, as arrays. Owns numbers; charges nobody.

A tenant has a small integer from its first event until a bucket is sealed in which it had nothing
in flight. Numbers lie in arrays by that index: an event is one write at a place, a bucket is
copied in a few numpy calls, whatever the number of tenants. `array.array` and a numpy view share
each memory, because single writes are several times faster through the former.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.ledger.vectors import Vector

BUCKETS = len(LATENCY_BOUNDS_S) + 1
COLUMNS = (
    "prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens",
    "engine_seconds", "prefill_cost_s", "adapter_lookups", "found_device", "found_loading",
    "found_host", "found_disk", "swap_in_bytes", "swap_out_bytes", "load_s",
    "evictions_suffered", "evictions_caused", "preemptions_suffered", "preemptions_caused",
    "slo_eligible", "slo_met", "slo_missed", "slo_missed_ttft", "slo_missed_tpot",
    "slo_missed_gap", "missed_waiting", "goodput_tokens", "finished", "aborted", "failed",
    "timed_out", "vtc_lifts",
)  # fmt: skip
COLUMN = {name: i for i, name in enumerate(COLUMNS)}
N_COLUMNS = len(COLUMNS)
TTFT, TPOT, MAX_GAP = 0, BUCKETS, 2 * BUCKETS  # where each histogram begins in a tenant's row
N_PLACES = 3 * BUCKETS
_FIRST_WIDTH = 64
_NO_BYTES = 1e-3  # shares of pages in equal parts leave dust; less than this is nothing


def dense(length: int) -> tuple[array[float], Vector]:
    """Zeros, as an array for single writes and a numpy view of the same memory."""
    plain = array("d", bytes(8 * length))
    return plain, np.frombuffer(plain)


def grown(plain: array[float], length: int) -> tuple[array[float], Vector]:
    """A longer copy: an array with a view cannot be lengthened in place."""
    longer, view = dense(length)
    view[: len(plain)] = np.frombuffer(plain)
    return longer, view


class Levels:
    """A quantity by tenant over time: its value, its maximum and its integral in the bucket.

    The integral up to `at` (seconds since the bucket began) is value*at - moment: a change costs
    no look at the time of the change before.
    """

    __slots__ = ("_moment", "_most", "moments", "most", "value", "values")

    def __init__(self, length: int) -> None:
        self.value, self.values = dense(length)
        self._most, self.most = dense(length)
        self._moment, self.moments = dense(length)

    def add(self, index: int, by: float, at: float) -> float:
        """`by` more from `at` on; returns the value."""
        value = self.value[index] + by
        self.value[index] = value
        self._moment[index] += by * at
        if value > self._most[index]:
            self._most[index] = value
        return value

    def area(self, at: float, count: int) -> Vector:
        """Integrals of the first `count` tenants from the bucket's start to `at`."""
        return np.maximum(self.values[:count] * at - self.moments[:count], 0.0)

    def restart(self) -> None:
        self.moments[:] = 0.0
        self.most[:] = self.values

    def clear(self, index: int) -> None:
        """What is left is dust."""
        self.value[index] = 0.0

    def grow(self, length: int) -> None:
        self.value, self.values = grown(self.value, length)
        self._most, self.most = grown(self._most, length)
        self._moment, self.moments = grown(self._moment, length)


@dataclass(frozen=True, slots=True)
class TenantNumbers:
    """A copy of the bucket, by index: `names[i]` None = nobody there. Areas are value*seconds."""

    names: list[str | None]
    counts: npt.NDArray[np.float64]  # (tenants, N_COLUMNS)
    places: npt.NDArray[np.float64]  # (tenants, N_PLACES): ttft, tpot, max_gap
    in_flight: Vector
    oldest_s: Vector
    backlogged_s: Vector
    waiting: tuple[Vector, Vector]  # area, most
    running: tuple[Vector, Vector]
    kv_bytes: tuple[Vector, Vector]
    adapter_bytes: tuple[Vector, Vector]


class Tenants:
    """Everything the ledger knows by tenant, but who waited behind whom."""

    def __init__(self) -> None:
        width = self.width = _FIRST_WIDTH
        self.at: dict[str, int] = {}
        self.names: list[str | None] = []
        self.since: list[OrderedDict[str, float]] = []  # waits under way: request -> its start
        self._free: list[int] = []
        self.count, self._counts = dense(width * N_COLUMNS)
        self.place, self._places = dense(width * N_PLACES)
        self.in_flight, self._in_flight = dense(width)
        self.oldest, self._oldest = dense(width)
        self.backlog, self._backlog = dense(width)  # moments of "something waits"
        self.waiting = Levels(width)
        self.running = Levels(width)
        self.kv = Levels(width)
        self.adapters = Levels(width)
        self.held, self.helds = dense(width)  # bytes of both kinds
        self.weight, self.weights = dense(width)
        self.engine_s = np.zeros(width)  # of decode rows
        self.output = np.zeros(width)

    def enter(self, tenant: str) -> int:
        """A place for a tenant that has none; when `full`, `grow` comes first."""
        if self._free:
            index = self._free.pop()
            self.names[index] = tenant
        else:
            index = len(self.names)
            self.names.append(tenant)
            self.since.append(OrderedDict())
        self.at[tenant] = index
        return index

    def full(self) -> bool:
        """Whether the next new tenant makes every vector longer."""
        return not self._free and len(self.names) >= self.width

    def grow(self) -> None:
        width = self.width = 2 * self.width
        self.count, self._counts = grown(self.count, width * N_COLUMNS)
        self.place, self._places = grown(self.place, width * N_PLACES)
        self.in_flight, self._in_flight = grown(self.in_flight, width)
        self.oldest, self._oldest = grown(self.oldest, width)
        self.backlog, self._backlog = grown(self.backlog, width)
        for levels in (self.waiting, self.running, self.kv, self.adapters):
            levels.grow(width)
        self.held, self.helds = grown(self.held, width)
        self.weight, self.weights = grown(self.weight, width)
        self.engine_s = np.concatenate([self.engine_s, np.zeros(width - len(self.engine_s))])
        self.output = np.concatenate([self.output, np.zeros(width - len(self.output))])

    def spread(self, column: str, amounts: Vector) -> None:
        """Add to one column of many tenants: amounts by index."""
        self._counts.reshape(-1, N_COLUMNS)[: len(amounts), COLUMN[column]] += amounts

    def above_fair_share(self, all_bytes: float) -> Vector | None:
        """Who holds more bytes than its weight's part among those who hold any, as shares of 1
        by index; None when nobody does."""
        n = len(self.names)
        held = self.helds[:n]
        weights = np.where(held > 0, self.weights[:n], 0.0)
        whole = weights.sum()
        if not whole:
            return None
        above = np.maximum(held - all_bytes * weights / whole, 0.0)
        total = above.sum()
        return above / total if total else None

    def numbers(self, at: float, now: float) -> TenantNumbers:
        """A copy as of now, `at` seconds into the bucket. Waits under way count as old as now."""
        n = len(self.names)
        counts = self._counts.reshape(-1, N_COLUMNS)[:n].copy()
        counts[:, COLUMN["output_tokens"]] += self.output[:n]
        counts[:, COLUMN["engine_seconds"]] += self.engine_s[:n]
        oldest = self._oldest[:n].copy()
        waiting = self.waiting.values[:n] > 0
        for i in np.flatnonzero(waiting).tolist():
            age = now - next(iter(self.since[i].values()))
            if age > oldest[i]:
                oldest[i] = age

        def level(levels: Levels) -> tuple[Vector, Vector]:
            return levels.area(at, n), levels.most[:n].copy()

        return TenantNumbers(
            names=self.names.copy(),
            counts=counts,
            places=self._places.reshape(-1, N_PLACES)[:n].copy(),
            in_flight=self._in_flight[:n].copy(),
            oldest_s=oldest,
            backlogged_s=np.maximum(waiting * at - self._backlog[:n], 0.0),
            waiting=level(self.waiting),
            running=level(self.running),
            kv_bytes=level(self.kv),
            adapter_bytes=level(self.adapters),
        )

    def restart(self, present: Vector) -> None:
        """A new bucket: counts and integrals from zero; who has nothing in flight loses its place.

        `present` is above zero for who has a part in the step under way, by index: its costs are
        still to be booked, even if its requests were given up meanwhile.
        """
        n = len(self.names)
        busy = self._in_flight[:n] + self.waiting.values[:n] + self.running.values[:n]
        busy += present[:n]
        busy += self.kv.values[:n] >= _NO_BYTES
        busy += self.adapters.values[:n] >= _NO_BYTES
        for i in np.flatnonzero(busy == 0).tolist():
            name = self.names[i]
            if name is not None:
                del self.at[name]
                self.names[i] = None
                self._free.append(i)
                self.kv.clear(i)
                self.adapters.clear(i)
                self.held[i] = 0.0
        self._free.sort(reverse=True)  # low places first: vectors stay short
        self._counts[:] = 0.0
        self._places[:] = 0.0
        self._oldest[:] = 0.0
        self.engine_s[:] = 0.0
        self.output[:] = 0.0
        self._backlog[:] = 0.0
        for levels in (self.waiting, self.running, self.kv, self.adapters):
            levels.restart()
