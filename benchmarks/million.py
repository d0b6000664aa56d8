"""A million requests through the real scheduler, pool and ledger in virtual time, in one thread.

    python benchmarks/million.py [--requests 1000000] [--grow 10000,100000,1000000] [--json]
    python benchmarks/million.py --requests 30000 --profile      (where the time goes)

128 prompt and 64 output tokens on average (lognormal, coefficient of variation 1), 10,000 tenants
and 2,000 adapters drawn by Zipf 1 each, on the preset 4xh100-llama3-70b with its 1,024 slots.
Adapters are of rank 8 on the attention projections (62.5 MiB, 13 of the pool's 28,017 pages): all
2,000 fill 93% of the pool, so that they and the KV press on each other without loads being all
there is. A step may use an adapter for each slot: near capacity it holds about 300. Prompts are
made up, so the prefix cache is off. Poisson arrivals at 95% of what the step budget carries.

The ledger is on and seals a bucket a simulated minute; there is no store, so no rows are built.
Each size runs in a process of its own (peak memory is a process's). The first 10,000 requests fill
an empty engine and its books: less is under way, and steps are smaller, than later.

Printed: wall, CPU time of the process (on a shared machine the smaller one), requests a second of
wall, simulated seconds a second, peak RSS, microseconds of wall a step and a request, requests a
step, the adapters' hit rate, TTFT, and each size's CPU time a request beside the first's; bytes a
request are those above what the process had before its first.

--load 1.2 shows a backlog: fuller steps, and a queue to scan at each of them.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice

from engine.arguments import amount, count, counts
from engine.config import PoolSpec, Tenant
from engine.simulation.arrivals import Process, Spacing, Steady
from engine.simulation.hardware import PRESETS, Preset
from engine.simulation.lengths import Lognormal
from engine.simulation.popularity import Zipf
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import AdapterSpec, Arrival, Traffic
from engine.simulation.workload_stream import stream

PRESET = "4xh100-llama3-70b"
PROMPT, OUTPUT, CV = 128, 64, 1.0
TENANTS, ADAPTERS, ZIPF = 10_000, 2_000, 1.0
RANK, TARGETS = 8, "attention"
LOAD = 0.95
CLAIMED_PER_S, CLAIMED_BYTES = 20_000, 2 << 30


@dataclass(frozen=True, slots=True)
class Run:
    """One size. `capacity_per_s` and `arrivals_per_s` are requests a simulated second."""

    requests: int
    finished: int
    wall_s: float
    cpu_s: float
    requests_per_s: float
    simulated_s: float
    simulated_s_per_s: float
    rss_bytes: int
    empty_rss_bytes: int
    steps: int
    us_a_step: float
    us_a_request: float
    requests_a_step: float
    hit_rate: float
    ttft_p50_s: float
    ttft_p99_s: float
    capacity_per_s: float
    arrivals_per_s: float


def hardware() -> Preset:
    """The preset with this benchmark's adapters in its steps."""
    preset = PRESETS[PRESET]
    return replace(preset, roofline=replace(preset.roofline, rank=RANK, targets=TARGETS))


def capacity_per_s(preset: Preset) -> float:
    """Requests a second of full steps: n new ones each, so n*PROMPT + n*(OUTPUT-1) tokens."""
    budget, costs = preset.limits.step_tokens, preset.costs
    n = budget / (PROMPT + OUTPUT - 1)
    rows = n * (OUTPUT - 1)
    shares = Zipf(ADAPTERS, ZIPF).shares
    adapters = float((1 - (1 - shares) ** (rows + n)).sum())
    square = 1 + CV**2
    keys = n * PROMPT * (PROMPT * square + 1) / 2 + n * OUTPUT * (PROMPT + OUTPUT * square / 2)
    step_s = (
        costs.base_s
        + costs.prefill_token_s * n * PROMPT
        + costs.decode_row_s * rows
        + costs.context_token_s * keys
        + costs.adapter_s * adapters
    )
    return n / step_s


