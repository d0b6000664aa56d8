"""Small pools for the ledger's tests, what to read from its rows, and a twin of brute force."""

from __future__ import annotations

import numpy as np

from telemetry.ledger.interference import SHARED, adapter_group
from telemetry.ledger.ledger import Ledger, PoolFacts
from telemetry.ledger.views import Ended, Identity, StepView, TenantWork, Verdict
from telemetry.records import EngineMinute, InterferenceMinute, RequestRecord, TenantMinute
from tests.telemetry.brute_ledger import BruteLedger

IDENTITY = Identity("engine", "run", "pool")
BUCKET_S = 10.0


def new_ledger(**kwargs) -> Ledger:
    kwargs = {"wall_s": 0.0, "bucket_s": BUCKET_S, **kwargs}
    return Ledger(IDENTITY, PoolFacts(slots=8, pool_bytes=1 << 20), **kwargs)


def row_maker(end: Ended):
    """A row's maker, as the scheduler hands it over."""

    def make(verdict: Verdict) -> RequestRecord:
        return RequestRecord(
            engine="engine",
            run_id="run",
            pool="pool",
            request_id=end.request_id,
            tenant=end.tenant,
            outcome=end.outcome,
            arrived=0.0,
            slo_met=verdict.met,
            missed_ttft=verdict.ttft,
            missed_tpot=verdict.tpot,
            missed_gap=verdict.gap,
        )

    return make


def end(ledger: Ledger, request: str, tenant: str, outcome: str = "finished", **kwargs) -> None:
    fields = {"tpot_s": None, "max_gap_s": None, "output_tokens": 0, **kwargs}
    ended = Ended(request, tenant, outcome, **fields)
    ledger.ended(ended, row_maker(ended))


def by_index(ledger: Ledger, values: dict[str, float]) -> np.ndarray:
    vector = np.zeros(ledger.width)
    for tenant, value in values.items():
        vector[ledger.index(tenant)] += value
    return np.concatenate([vector, np.zeros(ledger.width - len(vector))])


def minutes(batch, kind=TenantMinute):
    return [r for r in batch.minutes if isinstance(r, kind)]


def tenant_minute(batch, name):
    return next(r for r in minutes(batch) if r.tenant == name)


def charged(batch, victim, reason):
    return {
        (r.holder_kind, r.holder): r.charged_s
        for r in minutes(batch, InterferenceMinute)
        if (r.victim, r.reason) == (victim, reason)
    }


def engine_minute(batch):
    return minutes(batch, EngineMinute)[0]


def hold_slots(ledger, **sequences):
    for tenant, n in sequences.items():
        for i in range(n):
            request = f"{tenant}-{i}"
            ledger.joined(request, tenant, ledger.now, ledger.now)
            ledger.wait_ended(request, tenant, SHARED)
            ledger.runs(tenant, 1)


