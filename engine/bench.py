"""Measures what the engine gives: the real core, scheduler, pool, ledger and telemetry; no HTTP.

Owns the core that is measured, the requests it is given and the clock beside it. What is read off
the times is `engine.bench_figures`; nothing is decided here. One thread steps, as in a worker.

    figures = throughput("smollm2-135m", Load(streams=(1, 32)))
    figures.of(32).decode_tokens_per_s
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from engine.bench_figures import AtStreams, Figures, Load, Round, StepSeen, Telemetry, round_of
from engine.build import build
from engine.clock import SystemClock
from engine.collector import few_collections
from engine.config import Limits, Settings, Tenant
from engine.errors import ConfigError, EngineError
from engine.model.config import MODULES, ModelConfig
from engine.model.loaders import LoadedModel, load_model
from engine.model.made_adapters import make_adapter
from engine.room import limits_for
from engine.scheduling.plan import Runner, StepOutcome, StepPlan
from engine.scheduling.request import Ask, Outcome
from engine.serving.process import Child, ServeError
from telemetry.pipeline.exporter import Exporter

__all__ = [
    "AtStreams",
    "Bench",
    "Figures",
    "Load",
    "Round",
    "made_adapters",
    "prompts",
    "throughput",
]

TENANTS = 8  # of a run without adapters; else each adapter is a tenant's
_FIRST_ID = 3  # of made-up prompts: what is below may be special
_STORE_START_S = 30.0
_STORE_STOP_S = 5.0
_STUCK_S = 120.0  # without any work to do while requests are under way


def throughput(
    model: str | LoadedModel = "smollm2-135m",
    load: Load | None = None,
    *,
    dtype: str = "auto",
    folders: Sequence[Path] | None = None,
    with_store: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Figures:
    """Build a core, play the load's rounds, read the figures. Seconds to minutes.

    `folders`: the adapters to use (as many as `load.adapters`); made up when None. `with_store`: a
    store process takes the telemetry, as in `serve`; else it is encoded and dropped here. Raises
    EngineError: a model or an adapter that is refused, a request that failed.
    """
    load = load or Load()
    busy_before = os.getloadavg()[0]
    with ExitStack() as stack:
        loaded = model if isinstance(model, LoadedModel) else load_model(model, dtype, progress=say)
        if folders is None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            folders = made_adapters(scratch, loaded.config, load.adapters, load.rank)
        address = stack.enter_context(_store_process(say)) if with_store else None
        bench = stack.enter_context(Bench(loaded, load, folders, address, say))
        rounds: dict[int, list[Round]] = {n: [] for n in load.streams}
        for n in load.streams:
            bench.play(n)  # adapters come to the device, buffers grow: not counted
        for number in range(load.rounds):
            for n in load.streams:
                done = bench.play(n)
                rounds[n].append(done)
                say(
                    f"round {number + 1}/{load.rounds}, {n} streams: "
                    f"{done.end_to_end_tokens_per_s:.0f} tokens/s end to end"
                )
        return Figures(
            model=loaded.name,
            dtype=loaded.dtype_name,
            backend=bench.backend,
            threads=bench.threads,
            load=load,
            at=tuple(AtStreams(n, tuple(done)) for n, done in rounds.items()),
            telemetry=bench.close(),
            synthetic=loaded.synthetic,
            busy_before=busy_before,
        )


def prompts(vocab: int, count: int, tokens: int, seed: int) -> list[tuple[int, ...]]:
    """Random prompts, the same for the same seed: for peers to be given, too."""
    dice = random.Random(seed)
    low = min(_FIRST_ID, vocab - 1)
    return [tuple(dice.randrange(low, vocab) for _ in range(tokens)) for _ in range(count)]


def made_adapters(folder: Path, config: ModelConfig, count: int, rank: int) -> list[Path]:
    """So many synthetic PEFT folders on all seven linears, the same for the same arguments."""
    return [make_adapter(folder / f"adapter-{i:03d}", config, rank, seed=i) for i in range(count)]


class Bench:
    """A core to be measured. A context manager; one thread."""

    def __init__(
        self,
        model: LoadedModel,
        load: Load,
        folders: Sequence[Path],
        store_address: str | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises ConfigError when `folders` are not as many as the load says, or the load is
        longer than the model's context; EngineError as `engine.build.build`."""
        if len(folders) != load.adapters:
            raise ConfigError(
                f"{len(folders)} adapter folders for adapters = {load.adapters}: give one each"
            )
        context = load.prompt_tokens + load.output_tokens
        if context > model.config.max_context:
            raise ConfigError(
                f"{load.prompt_tokens} tokens in and {load.output_tokens} out are {context}: the "
                f"model's context holds {model.config.max_context}"
            )
        self._model, self._load = model, load
        self._where = "a store process" if store_address else "encoded, then dropped"
        self._exporter = (
            Exporter(store_address) if store_address else Exporter(sink=lambda metrics, logs: None)
        )
        self._clock = SystemClock()
        self._timed: list[_TimedRunner] = []
        self._names = [f"adapter-{i:03d}" for i in range(load.adapters)]
        self._tenants = [f"tenant-{i:03d}" for i in range(load.adapters or TENANTS)]
        settings = Settings(
            engine="bench",
            model=model.name,
            limits=_limits(model, load),
            tenants=tuple(Tenant(t) for t in self._tenants),
            adapters=tuple((n, str(f)) for n, f in zip(self._names, folders, strict=True)),
        )
        try:
            self._core = build(
                settings, self._clock, "bench", model, self._exporter, wrap=self._wrap, say=say
            ).core
        except BaseException:
            self._exporter.close(0.0)
            raise
        self._closed = False
        missing = [n for n in self._names if self._core.adapter_key(n) is None]
        if missing:
            self.close()
            raise EngineError(f"adapter {missing[0]!r} was refused, see above: nothing is measured")
        self._played = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> Telemetry:
        """The end, within seconds; what telemetry had until then. Safe to call again."""
        if not self._closed:
            self._closed = True
            self._core.close()
        stats = self._exporter.close(2.0)
        return Telemetry(self._where, stats.sent, stats.sent_bytes, stats.lost)

    @property
    def backend(self) -> str:
        """What computes the adapters and the attention, in its own words."""
        return "; ".join(getattr(self._timed[0].inner, "kernels", ()))

    @property
    def threads(self) -> int:
        """Compute threads of a step."""
        import torch

        return torch.get_num_threads()

    def play(self, streams: int) -> Round:
        """One round: so many requests at once, with prompts nobody has sent before, to their last
        token. Raises EngineError when one of them fails."""
        load, core = self._load, self._core
        self._played += 1
        number = load.seed * 1_000_003 + self._played
        texts = prompts(self._model.config.vocab, streams, load.prompt_tokens, number)
        names = {f"{self._played}-{i}": i for i in range(streams)}
        timed = self._timed[0]
        steps: list[StepSeen] = []
        ours_s: list[float] = []
        with few_collections():
            began = before = time.perf_counter()
            for i, (request_id, prompt) in enumerate(zip(names, texts, strict=True)):
                core.submit(self._ask(request_id, i, prompt))
            under_way = streams
            while under_way:
                if not core.wait_for_work(_STUCK_S):
                    raise EngineError(f"{under_way} requests do not go on: nothing to do for them")
                timed.seconds = 0.0
                result = core.step()
                now = time.perf_counter()
                steps.append(StepSeen(now - began, tuple(names[r] for r, _ in result.tokens)))
                ours_s.append(now - before - timed.seconds)
                before = now
                for ending in result.ended:
                    under_way -= 1
                    if ending.outcome is not Outcome.FINISHED:
                        raise EngineError(f"a request {ending.outcome.value}: {ending.reason}")
        return round_of(steps, ours_s)

    def _ask(self, request_id: str, stream: int, prompt: tuple[int, ...]) -> Ask:
        name = self._names[stream % len(self._names)] if self._names else None
        now = self._clock.now()
        return Ask(
            request_id=request_id,
            tenant=self._tenants[stream % len(self._tenants)],
            prompt=prompt,
            max_tokens=self._load.output_tokens,
            arrived_s=now,
            admitted_s=now,
            adapter=self._core.adapter_key(name) if name else None,
            adapter_name=name,
            temperature=self._load.temperature,
            top_p=self._load.top_p,
        )

    def _wrap(self, runner: Runner) -> Runner:
        self._timed.append(_TimedRunner(runner))
        return self._timed[0]


