"""What happens to tenants and their requests, written down at the present instant.

Owns the dense index, counts and populations; lets no time pass, makes no row. The half of the
ledger that the scheduler and the pool call for each event: every method is some plain writes, and
takes no lock (the caller holds `Ledger.lock`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.ledger.books import AdapterBook, EngineBook
from telemetry.ledger.interference import SHARED, STALL, Interference
from telemetry.ledger.slo import SloBook
from telemetry.ledger.taken import Log
from telemetry.ledger.tenants import COLUMN, MAX_GAP, N_COLUMNS, N_PLACES, TPOT, TTFT, Tenants
from telemetry.ledger.vectors import Vector
from telemetry.ledger.views import Ended, Targets, Verdict
from telemetry.records import LogRow, RequestRecord

_ELIGIBLE, _MET, _GOODPUT = COLUMN["slo_eligible"], COLUMN["slo_met"], COLUMN["goodput_tokens"]
_DUST_BYTES = 1e-3  # left by shares in equal parts


class Events(ABC):
    """See the module's docstring; `Ledger` adds time, steps and the way out."""

    def __init__(
        self, now: float, targets: Mapping[str, Targets], weights: Mapping[str, float]
    ) -> None:
        self.now = now
        self._into = 0.0  # seconds from the observed start of the bucket to now
        self._tenants = t = Tenants()
        self._at = t.at
        self._weights = dict(weights)
        self._matrix = Interference(t.width, t.running.values, t.helds)
        self._slo = SloBook(targets, self.count)
        self._adapters: dict[str, AdapterBook] = {}
        self._engine = EngineBook()
        self._policy_version = 1
        self._last_progress_s = now
        self._populace = 0  # requests in the worker
        self._logs: list[Log] = []

    @abstractmethod
    def _until(self, now: float) -> None:
        """Let time pass up to `now`; an instant in the past is the present."""

    # -- the dense index

    def index(self, tenant: str) -> int:
        """The tenant's place in dense vectors: its own from the first event until a bucket is
        sealed in which it had nothing in flight."""
        i = self._at.get(tenant)
        return self._enter(tenant) if i is None else i

    def reweigh(self, tenant: str, weight: float) -> None:
        """Fair shares are by this weight from now on. Rows of what was taken keep theirs."""
        self._weights = {**self._weights, tenant: weight}
        i = self._at.get(tenant)
        if i is not None:
            self._tenants.weight[i] = weight

    def promise(self, tenant: str, targets: Targets) -> None:
        """What is promised to the tenant, for requests that come from now on."""
        self._slo.promise(tenant, targets)

    @property
    def width(self) -> int:
        """Vectors of this length have a place for every index. Doubles, never shrinks."""
        return self._tenants.width

    def _enter(self, tenant: str) -> int:
        t = self._tenants
        if t.full():
            t.grow()
            self._matrix.grow(t.width, t.running.values, t.helds)
        i = t.enter(tenant)
        t.weight[i] = self._weights.get(tenant, 1.0)
        self._matrix.used = len(t.names)
        return i

    # -- requests

    def joined(self, request_id: str, tenant: str, arrived_s: float, now: float) -> float:
        """A request reached the pool; it waits, unexamined, from now. Returns the instant used."""
        if now > self.now:
            self._until(now)
        i = self._at.get(tenant)
        if i is None:
            i = self._enter(tenant)
        self._tenants.in_flight[i] += 1.0
        if not self._populace:
            self._last_progress_s = self.now
        self._populace += 1
        self._slo.watch(request_id, tenant, arrived_s)
        self.wait_began(request_id, tenant, SHARED)
        return self.now

    def wait_began(self, request_id: str, tenant: str, group: str) -> None:
        """The request waits in the group from the present instant on."""
        i = self._at.get(tenant)
        if i is None:
            i = self._enter(tenant)
        t = self._tenants
        self._matrix.change(i, tenant, group, 1)
        since = t.since[i]
        if not since:
            t.backlog[i] += self._into
        since[request_id] = self.now
        t.waiting.add(i, 1.0, self._into)
        self._engine.waiting += 1.0

    def wait_moved(self, tenant: str, was: str, group: str) -> None:
        """One of the tenant's waiting requests stands in another group from now on."""
        if was == group:
            return
        i = self.index(tenant)
        self._matrix.change(i, tenant, was, -1)
        self._matrix.change(i, tenant, group, 1)

    def wait_ended(self, request_id: str, tenant: str, group: str) -> None:
        """The request waits no more. ValueError when it did not."""
        i = self.index(tenant)
        t = self._tenants
        since = t.since[i]
        began = since.pop(request_id, None)
        if began is None:
            raise ValueError(f"{request_id!r} of {tenant!r} ends a wait that never began")
        self._matrix.change(i, tenant, group, -1)
        age = self.now - began
        if age > t.oldest[i]:
            t.oldest[i] = age
        if not since:
            t.backlog[i] -= self._into
        t.waiting.add(i, -1.0, self._into)
        self._engine.waiting -= 1.0

    def first_scheduled(self, request_id: str) -> None:
        self._slo.scheduled(request_id)

    def first_token(self, request_id: str, tenant: str, ttft_s: float) -> None:
        self._slo.first_token(request_id)
        place = self.index(tenant) * N_PLACES + TTFT + bisect_left(LATENCY_BOUNDS_S, ttft_s)
        self._tenants.place[place] += 1.0

    def gap(self, request_id: str, gap_s: float) -> None:
        """The time since a sequence's last token, now; a target passed is booked at once."""
        self._slo.gap(request_id, gap_s)

    @property
    def smallest_gap_s(self) -> float | None:
        return self._slo.smallest_gap_s

    def ended(self, end: Ended, make: Callable[[Verdict], RequestRecord]) -> None:
        """Book the outcome. `make(verdict)` builds the request's row later, outside the lock: it
        must not look at anything that changes."""
        i = self.index(end.tenant)
        t = self._tenants
        verdict = self._slo.end(end)
        at = i * N_COLUMNS
        t.count[at + COLUMN[end.outcome]] += 1.0
        if verdict.met:
            t.count[at + _ELIGIBLE] += 1.0
            t.count[at + _MET] += 1.0
            t.count[at + _GOODPUT] += end.output_tokens
        t.in_flight[i] -= 1.0
        self._populace -= 1
        place = i * N_PLACES
        if end.tpot_s is not None:
            t.place[place + TPOT + bisect_left(LATENCY_BOUNDS_S, end.tpot_s)] += 1.0
        if end.max_gap_s is not None:
            t.place[place + MAX_GAP + bisect_left(LATENCY_BOUNDS_S, end.max_gap_s)] += 1.0
        self._logs.append((make, verdict))

    # -- who holds what, from the present instant on

    def runs(self, tenant: str, by: int) -> None:
        """`by` more of the tenant's sequences hold a slot."""
        i = self._at.get(tenant)
        if i is None:
            i = self._enter(tenant)
        if self._tenants.running.add(i, by, self._into) < 0:
            raise ValueError(f"{tenant!r} runs fewer than no sequences after {by:+d}")
        self._matrix.runs(i, by)
        self._engine.running += by

    def in_step(self, tenant: str, by: int) -> None:
        """`by` more of its sequences take part in every step until told otherwise."""
        i = self._at.get(tenant)
        if i is None:
            i = self._enter(tenant)
        self._matrix.change(i, tenant, STALL, by)

    def kv_bytes(self, tenant: str, by: float) -> None:
        """`by` more bytes of KV are held by the tenant."""
        i = self._at.get(tenant)
        if i is None:
            i = self._enter(tenant)
        t = self._tenants
        t.kv.add(i, by, self._into)
        self._matrix.held_changed = True
        held = t.held[i] + by
        t.held[i] = held if held > _DUST_BYTES else 0.0
        self._engine.kv_bytes += by

    def adapter_bytes(self, tenant: str, by: float) -> None:
        """`by` more bytes of adapters are held by the tenant; shared ones in equal parts."""
        i = self._at.get(tenant)
        if i is None:
            i = self._enter(tenant)
        t = self._tenants
        t.adapters.add(i, by, self._into)
        self._matrix.held_changed = True
        held = t.held[i] + by
        t.held[i] = held if held > _DUST_BYTES else 0.0
        self._engine.adapter_bytes += by

    # -- counts from other rooms

    def count(self, tenant: str, column: str, amount: float = 1) -> None:
        """Add to a plain counter of the tenant's open bucket (evictions, lookups, lifts...)."""
        i = self._at.get(tenant)
        if i is None:
            i = self._enter(tenant)
        self._tenants.count[i * N_COLUMNS + COLUMN[column]] += amount

    def spread(self, column: str, amounts: Vector) -> None:
        """Add to a plain counter of many tenants at once: amounts by index."""
        self._tenants.spread(column, amounts)

    def above_fair_share(self, pool_bytes: float) -> Vector | None:
        """Who holds more of these bytes than its weight's part among those who hold any, as shares
        of 1 by index; None when nobody does."""
        return self._tenants.above_fair_share(pool_bytes)

    def engine_count(self, column: str, amount: float = 1) -> None:
        self._engine.add(column, amount)

    def adapter(self, key: str) -> AdapterBook:
        book = self._adapters.get(key)
        if book is None:
            book = self._adapters[key] = AdapterBook(self.now)
        return book

    def policy_version(self, version: int) -> None:
        self._policy_version = version

    def log(self, row: LogRow) -> None:
        """Queue an event, policy or run row for export."""
        self._logs.append(row)

    @property
    def last_token_age_s(self) -> float:
        """Seconds since a token was computed or generated while there is work; 0 without work."""
        return self.now - self._last_progress_s if self._populace else 0.0
