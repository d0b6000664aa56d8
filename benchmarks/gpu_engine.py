"""The engine itself on the device: core, scheduler and ledger over a runner whose arena lies there.

Owns a model and adapters of random numbers; judges nothing. At toy size the CPU stands in, with
lanes that do everything at once and recorded steps that are called again.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from gpu_rig import Rig
from gpu_step import RANK, made_weights, shape_of

from engine.chronicle import KnownAdapter
from engine.clock import SystemClock
from engine.config import Limits, Settings, Tenant
from engine.core import EngineCore
from engine.costs import CostModel
from engine.loading import LoaderThread
from engine.memory.packing import padded_row_bytes
from engine.memory.pool import PagePool
from engine.model.config import MODULES, ModelConfig, synthetic_config
from engine.model.loaders import LoadedModel
from engine.model.lora import AdapterWeights, BlockSpec, place_blocks
from engine.runner.accelerator import Accelerator, Recorder
from engine.runner.arena import kv_page_bytes
from engine.runner.device_runner import DeviceRunner
from engine.runner.lanes import AtOnce
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import HostAdapter, Segment, StepPlan
from engine.scheduling.request import Ask
from telemetry.ledger.views import Identity

PAGE_TOKENS = 16
COSTS = CostModel(
    1e-3, 1e-6, 1e-5, 1e-9, 1e-5
)  # what a step is expected to take: nothing hangs on it


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


class CalledAgain:
    """A recorder where there are no graphs: calls again what it recorded, over the same memory."""

    def record(self, call: Callable[[], torch.Tensor]) -> Any:
        class Recorded:
            out = call().clone()

            def __call__(self) -> None:
                self.out.copy_(call())

        return Recorded()


def accelerator(rig: Rig, limits: Limits, graphs: bool) -> Accelerator:
    rows = max(limits.step_tokens, limits.slots)
    adapters = min(limits.slots, limits.adapters_per_step)
    if rig.toy:
        again: Recorder | None = CalledAgain() if graphs else None
        return Accelerator(rig.device, AtOnce(), AtOnce(), again, rows, limits.slots, adapters)
    from engine.runner.cuda import gpu

    made = gpu(rows, limits.slots, adapters)
    return made if graphs else replace(made, recorder=None)


def model_on(rig: Rig) -> LoadedModel:
    config = shape_of(rig.toy)
    # No step calls a tokenizer, and a bare machine has none.
    return LoadedModel(
        "made", config, made_weights(rig, config), cast(Any, None), "made", True, rig.dtype
    )


def made_adapter(config: ModelConfig, dtype: torch.dtype, page_bytes: int, pin: bool):
    """One adapter on seven modules, all of whose bytes are small random numbers, in page-locked
    memory where `pin`."""
    specs = tuple(
        BlockSpec(layer, module, side, RANK, width, padded_row_bytes(width, dtype.itemsize))
        for layer in range(config.layers)
        for module in MODULES
        for side, width in zip(("A", "Bt"), reversed(config.module_shape(module)), strict=True)
    )
    layout = place_blocks(specs, page_bytes)
    values = (torch.randn(layout.pages, page_bytes // dtype.itemsize) * 0.02).to(dtype)
    image = values.view(torch.uint8)
    image = image.pin_memory() if pin else image
    size = sum(s.rank * s.row_bytes for s in specs)
    return AdapterWeights("made", RANK, size, specs, layout, image.numpy(), dtype, True)


class Copies:
    """Every key's host copy is the same bytes under another name."""

    def __init__(self, weights: AdapterWeights) -> None:
        self._weights = weights

    def fetch(self, key: str) -> HostAdapter:
        return replace(self._weights, key=key)

    def drop(self, key: str) -> None:
        """They are all kept."""


