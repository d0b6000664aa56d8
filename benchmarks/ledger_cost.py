"""What the ledger costs a step, as a share of a real 32-row decode step. One run, medians.

    python benchmarks/ledger_cost.py [--rows 32] [--tenants 8] [--waiting 200]

The ledger's side: the real core with a runner that takes no time, `rows` decoding sequences and
`waiting` requests behind them; every outermost call into the ledger is timed. The step's side: the
real runner on decode rows of the same number, context 256, eight adapters of rank 16.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.threads import bound_spinning

bound_spinning()

from engine.clock import SystemClock
from engine.config import Limits, Settings, Tenant
from engine.core import EngineCore
from engine.costs import CostModel
from engine.loading import LoadDone
from engine.memory.pool import PagePool
from engine.memory.residency import LoadOrder
from engine.model.loaders import load_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import StepOutcome, StepPlan
from engine.scheduling.request import Ask
from engine.warmup import Shape, plan_of
from telemetry.ledger import Ledger
from telemetry.views import Identity


class NoRunner:
    """Produces tokens in no time."""

    def execute(self, plan: StepPlan) -> StepOutcome:
        return StepOutcome({s.request_id: 1 for s in plan.segments if s.samples}, {})


class NoTransfers:
    def on_done(self, callback: Callable[[LoadDone], None]) -> None: ...

    def begin(self, order: LoadOrder) -> None: ...

    def forget(self, key: str) -> None: ...

    def close(self) -> None: ...


class Stopwatch:
    """Times the outermost calls into a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.total_s = 0.0
        self._depth = 0
        for name in ("tick", "begin", "settle", "waits", "joined", "ended", "count", "counter",
                     "first_token", "first_scheduled", "gap", "engine_count"):  # fmt: skip
            setattr(ledger, name, self._timed(getattr(ledger, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return call(*args, **kwargs)
            self._depth = 1
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.total_s += time.perf_counter() - began
                self._depth = 0

        return timed


def ledger_side(rows: int, tenants: int, waiting: int, steps: int) -> tuple[float, float]:
    """Median seconds a step: in the ledger, and in all of planning and settling."""
    names = [f"tenant-{i}" for i in range(tenants)]
    clock = SystemClock()
    core = EngineCore(
        Settings(
            limits=Limits(slots=rows, step_tokens=4 * rows, max_context=100_000),
            tenants=tuple(Tenant(n) for n in names),
        ),
        Identity("bench", "run", "main"),
        clock,
        NoRunner(),
        NoTransfers(),
        PagePool(200_000, 4096),
        CostModel(0.02, 1e-4, 1e-3, 1e-8, 0.001),
    )
    watch = Stopwatch(core.ledger)
    for i in range(rows + waiting):
        now = clock.now()
        core.submit(Ask(f"r{i}", names[i % tenants], (1,) * 16, 50_000, now, now))
    for _ in range(rows):
        core.step()
    in_ledger, whole = [], []
    for _ in range(steps):
        before, began = watch.total_s, time.perf_counter()
        core.step()
        whole.append(time.perf_counter() - began)
        in_ledger.append(watch.total_s - before)
    return statistics.median(in_ledger), statistics.median(whole)


def step_side(model_name: str, rows: int, repeats: int) -> float:
    """Median seconds of a real decode step of `rows` rows with eight adapters."""
    model = load_model(model_name)
    limits = Limits(slots=rows)
    runner = TorchRunner(model, 20 * rows + 600, limits.page_tokens)
    keys, end = [], runner.pages
    with tempfile.TemporaryDirectory() as folder:
        for i in range(8):
            path = Path(folder) / str(i)
            make_adapter(path, model.config, 16, seed=i)
            adapter = read_adapter(path, model.config, model.dtype, runner.page_bytes)
            runner.copy_in(adapter, range(end - adapter.pages, end))
            end -= adapter.pages
            keys.append(adapter.key)
    plan = plan_of(Shape(rows=rows, context=256, adapters=8), 1, limits, keys, end)
    times = []
    for _ in range(repeats + 3):
        began = time.perf_counter()
        runner.execute(plan)
        times.append(time.perf_counter() - began)
    return statistics.median(times[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tenants", type=int, default=8)
    parser.add_argument("--waiting", type=int, default=200)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--model", default="smollm2-135m")
    args = parser.parse_args()
    in_ledger, whole = ledger_side(args.rows, args.tenants, args.waiting, args.steps)
    step = step_side(args.model, args.rows, args.repeats)
    print(f"ledger                {in_ledger * 1e6:9.0f} us a step   {in_ledger / step:7.2%}")
    print(f"plan, settle, ledger  {whole * 1e6:9.0f} us a step   {whole / step:7.2%}")
    print(f"real step             {step * 1e6:9.0f} us            {args.rows} rows, 8 adapters")


if __name__ == "__main__":
    main()
