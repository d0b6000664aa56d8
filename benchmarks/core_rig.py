"""A real core to be measured: settings with room, requests handed over, steps as they come.

Owns the core and its clock; judges nothing. One thread steps, as in a worker; telemetry goes to a
store process, or to whatever `emit` is. No HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.overhead_rig import StoreProcess
from engine.build import Emitter, build_core
from engine.clock import SystemClock
from engine.collector import few_collections
from engine.config import Limits, Settings, Tenant
from engine.core import EngineCore
from engine.model.loaders import LoadedModel
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Runner, StepOutcome, StepPlan
from engine.scheduling.request import Ask, Outcome
from telemetry.pipeline.exporter import Exporter

POOL_BYTES = 1 << 30
STUCK_S = 120.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step: over so many seconds after the first request, how long it took, how much of that
    was the runner's, how many prefill tokens and decode rows, and which streams got which token."""

    at_s: float
    took_s: float
    runner_s: float
    prefill_tokens: int
    decode_rows: int
    tokens: tuple[tuple[int, int], ...]
    expected_s: float


class CoreRig:
    """A core over these adapter folders; a stream's tenant is its adapter's. `close` at the end."""

    def __init__(
        self,
        model: LoadedModel,
        folders: Sequence[Path],
        *,
        streams: int,
        limits: Limits | None = None,
        emitter: Emitter | None = None,
    ) -> None:
        """`emitter` None: a store process takes the telemetry. Raises what `build_core` raises."""
        base = limits or Limits(pool_bytes=POOL_BYTES)
        self.names = [f"a{i}" for i in range(len(folders))]
        self._tenants = [f"tenant-{i}" for i in range(max(8, len(folders)))]
        settings = Settings(
            engine="rig",
            model=model.name,
            limits=replace(
                base,
                slots=max(base.slots, streams),
                adapters_per_step=max(base.adapters_per_step, min(streams, len(folders))),
            ),
            tenants=tuple(Tenant(t) for t in self._tenants),
            adapters=tuple((n, str(f)) for n, f in zip(self.names, folders, strict=True)),
        )
        self.clock = SystemClock()
        self._store = StoreProcess() if emitter is None else None
        self._exporter = Exporter(self._store.address) if self._store else None
        self._timed: list[_Timed] = []
        self.core: EngineCore = build_core(
            settings, self.clock, "rig", model, self._exporter or _given(emitter), wrap=self._wrap
        )
        self._played = 0

    @property
    def runner(self) -> TorchRunner:
        inner = self._timed[0].inner
        assert isinstance(inner, TorchRunner)
        return inner

    def ask(
        self, name: str, prompt: Sequence[int], adapter: int | None, output: int, stream: int = 0
    ) -> Ask:
        """A greedy request of so many tokens by the adapter's own tenant, arriving now."""
        now = self.clock.now()
        called = None if adapter is None else self.names[adapter]
        tenant = self._tenants[stream % len(self._tenants) if adapter is None else adapter]
        key = None if called is None else self.core.adapter_key(called)
        return Ask(name, tenant, tuple(prompt), output, now, now, key, called)

    def play(
        self, prompts: Sequence[Sequence[int]], adapters: Sequence[int | None], output: int
    ) -> Iterator[Step]:
        """All prompts at once, to their last token, step by step. Raises RuntimeError when one
        does not finish."""
        core, timed = self.core, self._timed[0]
        self._played += 1
        streams = {f"{self._played}-{i}": i for i in range(len(prompts))}
        left = len(streams)
        with few_collections():
            began = time.perf_counter()
            for name, i in streams.items():
                core.submit(self.ask(name, prompts[i], adapters[i], output, i))
            while left:
                if not core.wait_for_work(STUCK_S):
                    raise RuntimeError(f"{left} requests do not go on")
                timed.clear()
                before = time.perf_counter()
                result = core.step()
                after = time.perf_counter()
                for ending in result.ended:
                    left -= 1
                    if ending.outcome is not Outcome.FINISHED:
                        raise RuntimeError(f"a request {ending.outcome.value}: {ending.reason}")
                yield Step(
                    after - began,
                    after - before,
                    timed.seconds,
                    timed.prefill_tokens,
                    timed.decode_rows,
                    tuple((streams[name], token) for name, token in result.tokens),
                    core.scheduler.expected_step_s,
                )

    def close(self) -> None:
        self.core.close()
        if self._exporter is not None:
            self._exporter.close(2.0)
        if self._store is not None:
            self._store.close()

    def _wrap(self, runner: Runner) -> Runner:
        self._timed.append(_Timed(runner))
        return self._timed[0]


class _Timed:
    """Tells the runner's part of a step from the core's."""

    def __init__(self, inner: Runner) -> None:
        self.inner = inner
        self.clear()

    def clear(self) -> None:
        self.seconds, self.prefill_tokens, self.decode_rows = 0.0, 0, 0

    def execute(self, plan: StepPlan) -> StepOutcome:
        plan.segments  # noqa: B018 - made by the scheduler at the first look: its time, not the runner's
        self.prefill_tokens, self.decode_rows = plan.prefill_tokens, plan.decode_rows
        began = time.perf_counter()
        try:
            return self.inner.execute(plan)
        finally:
            self.seconds = time.perf_counter() - began


def _given(emitter: Emitter | None) -> Emitter:
    assert emitter is not None
    return emitter


def dealt(streams: int, adapters: int) -> list[int | None]:
    """Each stream's adapter, dealt round; 0 adapters: the base model."""
    return [i % adapters if adapters else None for i in range(streams)]