# The loader's thread writes to the arena, outside any step: as in a worker, not in this mode.
@torch.inference_mode(False)
def engine_numerics(rig: Rig) -> bool:
    """The device's runner, decode steps replayed and launched, against the CPU's: logits of prompts
    and decode rows, with an adapter and without, in float32."""
    config = synthetic_config(
        layers=1 if rig.toy else 3, hidden=64, heads=4, kv_heads=2, head_dim=16, ff=96
    )
    made = made_weights(Rig(toy=True), config)
    model = LoadedModel("made", config, made, cast(Any, None), "made", True, torch.float32)
    page_bytes = kv_page_bytes(config, PAGE_TOKENS, torch.float32)
    weights = made_adapter(config, torch.float32, page_bytes, pin=not rig.toy)
    pages = 16 + weights.pages
    limits = Limits(slots=4, step_tokens=32, adapters_per_step=2)
    expected = _logits(TorchRunner(model, pages, PAGE_TOKENS), weights)
    wrong = False
    for graphs in (True, False):
        runner = DeviceRunner(model, pages, PAGE_TOKENS, accelerator(rig, limits, graphs))
        found = _logits(runner, weights)
        error = max(float((f - e).abs().max()) for f, e in zip(found, expected, strict=True))
        held = runner.arena.bytes[16:pages].cpu().numpy()
        copied = bool((held == weights.image).all())
        wrong |= not (error <= 1e-3 and copied)
        say(part="numerics", op="runner", graphs=graphs, error=error, adapter_copied=copied)
        print("; ".join(runner.kernels), file=sys.stderr)
    return wrong


def _logits(runner: TorchRunner, weights: AdapterWeights) -> list[torch.Tensor]:
    """Of two prompts, then of steps of one to three rows at given tokens; on the CPU."""
    runner.copy_in(weights, range(16, 16 + weights.pages))
    found = []

    def step(*rows: tuple[str, str | None, int, int, int]) -> None:
        segments = tuple(
            Segment(
                name, "t", key, tuple((first + 3 * i) % 512 for i in range(count)), start,
                (first % 8, 8 + first % 8), True, count > 1,
            )
            for name, key, first, start, count in rows
        )  # fmt: skip
        told = runner.logits(StepPlan(1, segments))
        found.extend(told[s.request_id].cpu() for s in segments)

    tuned = weights.key
    step(("a", tuned, 1, 0, 5), ("b", None, 2, 0, 3))
    for i in range(2):
        at = 2 * i
        step(("a", tuned, 1, 5 + at, 1), ("b", None, 2, 3 + at, 1))
        step(("c", tuned, 3, at, 1))
        step(("a", tuned, 1, 6 + at, 1), ("b", None, 2, 4 + at, 1), ("c", tuned, 3, at + 1, 1))
    return found


