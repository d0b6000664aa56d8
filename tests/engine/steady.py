"""A long mixed load on the real core, and the totals of everybody who counts.

Owns the client's side (who asks what, who gives up when) and the adding up of rows; decides
nothing of what must hold. Keeps nothing that grows with the time it runs.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import ClassVar

import torch

from engine.clock import SystemClock
from engine.config import Limits, Settings, Slo, Tenant
from engine.core import EngineCore
from engine.core_values import StepResult
from engine.costs import CostModel
from engine.library import AdapterLibrary, known_as
from engine.loading import LoaderThread
from engine.memory.pool import PagePool
from engine.memory.residency import Place
from engine.model.loaders import synthetic_config, synthetic_model
from engine.model.made_adapters import make_adapter
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import StepOutcome, StepPlan
from engine.scheduling.request import Ask
from engine.scheduling.scheduler import Scheduler
from telemetry.ledger.views import Identity
from telemetry.records import Batch, EngineMinute, RequestRecord, TenantMinute

SHAPE = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff": 128}
RANKS = (1, 3, 4, 8, 12, 16, 24, 32)
ADAPTERS = 24
PAGES = 230  # the adapters alone need two to three times as many
TENANTS = tuple(f"t{i}" for i in range(6))
IN_FLIGHT = 48
GIVES_UP = 0.15  # of the requests: before, at or after its first token
ENOUGH = 0.05  # of the requests: what came so far is a whole answer
STUCK_S = 60.0


class CountingRunner(TorchRunner):
    """Counts what it computes."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.did: Counter[str] = Counter()

    def execute(self, plan: StepPlan) -> StepOutcome:
        outcome = super().execute(plan)
        did = self.did
        did["steps"] += 1
        did["failed"] += len(outcome.failed)
        did["output_tokens"] += len(outcome.tokens or ())
        for s in plan.segments:
            did["prefill_tokens" if s.is_prefill else "decode_tokens"] += len(s.tokens)
            # The newest token of one that comes back is computed with those it computes again.
            did["returns"] += s.is_prefill and s.samples and s.sampled > 0
        return outcome

    def copy_in(self, adapter, pages) -> None:
        super().copy_in(adapter, pages)
        self.did["loads"] += 1

    def drop(self, key: str) -> None:
        super().drop(key)
        self.did["evictions"] += 1

    def resident(self) -> set[str]:
        with self._resident_lock:
            return set(self._resident)


class Rows:
    """Sums of the ledger's rows. A sealed row replaces what was said of an open bucket."""

    COLUMNS: ClassVar = {
        TenantMinute: ("prompt_tokens", "recomputed_tokens", "output_tokens", "finished",
                       "aborted", "failed", "timed_out", "preemptions_suffered", "cached_tokens"),
        EngineMinute: ("steps", "prefill_tokens", "decode_tokens", "loads", "evictions",
                       "preemptions"),
    }  # fmt: skip

    def __init__(self) -> None:
        self.tenants: Counter[str] = Counter()
        self.engine: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self._open: list = []

    def emit(self, batch: Batch) -> None:
        """Called by one thread at a time."""
        if batch.minutes and batch.sealed:
            self._open = []
            self._add(batch.minutes)
        elif batch.minutes:
            self._open = list(batch.minutes)
        for row in batch.logs:
            if isinstance(row, RequestRecord):
                self.requests[row.outcome] += 1
                self.requests["output_tokens"] += row.output_tokens or 0
                self.requests["recomputed_tokens"] += row.recomputed_tokens or 0
                self.requests["preemptions"] += row.preemptions or 0

    def close(self) -> None:
        """Nothing more comes: the open bucket counts as it is."""
        self._add(self._open)
        self._open = []

    def _add(self, rows) -> None:
        for row in rows:
            for column in self.COLUMNS.get(type(row), ()):
                into = self.tenants if isinstance(row, TenantMinute) else self.engine
                into[column] += getattr(row, column) or 0


