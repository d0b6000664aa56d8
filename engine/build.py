"""Builds a worker's core from settings and a model: arena, adapters, warm-up, cost model.

The one place where scheduling, runner and telemetry are put together; imports torch through the
runner. Decides nothing at run time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from engine.clock import Clock
from engine.config import Settings
from engine.core import EngineCore, KnownAdapter
from engine.costs import CostModel, Trim
from engine.errors import AdapterError, ConfigError
from engine.loading import LoaderThread
from engine.memory.pool import PagePool
from engine.model.loaders import LoadedModel
from engine.model.lora import AdapterWeights, read_adapter
from engine.runner.arena import kv_page_bytes
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import HostAdapter, Runner
from engine.warmup import calibrate
from telemetry.records import Batch, EngineRun
from telemetry.views import Identity


class Emitter(Protocol):
    def submit(self, batch: Batch) -> None: ...


class AdapterLibrary:
    """Host copies of adapters, the most recently used first to stay; the others are read again
    from their folders. Keys are content hashes: a folder that has changed since is refused."""

    def __init__(self, model: LoadedModel, page_bytes: int, most: int) -> None:
        self._model = model
        self._page_bytes = page_bytes
        self._most = most
        self._folders: dict[str, Path] = {}
        self._kept: OrderedDict[str, AdapterWeights] = OrderedDict()

    def add(self, folder: Path) -> AdapterWeights:
        weights = self._read(folder)
        self._folders[weights.key] = folder
        self._keep(weights)
        return weights

    def fetch(self, key: str) -> HostAdapter:
        """The host copy of a key; reads the folder when it is no longer kept."""
        weights = self._kept.get(key)
        if weights is None:
            folder = self._folders[key]
            weights = self._read(folder)
            if weights.key != key:
                raise ConfigError(
                    f"{folder}: the adapter's content has changed since it was loaded; "
                    "give the new one a name of its own"
                )
        self._keep(weights)
        return weights

    def _read(self, folder: Path) -> AdapterWeights:
        return read_adapter(folder, self._model.config, self._model.dtype, self._page_bytes)

    def _keep(self, weights: AdapterWeights) -> None:
        self._kept[weights.key] = weights
        self._kept.move_to_end(weights.key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


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
    """A warm core, its run announced. `wrap` may put a runner around the real one (faults).

    Raises ConfigError when the pool is too small. An adapter folder that is refused is left out,
    said, and written down.
    """
    limits = settings.limits
    page_bytes = kv_page_bytes(model.config, limits.page_tokens, model.dtype)
    pages = limits.pool_bytes // page_bytes
    if pages < 2:
        raise ConfigError(
            f"limits.pool_bytes = {limits.pool_bytes}: less than two pages of {page_bytes} bytes; "
            f"give at least {16 * page_bytes}"
        )
    runner = TorchRunner(model, pages, limits.page_tokens)
    library = AdapterLibrary(model, page_bytes, limits.host_adapters)
    known: list[KnownAdapter] = []
    left_out: list[str] = []
    for name, folder in settings.adapters:
        try:
            weights = library.add(Path(folder))
        except AdapterError as e:  # a bad adapter hurts only those who name it
            say(f"adapter {name!r} is left out: {e}")
            left_out.append(name)
            continue
        if weights.pages >= pages:
            raise ConfigError(
                f"adapter {name!r} needs {weights.pages} pages, the pool has {pages}: "
                f"raise limits.pool_bytes above {(weights.pages + 16) * page_bytes}"
            )
        known.append(
            KnownAdapter(
                weights.key,
                name,
                weights.pages,
                weights.device_bytes,
                weights.rank,
                weights.synthetic,
            )
        )
    costs = _warm_up(runner, library, known, settings, pages, say)
    core = EngineCore(
        settings,
        Identity(settings.engine, run_id, settings.pool),
        clock,
        wrap(runner),
        LoaderThread(runner, library.fetch),
        PagePool(pages, page_bytes),
        costs,
        tuple(known),
        emit=exporter.submit,
        trim=Trim(),
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
    return core


def _warm_up(
    runner: TorchRunner,
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
        runner.copy_in(library.fetch(adapter.key), range(end - adapter.pages, end))
        end -= adapter.pages
        used.append(adapter.key)
    costs = calibrate(runner, settings.limits, used, end, say)
    for key in used:
        runner.drop(key)
    return costs
