"""What the ledger costs, a step and a request, and as a share of a real decode step.

    python benchmarks/ledger_cost.py [--running 256] [--tenants 1000] [--model smollm2-135m | none]

The ledger's side: a scheduler's calls by themselves (no scheduler runs), `running` sequences of
`tenants` tenants that all wait, a mix of reasons, some requests joining, starting and ending each
step, buckets sealed on the way and rows made by nobody; with rows, what a bucket's delivery costs
is printed beside. The step's side: the real runner on 32 decode rows, eight adapters of rank 16.
Targets: 100 us a step at 256 running and 1,000 active tenants, 10 us a request. On a shared or
slow machine the ratio to the real step is what holds.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.arguments import count
from telemetry.ledger.interference import SHARED
from telemetry.ledger.ledger import Ledger, PoolFacts
from telemetry.ledger.views import Ended, Identity, StepView, Verdict
from telemetry.records import RequestRecord

STEP_TARGET_US, REQUEST_TARGET_US = 100.0, 10.0
STEP_S = 0.025
CLOCK = time.thread_time  # of this thread alone: others on the machine do not count
REASONS = ("slot", "slot", "slot", "budget", "kv")


def make_row(_: Verdict) -> RequestRecord:
    raise RuntimeError("rows are made by nobody here")


class Nobody:
    """In the ledger's place, to time the calls themselves."""

    has_sealed = False

    def __init__(self, ledger: Ledger) -> None:
        self.index, self.width = ledger.index, ledger.width

    def nothing(self, *_: object) -> None: ...

    tick = joined = wait_ended = runs = in_step = kv_bytes = nothing
    first_scheduled = first_token = ended = begin = settle = nothing


class Life:
    """A pool's life as a scheduler tells it, with times taken around the ledger's calls only."""

    def __init__(self, running: int, tenants: int, wall_s: float = 0.0) -> None:
        ledger = Ledger(
            Identity("bench", "run", "main"),
            PoolFacts(running, 1 << 34),
            wall_s=wall_s,
            bucket_s=60.0,
        )
        ledger.counter_of = lambda tenant: 0.0
        self.ledger: Ledger | Nobody = ledger
        self.names = [f"tenant-{i}" for i in range(tenants)]
        self._random = random.Random(1)
        self.now = 0.0
        self._made = 0
        self._step = 0
        self._waiting: deque[tuple[str, str]] = deque()
        self._running: deque[tuple[str, str]] = deque()
        for name in self.names:
            for _ in range(2):
                self._join(name)
        self._random.shuffle(self._waiting)
        for _ in range(running):
            self._start()

    def _join(self, tenant: str) -> None:
        self._made += 1
        request = f"r{self._made}"
        self.ledger.joined(request, tenant, self.now, self.now)
        self._waiting.append((request, tenant))

    def _start(self) -> None:
        request, tenant = self._waiting.popleft()
        ledger = self.ledger
        ledger.wait_ended(request, tenant, SHARED)
        ledger.runs(tenant, 1)
        ledger.in_step(tenant, 1)
        ledger.kv_bytes(tenant, 8 * 65536.0)
        ledger.first_scheduled(request)
        self._running.append((request, tenant))

    def _end(self) -> None:
        request, tenant = self._running.popleft()
        ledger = self.ledger
        ledger.in_step(tenant, -1)
        ledger.runs(tenant, -1)
        ledger.kv_bytes(tenant, -8 * 65536.0)
        ledger.ended(Ended(request, tenant, "finished", 0.03, 0.04, 64), make_row)

    def step(self, requests: int) -> tuple[float, float]:
        """One step in which so many requests end, start, get a first token and join: seconds in
        the step's own calls, and in the requests'."""
        ledger, names, pick = self.ledger, self.names, self._random
        costs = np.zeros(ledger.width)
        decoded = np.zeros(ledger.width)
        for _, tenant in self._running:
            costs[ledger.index(tenant)] += 0.6 * STEP_S / len(self._running)
            decoded[ledger.index(tenant)] += 1.0
        prefill = {tenant: 0.1 * STEP_S for _, tenant in list(self._running)[-requests:]}
        self._step += 1
        joining = [pick.choice(names) for _ in range(requests)]
        began = CLOCK()
        ledger.tick(self.now)
        for tenant in joining:
            self._join(tenant)
        for _ in range(requests):
            self._start()
        requests_s = CLOCK() - began
        view = StepView(
            self._step, STEP_S, pick.choice(REASONS), costs, prefill,
            free_bytes=1e9, cached_bytes=1e8, prefill_tokens=64, decode_rows=len(self._running),
        )  # fmt: skip
        began = CLOCK()
        ledger.begin(view, self.now)
        self.now += STEP_S * pick.uniform(0.9, 1.1)
        ledger.tick(self.now)
        ledger.settle({}, decoded, self.now)
        step_s = CLOCK() - began
        newest = list(self._running)[-requests:]
        began = CLOCK()
        for request, tenant in newest:
            ledger.first_token(request, tenant, 0.2)
        for _ in range(requests):
            self._end()
        requests_s += CLOCK() - began
        began = CLOCK()
        self.now += 2e-4
        ledger.tick(self.now)
        if ledger.has_sealed:
            ledger.take(self.now)
        return step_s + CLOCK() - began, requests_s


