"""The real core on a small pool, driven to the end of many requests, and what it went through.

Owns the driving and the watching: scheduler, pool, residency, loader threads, library and ledger
are the engine's own. Pages that nobody holds are poisoned between steps: whoever reads one says so
with a NaN.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from oracle_judge import Answer

from engine.clock import Clock, SystemClock, TurnedClock
from engine.config import Limits, Settings, Tenant
from engine.core import EngineCore
from engine.costs import CostModel
from engine.library import AdapterLibrary, known_as
from engine.loading import Copies, LoadDone, LoaderThread
from engine.memory.moves import LoadOrder
from engine.memory.pool import PagePool
from engine.model.loaders import LoadedModel
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import AdapterDevice, StepOutcome, StepPlan
from engine.scheduling.request import Ask, Outcome
from engine.scheduling.scheduler import Scheduler
from telemetry.ledger.views import Identity
from telemetry.records import Batch, EngineMinute, RequestRecord

TENANTS = ("a", "b", "c")
COSTS = CostModel(0.010, 0.0002, 0.0005, 1e-7, 0.001)
STUCK_S = 60.0  # without a step worth planning
STEP_S = 0.01
OFF, ISA = "TENANTSCOPE_NATIVE", "TENANTSCOPE_ISA"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A greedy request. `told`: its logits are kept."""

    name: str
    tenant: str
    adapter: str | None
    prompt: tuple[int, ...]
    tokens: int
    told: bool = True


@dataclass(slots=True)
class Seen:
    """What the requests went through, by the runner and by the ledger."""

    chunks: int = 0  # parts of a prompt that were not its end
    mixed_steps: int = 0  # with prefill and decode rows of two adapters or more
    most_adapters: int = 0  # in one step
    loads: int = 0  # by the runner
    moved: int = 0  # reloads to other pages than before
    drops: int = 0
    preemptions: int = 0  # by the ledger, from here on
    recomputed_tokens: int = 0
    cached_tokens: int = 0
    evictions: int = 0
    ledger_loads: int = 0

    def check(self) -> None:
        """A run in which nothing happened would show nothing."""
        assert self.chunks > 0
        assert self.mixed_steps > 0
        assert self.most_adapters > 2
        assert self.preemptions > 0
        assert self.recomputed_tokens > 0
        assert self.evictions > 0
        assert self.moved > 0
        assert self.cached_tokens > 0
        assert self.ledger_loads == self.loads
        assert self.drops == self.evictions


class WatchedRunner(TorchRunner):
    """Counts what it is given, and keeps the logits of requests that are to be told."""

    def __init__(self, model: LoadedModel, pages: int, page_tokens: int, **options) -> None:
        super().__init__(model, pages, page_tokens, **options)
        self.seen = Seen()
        self.told: set[str] = set()
        self.logits_of: dict[str, dict[int, torch.Tensor]] = {}
        self._were: dict[str, tuple[int, ...]] = {}
        self._are: dict[str, tuple[int, ...]] = {}
        self.arena.elements.fill_(float("nan"))

    def copy_in(self, adapter, pages: Sequence[int]) -> None:
        super().copy_in(adapter, pages)
        key, now = adapter.key, tuple(pages)
        self.seen.loads += 1
        self.seen.moved += key in self._were and not set(now) & set(self._were[key])
        self._were[key] = self._are[key] = now

    def drop(self, key: str) -> None:
        super().drop(key)
        self.seen.drops += 1
        # Told before anybody writes to the pages: loads and steps planned with it come after.
        self.arena.elements[list(self._are.pop(key, ()))] = float("nan")

    def execute(self, plan: StepPlan) -> StepOutcome:
        seen, prefills = self.seen, [s for s in plan.segments if s.is_prefill]
        seen.chunks += sum(not s.samples for s in prefills)
        kinds = {s.adapter for s in plan.segments}
        seen.most_adapters = max(seen.most_adapters, len(kinds - {None}))
        seen.mixed_steps += 0 < len(prefills) < len(plan.segments) and len(kinds) > 2
        return super().execute(plan)

    def _hidden(self, *step):
        batch, hidden = super()._hidden(*step)
        which = [i for i, s in enumerate(batch.segments) if s.samples and s.request_id in self.told]
        if which:
            rows = self._head.logits(hidden[which])
            for i, row in zip(which, rows, strict=True):
                s = batch.segments[i]
                self.logits_of.setdefault(s.request_id, {})[s.sampled] = row.clone()
        return batch, hidden


class _Loads(LoaderThread):
    """The engine's own loader, which can be waited for."""

    def __init__(self, device: AdapterDevice, copies: Copies) -> None:
        super().__init__(device, copies)
        self._under_way = 0
        self._changed = threading.Condition()

    def on_done(self, callback: Callable[[LoadDone], None]) -> None:
        def done(load: LoadDone) -> None:
            callback(load)
            with self._changed:
                self._under_way -= 1
                self._changed.notify()

        super().on_done(done)

    def begin(self, order: LoadOrder) -> None:
        with self._changed:
            self._under_way += 1
        super().begin(order)

    def wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._under_way, STUCK_S)


