"""What telemetry costs: of the engine's time, of a core, and of requests when collectors are bad.

    python benchmarks/telemetry_overhead.py [--model smollm2-135m | synthetic] [--seconds 4]
                                            [--rounds 5] [--quick] [--json]

1. A real pool, 32 slots busy all the time. The ledger's calls inside steps are timed, and so is the
   CPU of the threads that make rows, encode and send, to a store process, every ten seconds. Their
   sum over the wall is what telemetry takes: at most 3%. Beside it, pairs of rounds with and
   without collecting, in alternating order, with ten times as many deliveries: tokens generated
   for a second of the core's CPU.
2. 100 requests/s of 1,000 tenants, simulated with the same scheduler and ledger in virtual time:
   CPU seconds of the ledger, of making rows, encoding and sending over the seconds simulated, at
   most 5% of a core on the worker's side. An open minute is delivered every ten seconds and grows:
   each delivery lies between that of ten seconds alone (`least`) and that of a whole minute
   (`most`, which is judged). The store process's own CPU is told apart.
3. The pool of 1. with a collector that refuses, hangs, answers UNAVAILABLE, has a full disk or is
   stopped, in rounds that alternate with a healthy one's: requests' latency, what was lost and
   whether it is said, and how long closing took: less than 5 s.

On a machine that does other things trust the CPU figures; pairs and latencies are noise there.
Exits 1 when 1., 2., a closing or a count misses; latencies are printed with both sides' rounds,
and judged by who reads them.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.threads import bound_spinning

bound_spinning()

from overhead_rig import (
    COLLECTORS,
    OFTEN_S,
    SPOOL,
    Pool,
    Round,
    StoreProcess,
    healthy,
    timed_ledger,
)

from engine.arguments import amount, count
from engine.config import PoolSpec, Tenant
from engine.simulation.arrivals import Process, Spacing, Steady
from engine.simulation.hardware import PRESETS
from engine.simulation.lengths import Lognormal
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import Traffic
from engine.simulation.workload_stream import stream
from telemetry.otlp import encode
from telemetry.pipeline.exporter import Exporter
from telemetry.records import Batch
from telemetry.service.client import StoreClient

MOST_OF_WALL, MOST_OF_A_CORE, LONGEST_CLOSE_S = 0.03, 0.05, 5.0
PRESET = "4xh100-llama3-70b"
PROMPT, OUTPUT = 128, 32  # mean tokens
TENANTS, RATE = 1000, 100.0
USUAL_S = 10.0  # between deliveries
MINUTE_S = 60.0


def share_of_wall(pool: Pool, seconds: float, rounds: int) -> dict[str, Any]:
    """Part 1: CPU of telemetry over the wall, and pairs with and without."""
    with healthy() as address:
        exporter = Exporter(address)
        pool.gate.exporter = exporter
        pool.play(1.0)  # connected, and every shape met
        pool.deliver_every(min(USUAL_S, seconds))
        with timed_ledger() as timed:
            one = pool.play(max(seconds, min(2 * USUAL_S, 6 * seconds)))
        ledger_s = timed.net_s()
        pool.deliver_every(OFTEN_S)
        gains = []
        for i in range(rounds):
            pair = {}
            for on in (True, False) if i % 2 else (False, True):
                pool.collecting(on)
                pair[on] = pool.play(seconds)
            gains.append(1.0 - rate(pair[True]) / rate(pair[False]))
        pool.collecting(True)
        pool.gate.exporter = None
        stats = exporter.close(2.0)
    return {
        "wall_s": one.wall_s,
        "steps": one.steps,
        "tokens": one.tokens,
        "ledger_s": ledger_s,
        "threads_cpu_s": one.telemetry_cpu_s,
        "ledger_us_a_step": 1e6 * ledger_s / max(1, one.steps),
        "of_wall": (ledger_s + one.telemetry_cpu_s) / one.wall_s,
        "of_core_cpu": (ledger_s + one.telemetry_cpu_s) / one.core_cpu_s,
        "pairs_fewer_tokens": statistics.median(gains),
        "pairs_spread": [min(gains), max(gains)],
        "sent": stats.sent,
        "lost": stats.lost,
    }


def rate(done: Round) -> float:
    """Tokens a second of the core's own CPU: a neighbour on the machine takes none of it."""
    return done.tokens / done.core_cpu_s


class Way:
    """The way out in virtual time: rows are encoded and sent here, and the CPU of it is kept."""

    def __init__(self, address: str) -> None:
        self._client = StoreClient(address, timeout_s=60.0)
        self.encode_s = self.send_s = 0.0
        self.sizes: list[int] = []
        self.rows = 0

    def submit(self, batch: Batch) -> None:
        began = time.thread_time()
        metrics, logs = encode(batch)
        middle = time.thread_time()
        self._client.export(metrics, logs)
        self.encode_s += middle - began
        self.send_s += time.thread_time() - middle
        self.rows += len(batch.minutes)
        self.sizes.append(len(metrics or b"") + len(logs or b""))

    def close(self) -> None:
        self._client.close()