class Step(NamedTuple):
    """Seconds of the ledger a step, its requests and all. `quiet` is the lower tenth: what it
    takes when nothing else on the machine sweeps the caches; the mean has the seals in it."""

    median: float
    quiet: float
    mean: float


def ledger_side(running: int, tenants: int, requests: int, steps: int) -> tuple[Life, Step, float]:
    """The ledger's own time a step, and the median seconds a request."""
    life = Life(running, tenants)
    for _ in range(50):
        life.step(requests)
    pairs = [life.step(requests) for _ in range(steps)]
    ledger, life.ledger = life.ledger, Nobody(life.ledger)
    calls = [life.step(requests) for _ in range(300)]  # what is not the ledger's
    life.ledger = ledger
    own = statistics.median(a + b for a, b in calls)
    own_request = statistics.median(b for _, b in calls) / requests
    both = [a + b - own for a, b in pairs]
    a_request = statistics.median(b for _, b in pairs) / requests - own_request
    quiet = statistics.quantiles(both, n=10)[0]
    return life, Step(statistics.median(both), quiet, statistics.fmean(both)), a_request


def step_side(model_name: str, rows: int, repeats: int) -> float:
    """Median seconds of a real decode step of `rows` rows with eight adapters."""
    from engine.threads import bound_spinning

    bound_spinning()
    from engine.config import Limits
    from engine.model.loaders import load_model
    from engine.model.lora import read_adapter
    from engine.model.made_adapters import make_adapter
    from engine.runner.torch_runner import TorchRunner
    from engine.warmup import Shape, plan_of

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


def delivery(life: Life) -> tuple[float, float, int]:
    """(seconds under the lock, seconds outside it, rows) of one delivery with all its rows."""
    life.ledger._logs.clear()  # rows of requests are not what is measured
    began = CLOCK()
    taken = life.ledger.take(life.now)
    locked = CLOCK() - began
    began = CLOCK()
    rows = sum(len(b.minutes) for b in taken.batches())
    return locked, CLOCK() - began, rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", type=count, default=256)
    parser.add_argument("--tenants", type=count, default=1000)
    parser.add_argument("--requests", type=count, default=4, help="that end and start in each step")
    parser.add_argument("--steps", type=count, default=3000)
    parser.add_argument("--repeats", type=count, default=20)
    parser.add_argument("--model", default="smollm2-135m", help="for the real step; none = skip")
    args = parser.parse_args()
    life, a_step, a_request = ledger_side(args.running, args.tenants, args.requests, args.steps)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    locked, rows_s, rows = delivery(life)
    print(f"{args.running} running, {args.tenants} active tenants, {args.requests} requests a step")
    print(
        f"a step, requests and all  {a_step.median * 1e6:7.1f} us median, "
        f"{a_step.quiet * 1e6:.1f} quiet tenth, {a_step.mean * 1e6:.1f} mean"
        f"   (target {STEP_TARGET_US:.0f})"
    )
    print(f"a request, join to end    {a_request * 1e6:7.1f} us   (target {REQUEST_TARGET_US:.0f})")
    print(f"a delivery of {rows} rows  {locked * 1e3:.1f} ms under the lock,"
          f" {rows_s * 1e3:.0f} ms outside it")  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"peak memory               {memory} MiB, {peak} MiB with the delivery's rows")
    if args.model != "none":
        step = step_side(args.model, 32, args.repeats)
        print(
            f"a real step of 32 rows    {step * 1e3:7.1f} ms"
            f"   the ledger's mean is {a_step.mean / step:.2%} of it"
        )


if __name__ == "__main__":
    main()