class Engine:
    """A core over `pages` pages with these adapters (name -> folder). Leaving it stops its
    threads.

    `by_steps`: time is counted in steps, and a load takes one of them: every run with the same
    requests is the same. Else time is real, and loads take what they take."""

    def __init__(
        self,
        model: LoadedModel,
        adapters: Mapping[str, Path],
        *,
        pages: int,
        host_adapters: int = 256,
        by_steps: bool = False,
        **limits,
    ) -> None:
        limits = {"slots": 8, "step_tokens": 48, "page_tokens": 16, "prefetch": 3, **limits}
        self.folders = dict(adapters)
        self.runner = WatchedRunner(model, pages, limits["page_tokens"])
        library = AdapterLibrary(model, self.runner.page_bytes, host_adapters)
        known = tuple(known_as(name, library.add(folder)) for name, folder in adapters.items())
        self.keys = {k.name: k.key for k in known}
        self._batches: list[Batch] = []
        self._turned = TurnedClock() if by_steps else None
        self._clock: Clock = self._turned or SystemClock()
        self._loads = _Loads(self.runner, library)
        self._pool = PagePool(pages, self.runner.page_bytes)
        self._poisoned: set[int] = set(range(pages))
        settings = Settings(
            limits=Limits(
                host_adapters=host_adapters, max_context=model.config.max_context, **limits
            ),
            tenants=tuple(Tenant(t) for t in TENANTS),
        )
        self.core = EngineCore(
            settings,
            Identity("right", "run", "main"),
            self._clock,
            self.runner,
            self._loads,
            self._pool,
            COSTS,
            known,
            emit=self._batches.append,
        )

    def serve(
        self, wanted: Iterable[Wanted], *, in_flight: int = 32, preempt_each: int | None = None
    ) -> list[Answer]:
        """All of them, to the end, at most `in_flight` at once. Each must finish. Every
        `preempt_each` steps one that decodes is preempted, whether anybody must grow or not."""
        wanted = list(wanted)
        left, outputs, alive = deque(wanted), {w.name: [] for w in wanted}, set()
        self.runner.told |= {w.name for w in wanted if w.told}
        steps = 0
        while left or alive:
            steps += 1
            if preempt_each and steps % preempt_each == 0:
                self.core.between_steps.soon(preempt_one)
            while left and len(alive) < in_flight:
                alive.add(left[0].name)
                self._submit(left.popleft())
            assert self.core.wait_for_work(STUCK_S), f"nobody moves: {sorted(alive)[:5]} wait"
            self._poison()
            if self._turned is not None:
                self._turned.turn(STEP_S)
                self._loads.wait()
            result = self.core.step()
            for name, token in result.tokens:
                outputs[name].append(token)
            for e in result.ended:
                assert e.outcome is Outcome.FINISHED, f"{e.request_id}: {e.reason}"
                alive.remove(e.request_id)
        logits = self.runner.logits_of
        return [
            Answer(
                w.name,
                None if w.adapter is None else self.folders[w.adapter],
                w.prompt,
                tuple(outputs[w.name]),
                logits.pop(w.name, {}),
            )
            for w in wanted
        ]

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.core.close()

    def seen(self) -> Seen:
        """Checks that nothing is left behind; tells what was gone through so far."""
        self.core.scheduler.check_integrity()
        held = self._pool.holdings()
        assert not held.kv
        assert not held.adapters
        self._batches += self.core.ledger.collect(self._clock.now())
        seen = self.runner.seen
        # In the order of delivery: the last row of a bucket is the whole one.
        minutes = [r for b in self._batches for r in b.minutes if isinstance(r, EngineMinute)]
        engine = {r.bucket_start: r for r in minutes}.values()
        requests = [r for b in self._batches for r in b.logs if isinstance(r, RequestRecord)]
        seen.evictions = sum(r.evictions or 0 for r in engine)
        seen.ledger_loads = sum(r.loads or 0 for r in engine)
        seen.preemptions = sum(r.preemptions or 0 for r in requests)
        seen.recomputed_tokens = sum(r.recomputed_tokens or 0 for r in requests)
        seen.cached_tokens = sum(r.cached_tokens or 0 for r in requests)
        return seen

    def _submit(self, w: Wanted) -> None:
        now = self._clock.now()
        key = None if w.adapter is None else self.keys[w.adapter]
        self.core.submit(Ask(w.name, w.tenant, w.prompt, w.tokens, now, now, key, w.adapter))

    def _poison(self) -> None:
        free = set(self._pool._free)
        if new := free - self._poisoned:
            self.runner.arena.elements[list(new)] = float("nan")
        self._poisoned = free


def check_mode(engine: Engine, mode: str) -> None:
    """It computes with what `kernels(mode)` was to give it."""
    for said in engine.runner.kernels:
        assert (": native kernels, " in said) == (mode != "torch"), said
        assert mode in ("torch", "native") or f", {mode}," in said, said


def preempt_one(scheduler: Scheduler) -> None:
    """Who has been computed the most loses it, unless it has lost enough."""
    now, running = scheduler._ledger.now, scheduler._running
    scheduler._book.advance(now)
    rows = [r for r in running.cohort.rows.values() if r.preemptions < 3]
    if rows:
        victim = max(rows, key=running.cohort.length)
        running.cohort.sync(victim)
        running.put_back(victim, now, None)


@contextmanager
def kernels(mode: str) -> Iterator[None]:
    """Runners made within compute with plain torch ("torch"), with the compiled kernels
    ("native"), or with those of one instruction set and below ("plain", "avx2", "avx512").
    Skips the test where the library or the set is not to be had."""
    from kernels import cpu

    asked = {"torch": {OFF: "0"}, "native": {}}.get(mode, {ISA: mode})
    if OFF not in asked:
        found = cpu.find({})
        if isinstance(found, cpu.Absent):
            pytest.skip(found.reason)
        if ISA in asked and cpu.Isa[mode.upper()] > found.isa:
            pytest.skip(f"this CPU has no {mode}")
    before = {name: os.environ.pop(name, None) for name in (OFF, ISA)}
    os.environ.update(asked)
    cpu.native.cache_clear()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        cpu.native.cache_clear()