def share_of_a_core(minutes: int, tenants: int, rate_per_s: float) -> dict[str, Any]:
    """Part 2: CPU of the worker's telemetry over simulated seconds."""
    least = simulated(minutes, tenants, rate_per_s, USUAL_S)
    most = simulated(minutes, tenants, rate_per_s, MINUTE_S)
    each = {
        "least": (least["ledger_s"] + least["out_s"], least["store_s"]),
        "most": (
            most["ledger_s"] + most["out_s"] * MINUTE_S / USUAL_S,
            most["store_s"] * MINUTE_S / USUAL_S,
        ),
    }
    seconds = most["simulated_s"]
    return {
        "tenants": tenants,
        "rate_per_s": rate_per_s,
        **most,
        "of_a_core": each["most"][0] / seconds,
        "of_a_core_least": each["least"][0] / least["simulated_s"],
        "of_a_core_ledger": most["ledger_s"] / seconds,
        "store_of_a_core": each["most"][1] / seconds,
        "store_of_a_core_least": each["least"][1] / least["simulated_s"],
    }


def simulated(minutes: int, tenants: int, rate_per_s: float, bucket_s: float) -> dict[str, Any]:
    """CPU seconds of so many minutes in which buckets of `bucket_s` are delivered once."""
    preset = PRESETS[PRESET]
    limits = replace(preset.limits, prefix_cache=False, queue=100_000, queue_per_tenant=100_000)
    names = tuple(f"t{i:04}" for i in range(tenants))
    longest = limits.max_context // 2
    traffic = Traffic(
        "all", names, (), 0.0, float("inf"),
        Process(Spacing(1.0), Steady(rate_per_s)),
        Lognormal.of_mean(PROMPT, 1.0, most=longest),
        Lognormal.of_mean(OUTPUT, 1.0, most=longest),
        tenant_zipf=1.0,
    )  # fmt: skip
    setup = Setup(
        name="a hundred a second",
        machine=machine_of(preset),
        pools=(PoolSpec("main", 1, limits),),
        tenants=tuple(Tenant(n) for n in names),
        adapters=(),
        seed=1,
        bucket_s=bucket_s,
        start_unix_s=float(int(time.time()) // 60 * 60 - 60 * (minutes + 1)),
    )
    store = StoreProcess()
    way = Way(store.address)
    try:
        store_cpu = store.cpu_s()
        with timed_ledger() as timed:
            arrivals = stream((traffic,), 1, 0.0, MINUTE_S * minutes, 1.0)
            result = simulate(arrivals, setup, rows=way)
        store_s = store.cpu_s() - store_cpu
        ledger_s = timed.net_s()
    finally:
        way.close()
        store.close()
    waits = sorted(result.columns.ttft_s)
    return {
        "simulated_s": result.simulated_s,
        "requests": result.pools[0].finished,
        "ttft_p50_s": waits[len(waits) // 2],
        "rows_a_bucket": way.rows * bucket_s / result.simulated_s,
        "bytes_a_bucket": sum(way.sizes) * bucket_s / result.simulated_s,
        "ledger_s": ledger_s,
        "out_s": way.encode_s + way.send_s,
        "store_s": store_s,
    }


def bad_collectors(pool: Pool, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Part 3: a row a collector, its rounds in turn with those of a healthy one."""
    rows = []
    with healthy() as well:
        for name, make in COLLECTORS.items():
            good, bad = [], []
            with make() as address:
                at = {True: Exporter(well), False: Exporter(address, spool_limit_bytes=SPOOL)}
                for i in range(rounds):
                    for is_well in (True, False) if i % 2 else (False, True):
                        pool.gate.exporter = at[is_well]
                        pool.play(min(0.5, seconds))  # those that began with the other one
                        (good if is_well else bad).append(pool.play(seconds))
                pool.gate.exporter = at[False]
                pool.deliver()  # however short the rounds were, there is something to lose
                pool.gate.exporter = None
                at[True].close(2.0)
                began = time.perf_counter()
                stats = at[False].close(2.0)
                close_s = time.perf_counter() - began
            rows.append(
                {
                    "collector": name,
                    "healthy": latency(good),
                    "bad": latency(bad),
                    "threads_of_wall": cpu_of_threads(bad),
                    "healthy_threads_of_wall": cpu_of_threads(good),
                    "sent": stats.sent,
                    "lost": stats.lost,
                    "superseded": stats.superseded,
                    "retries": stats.retries,
                    "said": stats.last_error,
                    "close_s": close_s,
                }
            )
    return rows


def cpu_of_threads(rounds: list[Round]) -> float:
    return statistics.median(r.telemetry_cpu_s / r.wall_s for r in rounds)


def latency(rounds: list[Round]) -> dict[str, Any]:
    """p50 and p99 over all rounds, and from which to which p50 a round goes."""
    every = sorted(x for r in rounds for x in r.latencies_s)
    middles = [statistics.median(r.latencies_s) for r in rounds if r.latencies_s]
    return {
        "requests": len(every),
        "p50_s": every[len(every) // 2] if every else None,
        "p99_s": every[min(len(every) - 1, int(0.99 * len(every)))] if every else None,
        "p50_rounds_s": [min(middles), max(middles)] if middles else None,
    }


def misses(found: dict[str, Any]) -> list[str]:
    wall, core = found["wall"]["of_wall"], found["core"]["of_a_core"]
    missed = []
    if wall > MOST_OF_WALL:
        missed.append(f"{wall:.1%} of the wall, aim {MOST_OF_WALL:.0%}")
    if core > MOST_OF_A_CORE:
        missed.append(f"{core:.1%} of a core, aim {MOST_OF_A_CORE:.0%}")
    for row in found["collectors"]:
        name = row["collector"]
        if row["close_s"] >= LONGEST_CLOSE_S:
            missed.append(f"{name}: closing took {row['close_s']:.1f} s")
        if not (row["lost"] and row["said"]):
            missed.append(f"{name}: {row['lost']} lost and said {row['said']!r}")
    return missed


def text(found: dict[str, Any]) -> str:
    w, c = found["wall"], found["core"]
    low, high = w["pairs_spread"]
    lines = [
        f"real pool, {w['steps']} steps, {w['tokens']} tokens in {w['wall_s']:.1f} s",
        f"  telemetry            {w['of_wall']:7.2%} of the wall (aim {MOST_OF_WALL:.0%}): ledger "
        f"{w['ledger_us_a_step']:.0f} us a step, threads {w['threads_cpu_s']:.2f} s of CPU; "
        f"{w['of_core_cpu']:.2%} of the core thread's CPU",
        f"  with, against without {w['pairs_fewer_tokens']:+.1%} tokens a CPU second less "
        f"(pairs from {low:+.1%} to {high:+.1%})",
        f"{c['rate_per_s']:g} requests/s of {c['tenants']} tenants, {c['simulated_s']:.0f} s "
        f"simulated, TTFT p50 {c['ttft_p50_s']:.2f} s: {c['rows_a_bucket']:.0f} rows, "
        f"{c['bytes_a_bucket'] / 1e6:.1f} MB a minute",
        f"  the worker's side    {c['of_a_core']:7.2%} of a core at most (aim "
        f"{MOST_OF_A_CORE:.0%}), {c['of_a_core_least']:.2%} at least, "
        f"of it the ledger {c['of_a_core_ledger']:.2%}",
        f"  the store process    {c['store_of_a_core']:7.2%} of a core at most, "
        f"{c['store_of_a_core_least']:.2%} at least",
        "collector     p50 ms healthy     p99 ms healthy  threads' CPU   lost  close s  said",
    ]
    for r in found["collectors"]:
        bad, well = r["bad"], r["healthy"]
        lines.append(
            f"{r['collector']:<12}{_ms(bad['p50_s']):>8}{_ms(well['p50_s']):>8}"
            f"{_ms(bad['p99_s']):>11}{_ms(well['p99_s']):>8}{r['threads_of_wall']:>14.2%}"
            f"{r['lost']:>7}{r['close_s']:>9.2f}  {r['said'][:60]}"
        )
    lines += [f"MISSED  {what}" for what in misses(found)]
    return "\n".join(lines)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.0f}"


def measure(
    model: str,
    seconds: float,
    rounds: int,
    minutes: int,
    tenants: int,
    rate_per_s: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    pool = Pool(model, tenants=32, clients=40, say=say)
    try:
        say("telemetry's share of the wall")
        wall = share_of_wall(pool, seconds, rounds)
        say("bad collectors")
        collectors = bad_collectors(pool, seconds, rounds)
    finally:
        pool.close()
    say("telemetry's share of a core")
    core = share_of_a_core(minutes, tenants, rate_per_s)
    return {"model": model, "wall": wall, "core": core, "collectors": collectors}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="or synthetic, which is tiny")
    parser.add_argument("--seconds", type=amount, default=4.0, help="of a round")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--minutes", type=count, default=5, help="simulated in part 2")
    parser.add_argument("--tenants", type=count, default=TENANTS, help="in part 2")
    parser.add_argument("--rate", type=amount, default=RATE, help="requests/s in part 2")
    parser.add_argument("--quick", action="store_true", help="one short round of each, synthetic")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.rounds, arguments.minutes = 0.3, 1, 1
        arguments.tenants, arguments.rate, arguments.model = 50, 5.0, "synthetic"
    found = measure(
        arguments.model, arguments.seconds, arguments.rounds, arguments.minutes,
        arguments.tenants, arguments.rate,
        lambda what: print(what, file=sys.stderr, flush=True),
    )  # fmt: skip
    if arguments.json:
        print(json.dumps({"machine": platform.machine(), **found, "missed": misses(found)}))
    else:
        print(text(found))
    return 1 if misses(found) else 0


if __name__ == "__main__":
    sys.exit(main())