# As above.
@torch.inference_mode(False)
def engine_times(rig: Rig) -> bool:
    """Tokens a second of the whole engine, decode steps replayed as graphs and launched."""
    model = model_on(rig)
    rows, prompt, output = (2, 3, 3) if rig.toy else (64, 128, 64)
    adapters = 1 if rig.toy else 16
    page_bytes = kv_page_bytes(model.config, PAGE_TOKENS, model.dtype)
    weights = made_adapter(model.config, model.dtype, page_bytes, pin=not rig.toy)
    kv = rows * (-(-(prompt + output) // PAGE_TOKENS) + 1)
    pages = kv + adapters * weights.pages + 32
    limits = Limits(
        slots=rows,
        step_tokens=16 if rig.toy else 2048,
        adapters_per_step=max(1, adapters),
        pool_bytes=pages * page_bytes,
        max_context=min(4096, model.config.max_context),
        prefix_cache=False,  # the second round's prompts are the first's
    )
    for graphs in (True, False):
        began = time.perf_counter()
        runner = DeviceRunner(model, pages, PAGE_TOKENS, accelerator(rig, limits, graphs))
        started_s = time.perf_counter() - began
        for used in (0, adapters):
            core = _core(runner, limits, weights, used)
            _served(core, rows, prompt, 2, used)  # loads the adapters, warms the allocator
            steps = _served(core, rows, prompt, output, used)
            core.close()
            decode = [s for s, made in steps if made == rows]
            took = sum(s for s, _ in steps)
            say(
                part="engine", graphs=graphs, rows=rows, adapters=used, layers=model.config.layers,
                start_s=round(started_s, 2), steps=len(steps),
                tokens_s=round(sum(made for _, made in steps) / took, 1),
                decode_step_us=round(statistics.median(decode) * 1e6, 1),
                decode_tokens_s=round(rows / statistics.median(decode), 1),
            )  # fmt: skip
        del runner
    return False


# As above.
@torch.inference_mode(False)
def swap_times(rig: Rig) -> bool:
    """An adapter copied in as the loader copies it, against one copy of as many bytes from the same
    memory: into pages that lie in order, and into scattered ones."""
    model = model_on(rig)
    page_bytes = kv_page_bytes(model.config, PAGE_TOKENS, model.dtype)
    weights = made_adapter(model.config, model.dtype, page_bytes, pin=not rig.toy)
    limits = Limits(slots=2 if rig.toy else 16, step_tokens=16, adapters_per_step=1)
    pages = 4 * weights.pages + 64
    runner = DeviceRunner(model, pages, PAGE_TOKENS, accelerator(rig, limits, graphs=False))
    image = torch.from_numpy(weights.image)
    target = torch.empty_like(image, device=rig.device)
    size = image.numel()
    places = torch.randperm(pages)[: weights.pages].tolist()
    whole = rig.eager_us(lambda: target.copy_(image, non_blocking=True))
    in_order = rig.eager_us(lambda: runner.copy_in(weights, range(weights.pages)))
    scattered = rig.eager_us(lambda: runner.copy_in(weights, places))
    say(
        part="swap", bytes=size, link_bytes_s=round(size / whole * 1e6),
        in_order_bytes_s=round(size / in_order * 1e6), of_link=round(whole / in_order, 2),
        scattered_bytes_s=round(size / scattered * 1e6),
        scattered_of_link=round(whole / scattered, 2),
    )  # fmt: skip
    return False


def _core(
    runner: DeviceRunner, limits: Limits, weights: AdapterWeights, adapters: int
) -> EngineCore:
    known = tuple(
        KnownAdapter(f"key-{i}", f"a{i}", weights.pages, weights.device_bytes, RANK, True)
        for i in range(adapters)
    )
    settings = Settings(limits=limits, tenants=(Tenant("t"),))
    pool = PagePool.of_bytes(limits.pool_bytes, runner.page_bytes, 0, 0)
    return EngineCore(
        settings,
        Identity("gpu", "run", "main"),
        SystemClock(),
        runner,
        LoaderThread(runner, Copies(weights)),
        pool,
        COSTS,
        known,
    )


def _served(
    core: EngineCore, rows: int, prompt: int, output: int, adapters: int
) -> list[tuple[float, int]]:
    """(seconds, tokens made) of every step until all requests have ended."""
    round_ = time.monotonic_ns()
    for i in range(rows):
        name = f"a{i % adapters}" if adapters else None
        key = core.adapter_key(name) if name else None
        at = core._clock.now()
        tokens = tuple((7 * i + j) % 256 for j in range(prompt))
        core.submit(Ask(f"r{i}-{round_}", "t", tokens, output, at, at, key, name))
    steps, left = [], rows
    while left:
        if not core.wait_for_work(60.0):
            raise RuntimeError(f"{left} requests do not go on")
        began = time.perf_counter()
        result = core.step()
        steps.append((time.perf_counter() - began, result.made))
        for ending in result.ended:
            left -= 1
            if ending.outcome.value != "finished":
                print(f"a request {ending.outcome.value}: {ending.reason}", file=sys.stderr)
                raise RuntimeError("a request did not finish")
    return [s for s in steps if s[1]]
