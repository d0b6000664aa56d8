"""The ledger: what every tenant asked for, got, and waited for behind whom, by the bucket.

Owns integrals over time and counts; never touches queues, tensors, sockets or files. The core
thread tells it what happens at plan and settle, a timer thread only lets time pass (`tick`), so
that a frozen step still accrues. Every public call happens at an instant under `lock`, and time
never goes back. Buckets are cut at multiples of `bucket_s` of UTC.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from telemetry.books import AdapterBook, EngineBook, TenantBook
from telemetry.conventions import (
    CAPACITY,
    POLICY,
    SELF,
    TENANT,
    Emitter,
    latency_bucket,
)
from telemetry.interference import SHARED, STALL, Holder, Interference, adapter_group
from telemetry.records import (
    Batch,
    InterferenceMinute,
    LogRow,
    MinuteRow,
    RequestRecord,
    StepSample,
)
from telemetry.sampling import StepSampler
from telemetry.slo import Booking, SloBook
from telemetry.slo import Verdict as SloVerdict
from telemetry.views import Identity, StepView, Targets, TenantWork

WP, WQ = 1.0, 2.0  # service = WP * prompt + WQ * output, unweighted


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """Sizes that do not change during a run."""

    slots: int
    pool_bytes: int


class Ledger:
    """One worker's ledger. See the module's docstring for who may call what."""

    def __init__(
        self,
        identity: Identity,
        facts: PoolFacts,
        *,
        wall_s: float,
        bucket_s: float,
        start_s: float = 0.0,
        targets: Mapping[str, Targets] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.identity = identity
        self.lock = threading.RLock()
        self._facts = facts
        self._wall_s = wall_s
        self._bucket_s = bucket_s
        self._weights = dict(weights or {})
        self._slo = SloBook(targets or {})
        self._matrix = Interference()
        self._now = start_s
        self._bucket_unix = self._floor(wall_s + start_s)
        self._observed_from = start_s
        self._view = StepView(0)
        self._view_since = start_s
        self._tenants: dict[str, TenantBook] = {}
        self._adapters: dict[str, AdapterBook] = {}
        self._engine = EngineBook(start_s)
        self._sampler = StepSampler(bucket_s)
        self._policy_version = 1
        self._last_progress_s = start_s
        self._populace = 0  # requests in the worker
        self._seq = 0
        self._sealed: list[tuple[MinuteRow, ...]] = []
        self._logs: deque[LogRow] = deque()
        self._hold(self._view)  # whoever waits before the first plan is charged too

    # -- time

    def tick(self, now: float) -> None:
        """Let time pass up to `now`; seals the buckets that end on the way."""
        with self.lock:
            self._advance(now)

    def _floor(self, unix_s: float) -> float:
        return unix_s // self._bucket_s * self._bucket_s

    def _advance(self, now: float) -> None:
        if now < self._now:
            now = self._now
        end = self._bucket_unix + self._bucket_s - self._wall_s
        while now >= end:
            self._integrate(end)
            self._seal(end)
            end = self._bucket_unix + self._bucket_s - self._wall_s
        self._integrate(now)

    def _integrate(self, until: float) -> None:
        start = self._now
        passed = until - start
        if passed <= 0:
            return
        predicted = self._view.predicted_s
        if predicted is None:
            table_s, capacity_s = passed, 0.0
            self._engine.idle_s += passed
        else:
            # The first predicted seconds of a step are its holders'; what comes after is lost
            # capacity. Taken in order of time, so that a step that is still frozen accrues.
            left = max(0.0, self._view_since + predicted - start)
            table_s = min(passed, left)
            capacity_s = passed - table_s
            self._engine.busy_s += passed
            self._engine.capacity_s += capacity_s
        self._matrix.advance(table_s, capacity_s)
        self._now = until
        for booking in self._slo.due(until):
            self._book(booking)
        if self._populace:
            self._engine.token_age(until - self._last_progress_s)

    # -- requests

    def joined(self, request_id: str, tenant: str, arrived_s: float, now: float) -> float:
        """A request reached the pool; it waits, unexamined, from now. Returns the instant used."""
        with self.lock:
            self._advance(now)
            book = self._tenant(tenant)
            book.in_flight += 1
            if not self._populace:
                self._last_progress_s = self._now
            self._populace += 1
            self._slo.watch(request_id, tenant, arrived_s)
            self.waits(tenant, SHARED, +1)
            return self._now

    def waits(self, tenant: str, group: str, by: int) -> None:
        """`by` more of the tenant's requests wait in the group, from the present instant on."""
        self._matrix.change(tenant, group, by)
        book = self._tenant(tenant)
        book.wait_changed(by, self._now)
        self._engine.waiting.add(by, self._now)

    def first_scheduled(self, request_id: str) -> None:
        self._slo.scheduled(request_id)

    def first_token(self, request_id: str, tenant: str, ttft_s: float) -> None:
        self._slo.first_token(request_id)
        self._tenant(tenant).ttft[latency_bucket(ttft_s)] += 1

    def gap(self, request_id: str, gap_s: float) -> None:
        """The time since a sequence's last token, now; a target passed is booked at once."""
        for booking in self._slo.gap(request_id, gap_s):
            self._book(booking)

    @property
    def smallest_gap_s(self) -> float | None:
        return self._slo.smallest_gap_s()

    def ended(self, record: RequestRecord) -> RequestRecord:
        """Book the outcome; returns the record with its SLO verdict, queued for export."""
        with self.lock:
            verdict, bookings = self._slo.end(
                record.request_id, record.outcome, record.tpot_s, record.output_tokens or 0
            )
            for booking in bookings:
                self._book(booking)
            book = self._tenant(record.tenant)
            book.add(record.outcome)
            book.in_flight -= 1
            self._populace -= 1
            if record.tpot_s is not None:
                book.tpot[latency_bucket(record.tpot_s)] += 1
            if record.max_gap_s is not None:
                book.max_gap[latency_bucket(record.max_gap_s)] += 1
            record = _judged(record, verdict)
            self._logs.append(record)
            return record

    # -- steps

    def begin(self, view: StepView, now: float) -> None:
        """From `now` until the next call the world is as `view` says."""
        with self.lock:
            self._advance(now)
            self._note_oldest()
            self._close_step()
            self._view, self._view_since = view, self._now
            if view.predicted_s is not None:
                self._engine.predicted_s += view.predicted_s
            self._hold(view)
            self._stand(view)

    def settle(self, work: Mapping[str, TenantWork], now: float) -> None:
        """Book the step's tokens and costs, when they are there."""
        with self.lock:
            self._advance(now)
            view = self._view
            made = 0
            for tenant, done in work.items():
                book = self._tenant(tenant)
                book.add("prompt_tokens", done.prompt)
                book.add("cached_tokens", done.cached)
                book.add("recomputed_tokens", done.recomputed)
                book.add("output_tokens", done.output)
                book.add("service", WP * done.prompt + WQ * done.output)
                made += done.output + done.prompt + done.recomputed
            for tenant, cost in view.prefill_cost_s.items():
                self._tenant(tenant).add("prefill_cost_s", cost)
                self._tenant(tenant).add("engine_seconds", cost)
            for tenant, cost in view.decode_cost_s.items():
                self._tenant(tenant).add("engine_seconds", cost)
            self._engine.add("prefill_tokens", view.prefill_tokens)
            self._engine.add("decode_tokens", view.decode_rows)
            if view.predicted_s is not None:
                billed = sum(view.prefill_cost_s.values()) + sum(view.decode_cost_s.values())
                self._engine.base_cost_s += max(0.0, view.predicted_s - billed)
            if made:
                self._last_progress_s = self._now
            # The step is over: what passes until the next plan stalls nobody.
            for tenant in view.in_step:
                count = self._matrix.count(tenant, STALL)
                if count:
                    self._matrix.change(tenant, STALL, -count)

    def _close_step(self) -> None:
        view = self._view
        if view.predicted_s is None:
            return
        duration = self._now - self._view_since
        self._engine.add("steps", 1)
        self._engine.step_time[latency_bucket(duration)] += 1
        sample = StepSample(
            engine=self.identity.engine,
            run_id=self.identity.run_id,
            pool=self.identity.pool,
            step=view.step,
            at=self._wall_s + self._view_since,
            duration_s=duration,
            predicted_s=view.predicted_s,
            prefill_tokens=view.prefill_tokens,
            decode_rows=view.decode_rows,
            context_tokens=view.context_tokens,
            adapters=view.adapters,
            cost_version=view.cost_version,
        )
        self._sampler.offer(sample)

    def _hold(self, view: StepView) -> None:
        """Who is charged for a second of waiting, by reason."""
        slot = _shares({(TENANT, t): float(n) for t, n in view.running.items()})
        costs: dict[Holder, float] = {}
        for part in (view.prefill_cost_s, view.decode_cost_s):
            for tenant, cost in part.items():
                costs[(TENANT, tenant)] = costs.get((TENANT, tenant), 0.0) + cost
        budget = _shares(costs) if costs else slot
        held: dict[Holder, float] = {}
        for part in (view.kv_bytes, view.adapter_bytes):
            for tenant, size in part.items():
                held[(TENANT, tenant)] = held.get((TENANT, tenant), 0.0) + size
        held[(CAPACITY, "")] = max(0.0, view.free_bytes + view.cached_bytes - view.pinned_bytes)
        held[(POLICY, "")] = view.pinned_bytes
        kv = _shares(held)
        by_reason = {"slot": slot, "budget": budget, "kv": kv}
        for reason, shares in by_reason.items():
            self._matrix.hold(reason, shares)
        shared = by_reason.get(view.shared_reason, budget)
        self._matrix.hold(SHARED, shared, reason=view.shared_reason)
        for key in list(self._matrix.awaited_adapters()):
            blame = view.blame.get(key)
            shares = kv if blame is None else _blamed(blame)
            self._matrix.hold(adapter_group(key), shares)
        whole = view.predicted_s or 0.0
        if whole > 0:
            stall = {t: c / whole for t, c in view.prefill_cost_s.items() if c}
        else:
            stall = {}
        self._matrix.hold_stall(stall)

    def _stand(self, view: StepView) -> None:
        """Time-weighted levels from now on: sequences, bytes, stalled rows."""
        now = self._now
        for tenant, book in self._tenants.items():
            book.resident.set(view.running.get(tenant, 0), now)
            book.kv_bytes.set(view.kv_bytes.get(tenant, 0), now)
            book.adapter_bytes.set(view.adapter_bytes.get(tenant, 0.0), now)
            change = view.in_step.get(tenant, 0) - self._matrix.count(tenant, STALL)
            if change:
                self._matrix.change(tenant, STALL, change)
        engine = self._engine
        engine.running.set(sum(view.running.values()), now)
        engine.kv_bytes.set(sum(view.kv_bytes.values()), now)
        engine.adapter_bytes.set(sum(view.adapter_bytes.values()), now)
        engine.cached_bytes.set(view.cached_bytes, now)
        engine.free_bytes.set(view.free_bytes, now)

    # -- counts from other rooms

    def count(self, tenant: str, column: str, amount: float = 1) -> None:
        """Add to a plain counter of the tenant's open bucket (evictions, lookups, lifts...)."""
        with self.lock:
            self._tenant(tenant).add(column, amount)

    def engine_count(self, column: str, amount: float = 1) -> None:
        with self.lock:
            self._engine.add(column, amount)

    def adapter(self, key: str) -> AdapterBook:
        book = self._adapters.get(key)
        if book is None:
            book = self._adapters[key] = AdapterBook(self._now)
        return book

    def counter(self, tenant: str, value: float) -> None:
        """The tenant's virtual token counter, now."""
        self._tenant(tenant).vtc_counter = value

    def policy_version(self, version: int) -> None:
        with self.lock:
            self._policy_version = version

    def log(self, row: LogRow) -> None:
        """Queue an event, policy or run row for export."""
        with self.lock:
            self._logs.append(row)

    @property
    def has_sealed(self) -> bool:
        """Whether a bucket has been sealed since the last `collect`."""
        return bool(self._sealed)

    @property
    def now(self) -> float:
        return self._now

    @property
    def last_token_age_s(self) -> float:
        """Seconds since a token was computed or generated while there is work; 0 without work."""
        return self._now - self._last_progress_s if self._populace else 0.0

    # -- the way out

    def collect(self, now: float) -> list[Batch]:
        """What is to be sent: buckets sealed since the last call, then the open one as it is."""
        with self.lock:
            self._advance(now)
            self._note_oldest()
            identity = self.identity
            logs = tuple(self._logs)
            self._logs.clear()
            closed, self._sealed = self._sealed, []
            open_rows = self._rows(self._now)
            batches = []
            for sealed, rows in [*((True, r) for r in closed), (False, open_rows)]:
                self._seq += 1
                batches.append(
                    Batch(
                        identity.engine,
                        identity.run_id,
                        identity.pool,
                        Emitter.WORKER,
                        sealed,
                        self._seq,
                        rows,
                        logs,
                    )
                )
                logs = ()
            return batches

    def _note_oldest(self) -> None:
        """Ages only grow while a view is in force: its end, and a bucket's, is early enough."""
        for tenant, since in self._view.oldest_since_s.items():
            self._tenant(tenant).oldest(self._now - since)

    def _seal(self, end: float) -> None:
        self._note_oldest()
        self._sealed.append(self._rows(end))
        self._logs.extend(self._sampler.take())
        self._matrix.drain()
        self._bucket_unix += self._bucket_s
        self._observed_from = end
        for tenant, book in list(self._tenants.items()):
            if book.idle():
                del self._tenants[tenant]
            else:
                book.restart(end)
        for key, adapter in list(self._adapters.items()):
            if adapter.idle():
                del self._adapters[key]
            else:
                adapter.restart(end)
        self._engine.restart(end)

    def _rows(self, end: float) -> tuple[MinuteRow, ...]:
        who = self.identity
        observed = end - self._observed_from
        keys: dict[str, Any] = {
            "bucket_start": self._bucket_unix,
            "bucket_s": self._bucket_s,
            "engine": who.engine,
            "run_id": who.run_id,
            "pool": who.pool,
        }
        common = {"observed_seconds": observed, "policy_version": float(self._policy_version)}
        waits = self._matrix.waits()
        charges = self._matrix.charges()
        stall: dict[str, float] = {}
        for c in charges:
            if c.reason == STALL:
                stall[c.victim] = stall.get(c.victim, 0.0) + c.seconds
        rows: list[MinuteRow] = [
            self._engine.row(
                keys, common, end, self._facts.slots, self._facts.pool_bytes, self.last_token_age_s
            )
        ]
        for tenant, book in self._tenants.items():
            wait = {
                f"wait_{reason}_s": waits.get((tenant, reason), 0.0)
                for reason in ("slot", "budget", "kv", "adapter")
            }
            wait["stall_s"] = stall.get(tenant, 0.0)
            weight = self._weights.get(tenant, 1.0)
            rows.append(book.row({**keys, "tenant": tenant}, common, end, wait, weight))
        for c in charges:
            rows.append(
                InterferenceMinute(
                    **keys,
                    victim=c.victim,
                    reason=c.reason,
                    holder_kind=c.kind,
                    holder=c.holder,
                    charged_s=c.seconds,
                )
            )
        for key, adapter in self._adapters.items():
            rows.append(adapter.row({**keys, "adapter": key}, end))
        return tuple(rows)

    # -- inside

    def _tenant(self, tenant: str) -> TenantBook:
        book = self._tenants.get(tenant)
        if book is None:
            book = self._tenants[tenant] = TenantBook(self._now)
        return book

    def _book(self, booking: Booking) -> None:
        self._tenant(booking.tenant).add(booking.column, booking.amount)


def _shares(weights: Mapping[Holder, float]) -> dict[Holder, float]:
    """Scaled to a sum of 1; nobody there = nobody to charge, so lost capacity."""
    total = sum(weights.values())
    if total <= 0:
        return {(CAPACITY, ""): 1.0}
    return {h: w / total for h, w in weights.items() if w}


def _blamed(blame: Mapping[str | None, float]) -> dict[Holder, float]:
    return {((SELF, "") if t is None else (TENANT, t)): share for t, share in blame.items()}


def _judged(record: RequestRecord, verdict: SloVerdict) -> RequestRecord:
    return replace(
        record,
        slo_met=verdict.met,
        missed_ttft=verdict.ttft,
        missed_tpot=verdict.tpot,
        missed_gap=verdict.gap,
    )