class _TimedRunner:
    """Lets the time pass that the runner takes of each step be told from the core's own."""

    def __init__(self, inner: Runner) -> None:
        self.inner = inner
        self.seconds = 0.0

    def execute(self, plan: StepPlan) -> StepOutcome:
        plan.segments  # noqa: B018 - the core makes them, at the first look
        began = time.perf_counter()
        try:
            return self.inner.execute(plan)
        finally:
            self.seconds += time.perf_counter() - began


def _limits(model: LoadedModel, load: Load) -> Limits:
    """The defaults, and room for all streams and all adapters at once."""
    widths = sum(sum(model.config.module_shape(m)) for m in MODULES) * model.config.layers
    return limits_for(
        model,
        streams=max(load.streams),
        context=load.prompt_tokens + load.output_tokens,
        adapters=load.adapters,
        adapter_bytes=load.adapters * load.rank * widths * model.dtype.itemsize,
        least=Limits(),
    )


@contextmanager
def _store_process(say: Callable[[str], None]) -> Iterator[str]:
    """A store of its own, in a process of its own, for as long as the run lasts."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        address = f"unix:{folder}/s"
        child = Child(
            "store",
            "telemetry.service",
            ["--store", f"{folder}/store", "--listen", address],
            on_error_line=say,
            on_progress=say,
            on_exit=lambda: None,
        )
        try:
            if not child.wait_ready(_STORE_START_S):
                raise ServeError("the store process did not start: " + " ".join(child.last_words()))
            yield address
        finally:
            child.stop(_STORE_STOP_S)
