"""What one `plan()` costs beside the number of tenants that wait. One core, one run.

    python benchmarks/plan_time.py [--running 256] [--tenants 100,1000,10000] [--steps 2000]

The real scheduler, pool, counters and ledger in virtual time: all slots taken, every tenant with
requests waiting, sequences that end and are replaced all the time (--output tokens each, on
average; 211 is the mean of Azure's public conversation trace), two requests in three with one of
64 adapters. Prints p50 and p99 of plan() and of settle() in CPU time of the thread (a shared
machine takes the core away now and then), and how p50 grows against log(tenants).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time

from engine.arguments import count, counts
from engine.chronicle import KnownAdapter
from engine.clock import TurnedClock
from engine.collector import few_collections
from engine.config import POLICIES, Limits, Settings, Tenant
from engine.core import EngineCore
from engine.costs import CostModel
from engine.loading import LoadDone
from engine.memory.pool import PagePool
from engine.scheduling.plan import StepOutcome
from engine.scheduling.request import Ask
from telemetry.ledger.views import Identity

COSTS = CostModel(0.012, 4e-5, 2e-5, 1e-9, 2e-5)


class AtOnce:
    """A link that has loaded what was ordered by the next step."""

    def __init__(self) -> None:
        self._done = lambda done: None

    def on_done(self, callback):
        self._done = callback

    def begin(self, order) -> None:
        self._done(LoadDone(order.key))

    def forget(self, key: str) -> None: ...

    def drop_copy(self, key: str) -> None: ...

    def close(self) -> None: ...


def measure(
    running: int, tenants: int, steps: int, policy: str, output: int = 211
) -> dict[str, float]:
    rng = random.Random(1)
    clock = TurnedClock()
    names = [f"t{i}" for i in range(tenants)]
    settings = Settings(
        policy=policy,
        limits=Limits(
            slots=running,
            step_tokens=2048,
            adapters_per_step=running,
            max_context=8192,
            queue=10**9,
            queue_per_tenant=10**9,
        ),
        tenants=tuple(Tenant(n) for n in names),
    )
    adapters = tuple(KnownAdapter(f"a{i}", f"a{i}", 16, 16 << 16, 16, True) for i in range(64))
    core = EngineCore(
        settings,
        Identity("bench", "run", "main"),
        clock,
        None,  # nothing is executed: the outcome is made here
        AtOnce(),
        PagePool(running * 64 + 64 * 16, 1 << 16),
        COSTS,
        adapters,
    )
    scheduler, ledger = core.scheduler, core.ledger
    number = 0

    def submit(tenant: str) -> None:
        nonlocal number
        number += 1
        key = f"a{rng.randrange(64)}" if number % 3 else None
        now = clock.now()
        ask = Ask(f"r{number}", tenant, range(1, rng.randint(40, 220)), rng.randint(1, 2 * output),
                  now, now, key, key)  # fmt: skip
        core.submit(ask)

    for name in names * max(2, 4 * running // tenants):
        submit(name)
    plans, settles = [], []
    with few_collections():  # as in a worker
        for step in range(steps + 600):
            with ledger.lock:
                ledger.tick(clock.now())
                core._take_in()
                began = time.thread_time()
                planned = scheduler.plan()
                planned_s = time.thread_time() - began
            for order in planned.orders:
                core._transfers.begin(order)
            clock.turn(scheduler.expected_step_s or 0.001)
            with ledger.lock:
                ledger.tick(clock.now())
                began = time.thread_time()
                settled = scheduler.settle(planned.plan, StepOutcome(None, {}))
                settled_s = time.thread_time() - began
            core._over(settled.ended)
            for _ in settled.ended:
                submit(rng.choice(names))
            if step >= 600:
                plans.append(planned_s)
                settles.append(settled_s)
            if ledger.has_sealed:
                ledger.take(clock.now())
    plans.sort()
    settles.sort()
    return {
        "tenants": tenants,
        "running": scheduler.running,
        "waiting": scheduler.waiting,
        "plan_p50_ms": 1e3 * statistics.median(plans),
        "plan_p99_ms": 1e3 * plans[int(0.99 * len(plans))],
        "settle_p50_ms": 1e3 * statistics.median(settles),
        "settle_p99_ms": 1e3 * settles[int(0.99 * len(settles))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=count, default=256)
    parser.add_argument("--tenants", type=counts, default="100,1000,10000")
    parser.add_argument("--steps", type=count, default=2000)
    parser.add_argument("--policy", choices=POLICIES, default="vtc")
    parser.add_argument("--output", type=count, default=211, help="tokens a request, on average")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(args.running, n, args.steps, args.policy, args.output) for n in args.tenants]
    first = rows[0]
    for row in rows:
        row["growth"] = row["plan_p50_ms"] / first["plan_p50_ms"]
        row["log_growth"] = math.log(max(2, row["tenants"])) / math.log(max(2, first["tenants"]))
    if args.json:
        print(json.dumps(rows))
        return
    print("tenants running waiting  plan p50   p99     settle p50   p99    growth  log(tenants)")
    for r in rows:
        print(
            f"{r['tenants']:>7,} {r['running']:>7} {r['waiting']:>7,} {r['plan_p50_ms']:>7.3f} ms "
            f"{r['plan_p99_ms']:.3f}  {r['settle_p50_ms']:>8.3f} ms {r['settle_p99_ms']:.3f} "
            f"{r['growth']:>8.2f} {r['log_growth']:>8.2f}"
        )


if __name__ == "__main__":
    main()