class Soak:
    """A core, its thread, and a client that keeps it busy."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        model = synthetic_model(synthetic_config(**SHAPE), torch.float32)
        limits = Limits(
            slots=16, step_tokens=128, page_tokens=8, prefetch=4, host_adapters=ADAPTERS // 2
        )
        self.runner = CountingRunner(model, PAGES, limits.page_tokens)
        library = AdapterLibrary(model, self.runner.page_bytes, limits.host_adapters)
        self.keys: list[str] = []
        known = []
        for i in range(ADAPTERS):
            made = make_adapter(folder / f"a{i}", model.config, RANKS[i % len(RANKS)], seed=i)
            known.append(known_as(f"a{i}", library.add(made)))
            self.keys.append(known[-1].key)
        self.rows = Rows()
        self.pool = PagePool(PAGES, self.runner.page_bytes)
        self._clock = SystemClock()
        settings = Settings(
            bucket_s=10.0,
            provisional_s=2.0,
            limits=limits,
            tenants=tuple(
                Tenant(t, weight=1.0 + i, slo=Slo(ttft_s=0.5, tpot_s=0.05, max_gap_s=0.5))
                for i, t in enumerate(TENANTS)
            ),
        )
        self.core = EngineCore(
            settings,
            Identity("steady", "run", "main"),
            self._clock,
            self.runner,
            LoaderThread(self.runner, library),
            self.pool,
            CostModel(0.001, 0.00002, 0.0001, 1e-8, 0.0001),
            tuple(known),
            emit=self.rows.emit,
        )
        self.asked = 0
        self.made = 0  # tokens that steps gave
        self.ended: Counter[str] = Counter()
        self.alive: dict[str, int] = {}  # request -> tokens so far
        self.error: BaseException | None = None
        self._ends: dict[
            str, tuple[int, bool]
        ] = {}  # after so many tokens it gives up or has enough
        self._random = random.Random(seed)
        self._heads = [self._ids(40) for _ in range(2)]
        self._popularity = [1 / (i + 1) for i in range(ADAPTERS)]
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="core", daemon=True)
        self.core.start()
        self._thread.start()

    # -- the client

    def keep_busy(self, until_s: float) -> None:
        """Submit until that instant of the engine's clock, `IN_FLIGHT` at once; some give up."""
        while self._clock.now() < until_s:
            with self._changed:
                full = len(self.alive) >= IN_FLIGHT
                if full:
                    assert self._changed.wait(STUCK_S), "no request has ended"
            self._raise()
            if not full:
                self._submit()

    def finish(self) -> None:
        """Wait for those under way, stop the threads, add up."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.error or not self.alive, STUCK_S)
        self._raise()
        give_up_s = self.now() + STUCK_S
        while self.core.between_steps.do(lambda s: s._residency.loading, STUCK_S):
            assert self.now() < give_up_s, "a load does not end"  # its request has given up
        self._stopping.set()
        self._thread.join()
        self._raise()
        self.core.close()
        self.rows.close()

    def now(self) -> float:
        return self._clock.now()

    def _submit(self) -> None:
        rng, now = self._random, self._clock.now()
        name = f"r{self.asked}"
        which = rng.choices(range(ADAPTERS), self._popularity)[0]
        adapter = None if rng.random() < 0.2 else self.keys[which]
        head = rng.choice(self._heads) if rng.random() < 0.5 else ()
        tokens = rng.choice((1, 2, 8, 20, 60))
        hot = rng.random() < 0.3
        ask = Ask(
            name, rng.choice(TENANTS), (*head, *self._ids(rng.choice((1, 9, 30, 150)))), tokens,
            now, now, adapter, adapter and f"a{which}",
            temperature=0.8 if hot else 0.0, seed=7 if hot else None,
            logprobs=3 if rng.random() < 0.1 else None, tell_waits=rng.random() < 0.1,
        )  # fmt: skip
        at_once = False
        fate = rng.random()
        if fate < GIVES_UP + ENOUGH:
            after, gives_up = rng.randrange(tokens + 1), fate < GIVES_UP
            at_once = after == 0 and gives_up
            if after:
                self._ends[name] = (after, gives_up)
        with self._changed:
            self.alive[name] = 0
            self.asked += 1
        self.core.submit(ask)
        if at_once:
            self.core.abort(name)

    def _ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(1, 500) for _ in range(count))

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    # -- the core thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self.core.wait_for_work(0.1):
                    self._hand_out(self.core.step())
        except BaseException as e:
            self.error = e
            with self._changed:
                self._changed.notify()

    def _hand_out(self, result: StepResult) -> None:
        self.made += result.made
        for name, _ in result.tokens:
            count = self.alive[name] = self.alive[name] + 1
            after, gives_up = self._ends.get(name, (0, False))
            if count == after:
                (self.core.abort if gives_up else self.core.complete)(name)
        if result.ended:
            with self._changed:
                for e in result.ended:
                    self.ended[e.outcome.value] += 1
                    self._ends.pop(e.request_id, None)
                    assert self.alive.pop(e.request_id) == e.output_tokens
                self._changed.notify()

    # -- looking, between two steps

    def look(self) -> None:
        """Pages, books, ledger and runner say the same. Raises ValueError or AssertionError."""
        self.core.between_steps.do(self._compare, STUCK_S)

    def _compare(self, scheduler: Scheduler) -> None:
        scheduler.check_integrity()
        ledger, residency = self.core.ledger, scheduler._residency
        place = {k: residency.place(k) for k in self.keys}
        device = {k for k, p in place.items() if p is Place.DEVICE}
        coming = {k for k, p in place.items() if p is Place.LOADING}
        resident = self.runner.resident()
        assert device <= resident <= device | coming
        running = Counter(r.tenant for r in scheduler._running.sequences.values())
        referred = Counter(
            r.ask.adapter for r in scheduler._running.sequences.values() if r.ask.adapter
        )
        assert all(self.pool.references(k) == referred[k] for k in self.keys)
        for tenant in TENANTS:
            i = ledger.index(tenant)
            assert ledger._tenants.running.value[i] == running[tenant]
            assert abs(ledger._tenants.held[i] - self.pool.held_bytes(tenant)) < 1.0
