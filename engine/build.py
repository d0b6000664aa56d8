"""Builds a worker's core from settings and a model: arena, adapters, warm-up, cost model.

The one place where scheduling, runner and telemetry are put together; imports torch through the
runner. Decides nothing at run time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.chronicle import KnownAdapter
from engine.clock import Clock
from engine.config import Settings
from engine.core import EngineCore
from engine.costs import CostModel, Trim
from engine.errors import AdapterError, ConfigError
from engine.library import AdapterLibrary, known_as
from engine.loading import LoaderThread
from engine.memory.pool import PagePool
from engine.model.loaders import LoadedModel
from engine.parallel.adapters import CutReader
from engine.parallel.loader import RanksLoader
from engine.parallel.ranks import Ranks, open_ranks
from engine.parallel.runner import TensorParallelRunner
from engine.runner.arena import kv_page_bytes
from engine.runner.choice import reader_for, runner_on
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Runner
from engine.shared_view import EVERY_S
from engine.warmup import calibrate
from telemetry.ledger.views import Identity
from telemetry.records import Batch, EngineRun


class Emitter(Protocol):
    def submit(self, batch: Batch) -> None: ...


def build_core(
    settings: Settings,
    clock: Clock,
    run_id: str,
    model: LoadedModel,
    exporter: Emitter,
    *,
    wrap: Callable[[Runner], Runner] = lambda runner: runner,
    say: Callable[[str], None] = lambda text: None,
) -> EngineCore:
    """`build` for whoever will change no adapters."""
    return build(settings, clock, run_id, model, exporter, wrap=wrap, say=say).core


# Of `hung_s`, for ranks that wait for one another: who is silent is named before the whole worker
# is held to hang.
_SILENT = 0.75


@dataclass(frozen=True, slots=True)
class Built:
    """A core, the library its adapters are read by, and the most pages one of them may have."""

    core: EngineCore
    library: AdapterLibrary
    most_adapter_pages: int


def build(
    settings: Settings,
    clock: Clock,
    run_id: str,
    model: LoadedModel,
    exporter: Emitter,
    *,
    wrap: Callable[[Runner], Runner] = lambda runner: runner,
    say: Callable[[str], None] = lambda text: None,
    costs: CostModel | None = None,
    replica: int = 0,
    lost: Callable[[str], None] = lambda why: None,
) -> Built:
    """A warm core, its run announced. `wrap` may put a runner around the real one (faults).
    `costs`: instead of those that a warm-up would measure; None: they are measured. A pool with
    `tp` > 1 has the other ranks of this `replica` started, and ended with the core; `lost` hears,
    on any thread, that one of them or the pool's device is gone: nothing more can be computed.

    Raises ConfigError when the pool is too small or the model cannot be cut into its ranks,
    RankError when one does not start. An adapter folder that is refused is left out, said, and
    written down.
    """
    limits = settings.limits
    page_bytes = kv_page_bytes(model.config, limits.page_tokens, model.dtype)
    pages = limits.pool_bytes // page_bytes
    if pages < 2:
        raise ConfigError(
            f"limits.pool_bytes = {limits.pool_bytes}: less than two pages of {page_bytes} bytes; "
            f"give at least {16 * page_bytes}"
        )
    try:
        pool = PagePool.of_bytes(
            limits.pool_bytes, page_bytes, limits.kv_floor_bytes, limits.adapter_floor_bytes
        )
    except ValueError as e:
        raise ConfigError(f"limits.kv_floor_bytes, limits.adapter_floor_bytes: {e}") from None
    spec = settings.all_pools()[0]
    if spec.tp == 1:
        runner = runner_on(
            spec.device, model, pages, limits, say, lambda why: lost(f"the device is lost: {why}")
        )
        library = AdapterLibrary(
            model,
            page_bytes,
            limits.host_adapters,
            limits.host_adapter_bytes,
            read=reader_for(spec.device, model, limits.page_tokens),
        )
        return _build_on(
            runner, library, pool, settings, clock, run_id, model, exporter, wrap, say, costs
        )
    silent_s = _SILENT * settings.hung_s
    ranks = Ranks(spec, replica, settings.model, pages, limits.page_tokens, silent_s)
    parts = open_ranks(ranks, model, lost=lambda why: lost(f"a rank is lost: {why}"), say=say)
    try:
        library = AdapterLibrary(
            model,
            page_bytes,
            limits.host_adapters,
            limits.host_adapter_bytes,
            read=CutReader(model.config, model.dtype, page_bytes, spec.tp),
        )
        return _build_on(
            parts, library, pool, settings, clock, run_id, model, exporter, wrap, say, costs
        )
    except BaseException:
        parts.close()
        raise


def _build_on(
    runner: TorchRunner | TensorParallelRunner,
    library: AdapterLibrary,
    pool: PagePool,
    settings: Settings,
    clock: Clock,
    run_id: str,
    model: LoadedModel,
    exporter: Emitter,
    wrap: Callable[[Runner], Runner],
    say: Callable[[str], None],
    costs: CostModel | None,
) -> Built:
    """`build`, once there is something to compute on."""
    limits, pages, page_bytes = settings.limits, pool.pages, pool.page_bytes
    for sentence in runner.kernels:
        say(sentence)
    most_pages = pages - max(1, pool.kv_floor_pages)
    known: list[KnownAdapter] = []
    left_out: list[str] = []
    for name, folder in settings.adapters:
        try:
            weights = library.add(Path(folder), most_pages)
        except AdapterError as e:  # a bad adapter hurts only those who name it
            say(f"adapter {name!r} is left out: {e}")
            left_out.append(name)
            continue
        for warning in weights.warnings:
            say(f"adapter {name!r}: {warning}")
        known.append(known_as(name, weights))
    if costs is None:
        costs = _warm_up(runner, library, known, settings, pages, say)
    core = EngineCore(
        settings,
        Identity(settings.engine, run_id, settings.pool),
        clock,
        wrap(runner),
        LoaderThread(runner, library)
        if isinstance(runner, TorchRunner)
        else RanksLoader(runner, library),
        pool,
        costs,
        tuple(known),
        emit=exporter.submit,
        trim=Trim(),
        share_every_s=EVERY_S if settings.all_pools()[0].replicas > 1 else None,
    )
    core.announce(
        EngineRun(
            engine=settings.engine,
            run_id=run_id,
            pool=settings.pool,
            started=clock.base.unix(clock.now()),
            model=model.name,
            model_hash=model.hash,
            synthetic=model.synthetic,
            dtype=model.dtype_name,
            page_bytes=page_bytes,
            pages=pages,
            slots=limits.slots,
            step_tokens=limits.step_tokens,
            bucket_s=settings.bucket_s,
            cost_version=costs.version,
            costs=costs.dump(),
            config=json.dumps(settings.public()),
        ),
        tuple(left_out),
    )
    core.start()
    return Built(core, library, most_pages)


def _warm_up(
    runner: TorchRunner | TensorParallelRunner,
    library: AdapterLibrary,
    known: list[KnownAdapter],
    settings: Settings,
    pages: int,
    say: Callable[[str], None],
) -> CostModel:
    """Calibrate with a few adapters at the end of the arena, then leave the arena empty."""
    used: list[str] = []
    end = pages
    for adapter in sorted(known, key=lambda a: a.rank)[-4:]:
        if adapter.key in used or end - adapter.pages < pages // 2:
            continue
        runner.copy_in(library.peek(adapter.key), range(end - adapter.pages, end))
        end -= adapter.pages
        used.append(adapter.key)
    costs = calibrate(runner, settings.limits, used, end, say)
    for key in used:
        runner.drop(key)
    return costs