class Twins:
    """Both ledgers; every method is one thing that happens, at the present instant."""

    def __init__(self, names: list[str]) -> None:
        self.ledger = new_ledger()
        self.brute = BruteLedger(BUCKET_S, names)
        self.batches = []
        self.now = 0.0
        self.made = 0
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.tenant_of: dict[str, str] = {}
        self.group_of: dict[str, str] = {}
        self.pages: dict[str, float] = {}
        self.blocks: dict[str, float] = {}  # of its adapter
        self.step = 0
        self.settled = True

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.ledger.tick(self.now)
        self.brute.advance(self.now)
        if self.ledger.has_sealed:
            self.batches += self.ledger.collect(self.now)

    def joins(self, tenant: str) -> None:
        self.made += 1
        request = f"r{self.made}"
        self.tenant_of[request], self.group_of[request] = tenant, SHARED
        self.waiting.append(request)
        self.ledger.joined(request, tenant, self.now, self.now)
        self.brute.wait(request, tenant, SHARED)

    def moves(self, nth: int, group: str) -> None:
        if self.waiting:
            request = self.waiting[nth % len(self.waiting)]
            self.ledger.wait_moved(self.tenant_of[request], self.group_of[request], group)
            self.brute.move(request, group)
            self.group_of[request] = group

    def starts(self, nth: int, size: float) -> None:
        """A waiting request is scheduled: a slot, pages, rows in the steps to come."""
        if self.waiting:
            request = self.waiting.pop(nth % len(self.waiting))
            tenant = self.tenant_of[request]
            self._unwait(request)
            self.running.append(request)
            self.pages[request], self.blocks[request] = size, size / 3
            self._holds(tenant, +1, size, size / 3)

    def grows(self, nth: int, size: float) -> None:
        if self.running:
            request = self.running[nth % len(self.running)]
            tenant = self.tenant_of[request]
            self.pages[request] += size
            self.ledger.kv_bytes(tenant, size)
            self.brute.kv[tenant] += size

    def preempted(self, nth: int, group: str) -> None:
        if self.running:
            request = self.running.pop(nth % len(self.running))
            tenant = self.tenant_of[request]
            self._holds(tenant, -1, -self.pages.pop(request), -self.blocks.pop(request))
            self.ledger.wait_began(request, tenant, group)
            self.brute.wait(request, tenant, group)
            self.group_of[request] = group
            self.waiting.append(request)

    def finishes(self, nth: int) -> None:
        if self.running:
            request = self.running.pop(nth % len(self.running))
            tenant = self.tenant_of[request]
            self._holds(tenant, -1, -self.pages.pop(request), -self.blocks.pop(request))
            end(self.ledger, request, tenant)
            self.brute.open.sums[tenant, "finished"] += 1

    def aborts(self, nth: int) -> None:
        if self.waiting:
            request = self.waiting.pop(nth % len(self.waiting))
            self._unwait(request)
            tenant = self.tenant_of[request]
            end(self.ledger, request, tenant, "aborted")
            self.brute.open.sums[tenant, "aborted"] += 1

    def begins(
        self,
        predicted_s: float | None,
        reason: str,
        decode: dict[str, float],
        prefill: dict[str, float],
        blame: dict[str, dict[str | None, float]],
        free: float,
        pinned: float,
    ) -> None:
        self.step += 1
        whole = sum(decode.values()) + sum(prefill.values())
        if predicted_s is None:
            decode, prefill = {}, {}
        elif whole:  # costs are parts of the prediction
            decode = {t: 0.8 * predicted_s * c / whole for t, c in decode.items()}
            prefill = {t: 0.8 * predicted_s * c / whole for t, c in prefill.items()}
        view = StepView(
            self.step,
            predicted_s=predicted_s,
            shared_reason=reason,
            decode_cost_s=by_index(self.ledger, decode),
            prefill_cost_s=prefill,
            cached_bytes=free / 2,
            free_bytes=free,
            pinned_bytes=pinned,
            blame=blame,
            decode_rows=len(decode),
        )
        self.ledger.begin(view, self.now)
        self.brute.begin(view, decode)
        self.settled = False

    def settles(self, decoded: dict[str, float], alone: dict[str, int]) -> None:
        if not self.settled:
            work = {t: TenantWork(output=n) for t, n in alone.items()}
            self.ledger.settle(work, by_index(self.ledger, decoded), self.now)
            both = {t: decoded.get(t, 0) + alone.get(t, 0) for t in {*decoded, *alone}}
            self.brute.settle(both)
            self.settled = True

    def takes(self) -> None:
        """A provisional delivery, which nobody looks at."""
        self.ledger.take(self.now).batches()

    def _unwait(self, request: str) -> None:
        self.ledger.wait_ended(request, self.tenant_of[request], self.group_of[request])
        self.brute.unwait(request)

    def _holds(self, tenant: str, rows: int, size: float, blocks: float) -> None:
        self.ledger.runs(tenant, rows)
        self.ledger.in_step(tenant, rows)
        self.ledger.kv_bytes(tenant, size)
        self.ledger.adapter_bytes(tenant, blocks)
        self.brute.running[tenant] += rows
        self.brute.rows[tenant] += rows
        self.brute.kv[tenant] += size
        self.brute.adapters[tenant] += blocks


GROUPS = (SHARED, "slot", "budget", "kv", "adapter", adapter_group("k1"), adapter_group("k2"))