def make(load: float = LOAD, seed: int = 1) -> tuple[Setup, Iterator[Arrival], float]:
    """The setup, endless arrivals, and the capacity in requests a second."""
    preset = hardware()
    limits = replace(
        preset.limits,
        adapters_per_step=preset.limits.slots,
        prefix_cache=False,
        queue=1_000_000,
        queue_per_tenant=1_000_000,
    )
    tenants = tuple(f"t{i}" for i in range(TENANTS))
    adapters = tuple(f"a{i}" for i in range(ADAPTERS))
    capacity = capacity_per_s(preset)
    longest = limits.max_context // 2
    traffic = Traffic(
        "all",
        tenants,
        adapters,
        0.0,
        float("inf"),
        Process(Spacing(1.0), Steady(load * capacity)),
        Lognormal.of_mean(PROMPT, CV, most=longest),
        Lognormal.of_mean(OUTPUT, CV, most=longest),
        tenant_zipf=ZIPF,
        adapter_zipf=ZIPF,
    )
    setup = Setup(
        name="a million requests",
        machine=machine_of(preset),
        pools=(PoolSpec("main", 1, limits),),
        tenants=tuple(Tenant(t) for t in tenants),
        adapters=tuple(AdapterSpec(a, RANK, i, TARGETS) for i, a in enumerate(adapters)),
        seed=seed,
    )
    return setup, stream((traffic,), seed, 0.0, float("inf"), 1.0), capacity


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def play(requests: int, load: float = LOAD, profile: cProfile.Profile | None = None) -> Run:
    setup, arrivals, capacity = make(load)
    empty = peak_bytes()
    if profile is not None:
        profile.enable()
    cpu_s = time.process_time()
    result = simulate(islice(arrivals, requests), setup)
    cpu_s = time.process_time() - cpu_s
    if profile is not None:
        profile.disable()
    assert result.wall is not None
    pool, wall = result.pools[0], result.wall
    ttft = sorted(result.columns.ttft_s)
    return Run(
        requests=requests,
        finished=pool.finished,
        wall_s=wall.wall_s,
        cpu_s=cpu_s,
        requests_per_s=wall.requests_per_s,
        simulated_s=result.simulated_s,
        simulated_s_per_s=wall.simulated_s_per_s,
        rss_bytes=peak_bytes(),
        empty_rss_bytes=empty,
        steps=pool.steps,
        us_a_step=1e6 * wall.wall_s / pool.steps,
        us_a_request=1e6 * wall.wall_s / requests,
        requests_a_step=requests / pool.steps,
        hit_rate=pool.hit_rate or 0.0,
        ttft_p50_s=ttft[len(ttft) // 2],
        ttft_p99_s=ttft[int(0.99 * len(ttft))],
        capacity_per_s=capacity,
        arrivals_per_s=load * capacity,
    )


def apart(requests: int, load: float) -> Run:
    """`play` in a process of its own."""
    command = [sys.executable, __file__, "--requests", str(requests), "--load", str(load), "--json"]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return Run(**json.loads(out)[0])


def show(runs: list[Run]) -> None:
    first = runs[0]
    print(
        f"{PRESET}, 1,024 slots, {PROMPT} in / {OUTPUT} out, {TENANTS:,} tenants, {ADAPTERS:,} "
        f"adapters of rank {RANK} on {TARGETS}; {first.arrivals_per_s:.1f} requests/s = "
        f"{first.arrivals_per_s / first.capacity_per_s:.0%} of {first.capacity_per_s:.1f}"
    )
    print(
        f"{'requests':>9}{'wall':>9}{'CPU':>9}{'requests/s':>12}{'sim s/s':>9}{'peak RSS':>10}"
        f"{'us/step':>9}{'us/req':>8}{'req/step':>10}{'hit rate':>10}{'TTFT p50/p99':>18}"
        f"{'CPU/req':>10}{'bytes/req':>11}"
    )
    for r in runs:
        bytes_each = (r.rss_bytes - r.empty_rss_bytes) / r.requests
        print(
            f"{r.requests:>9,}{r.wall_s:>7.1f} s{r.cpu_s:>7.1f} s{r.requests_per_s:>12,.0f}"
            f"{r.simulated_s_per_s:>9,.0f}{r.rss_bytes / 2**20:>6,.0f} MiB{r.us_a_step:>9,.0f}"
            f"{r.us_a_request:>8.1f}{r.requests_a_step:>10.2f}{r.hit_rate:>10.1%}"
            f"{f'{r.ttft_p50_s:.2f} / {r.ttft_p99_s:.2f} s':>18}"
            f"{(r.cpu_s / r.requests) / (first.cpu_s / first.requests):>8.2f} x{bytes_each:>11,.0f}"
        )
    last = runs[-1]
    print()
    for claim, holds in (
        (f"{last.requests:,} of {last.requests:,} finished", last.finished == last.requests),
        (f">= {CLAIMED_PER_S:,} requests/s", last.requests_per_s >= CLAIMED_PER_S),
        (f"<= {CLAIMED_BYTES / 2**30:.0f} GiB", last.rss_bytes <= CLAIMED_BYTES),
    ):
        print(f"{'PASS' if holds else 'FAIL'}  {claim}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=count, default=1_000_000)
    parser.add_argument(
        "--grow", type=counts, help="several sizes, smallest first, each in its own process"
    )
    parser.add_argument("--load", type=amount, default=LOAD, help="of the capacity")
    parser.add_argument("--profile", action="store_true", help="and where the time goes")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    profile = cProfile.Profile() if args.profile else None
    if args.grow:
        runs = [apart(n, args.load) for n in args.grow]
    else:
        runs = [play(args.requests, args.load, profile)]
    if args.json:
        print(json.dumps([asdict(r) for r in runs]))
        return
    show(runs)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
