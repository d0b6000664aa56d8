"""Splits a step's time at the engine's own seams: linears, LoRA, attention, the ops between, head.

Owns the clock and the wrappers that stand at the seams while it lasts; judges nothing. What no
wrapper sees is the decoder's own Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from engine.model.linear import Linear
from engine.runner import torch_runner
from engine.runner.batch import build_batch
from engine.runner.next_tokens import NextTokens
from engine.runner.torch_runner import TorchRunner
from kernels.backend import AdapterBlocks, HeadNorms, PagedRows, Rows, StepLora, StepOps

COST_TRIES, COST_CALLS = 5, 1000
PARTS = ("linears", "lora", "attention", "fused", "head", "batch")


class Meter:
    """Seconds by part since `clear`, while `on`. The outermost part has all of a nested one.

    `own_s` is what the wrappers themselves have taken beside it, at the cost of one that was
    measured on a call of nothing: it is nobody's.
    """

    def __init__(self) -> None:
        self.on = False
        self._inside = False
        self._cost_s = 0.0
        self.clear()
        self._cost_s = self._measured_cost_s()

    def clear(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._calls = 0

    @property
    def own_s(self) -> float:
        return self._calls * self._cost_s

    def _measured_cost_s(self) -> float:
        """Of one call, what its part is not charged with; the least of several tries."""
        call, tries = self.around(PARTS[0], lambda: None), []
        self.on = True
        for _ in range(COST_TRIES):
            self.clear()
            began = time.perf_counter()
            for _ in range(COST_CALLS):
                call()
            passed = time.perf_counter() - began
            tries.append((passed - self.seconds[PARTS[0]]) / COST_CALLS)
        self.on = False
        self.clear()
        return min(tries)

    def around(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter

        def timed(*arguments: Any, **named: Any) -> Any:
            if not self.on or self._inside:
                return call(*arguments, **named)
            self._inside, began = True, clock()
            try:
                return call(*arguments, **named)
            finally:
                self.seconds[part] += clock() - began
                self._calls += 1
                self._inside = False

        return timed


class _Lora:
    """A LoRA backend with its products timed, and its preparation as part of the batch's."""

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner, self._meter = inner, meter
        self._prepare = meter.around("batch", inner.prepare)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prepare(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> StepLora | None:
        step = self._prepare(rows, adapters)
        return None if step is None else _LoraStep(step, self._meter)


class _LoraStep:
    def __init__(self, inner: StepLora, meter: Meter) -> None:
        self._inner = inner
        self._apply = meter.around("lora", inner.apply)

    def apply(self, layer: int, group: str, x: torch.Tensor, y: torch.Tensor) -> None:
        self._apply(layer, group, x, y)


class _Ops:
    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner, self._meter = inner, meter
        self._prepare = meter.around("batch", inner.prepare)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prepare(self, rows: PagedRows) -> StepOps:
        return _OpsStep(self._prepare(rows), self._meter)


class _OpsStep:
    def __init__(self, inner: StepOps, meter: Meter) -> None:
        self._normed = meter.around("fused", inner.normed)
        self._gated = meter.around("fused", inner.gated)
        self._attend = meter.around("attention", inner.attend)

    def normed(
        self, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        answer: torch.Tensor = self._normed(x, added, weight)
        return answer

    def attend(self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None) -> torch.Tensor:
        answer: torch.Tensor = self._attend(layer, qkv, norms)
        return answer

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self._gated(gate_up)
        return answer


@contextmanager
def metered(runner: TorchRunner) -> Iterator[Meter]:
    """The meter of a runner, off at first. Everything stands as it was afterwards."""
    meter = Meter()
    owners: list[tuple[Any, str, Any]] = [
        (Linear, "__call__", meter.around("linears", Linear.__call__)),
        (NextTokens, "choose", meter.around("head", NextTokens.choose)),
        (torch_runner, "build_batch", meter.around("batch", build_batch)),
        (runner, "_lora", _Lora(runner._lora, meter)),
        (runner, "_ops", _Ops(runner._ops, meter)),
    ]
    was = [(owner, name, getattr(owner, name)) for owner, name, _ in owners]
    for owner, name, timed in owners:
        setattr(owner, name, timed)
    try:
        yield meter
    finally:
        for owner, name, value in was:
            setattr(owner, name, value)
