"""What telemetry costs: of the engine's time, of a core, and of requests when collectors are bad.

    python benchmarks/telemetry_overhead.py [--model smollm2-135m | synthetic] [--seconds 3]
                                            [--rounds 8] [--quick] [--json]

1. A real pool, 32 slots busy all the time. The ledger's calls inside steps are timed, and so is the
   CPU of the threads that make rows, encode and send, to a store process, every ten seconds. Their
   sum over the wall is what telemetry takes: at most 3%. Beside it, pairs of rounds with and
   without collecting, in alternating order, with ten times as many deliveries: the core's CPU for
   a token.
2. 100 requests/s of 1,000 tenants, simulated with the same scheduler and ledger in virtual time:
   CPU seconds of the ledger, of making rows, encoding and sending over the seconds simulated, at
   most 5% of a core on the worker's side. An open minute is delivered every ten seconds and grows:
   each delivery lies between that of ten seconds alone (`least`) and that of a whole minute
   (`most`, which is judged). The store process's own CPU is told apart.
3. The pool of 1. with a collector that refuses, hangs, answers UNAVAILABLE, has a full disk or is
   stopped. A cycle is a round of each and one of a healthy collector, in changing order, each with
   an exporter of its own that is closed after it. A bad round is compared with its cycle's healthy
   one: requests' latency, and the core's CPU for a token, of which no neighbour takes any. Medians
   of the ratios, each with an interval that holds the true one in nine of ten cases: "unchanged"
   when it ends below 1 + 5%, "more" when it begins above that, else "undecided". Also what was lost
   and whether it is said, and how long the last closing took: less than 5 s.

Defaults take under six minutes, --quick a fraction of one. Exits 1 when 1., 2., a closing or a
count misses, or when a bad collector costs more. A busy machine makes intervals wide.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
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
from paired import Ratios, ratios

from engine.arguments import amount, count
from engine.config import PoolSpec, Tenant
from engine.simulation.arrivals import Process, Spacing, Steady
from engine.simulation.hardware import PRESETS
from engine.simulation.lengths import Lognormal
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import Traffic
from engine.simulation.workload_stream import stream
from telemetry.ledger.taken import Taken
from telemetry.otlp import encode
from telemetry.pipeline.exporter import Exporter
from telemetry.records import Batch
from telemetry.service.client import StoreClient

MOST_OF_WALL, MOST_OF_A_CORE, LONGEST_CLOSE_S = 0.03, 0.05, 5.0
PRESET = "4xh100-llama3-70b"
PROMPT, OUTPUT = 128, 32  # mean tokens
TENANTS, RATE = 1000, 100.0
USUAL_S = 10.0  # between deliveries
TOLERANCE = 0.05  # of latency: less is "unchanged"
HEALTHY = "healthy"
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
        pairs = []
        for i in range(rounds):
            pair = {}
            for on in (True, False) if i % 2 else (False, True):
                pool.collecting(on)
                pair[on] = cpu_a_token(pool.play(seconds))
            pairs.append((pair[True], pair[False]))
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
        "ledger_of_wall": ledger_s / one.wall_s,
        "of_wall": (ledger_s + one.telemetry_cpu_s) / one.wall_s,
        "of_core_cpu": (ledger_s + one.telemetry_cpu_s) / one.core_cpu_s,
        "cpu_a_token": asdict(ratios(pairs)),
        "sent": stats.sent,
        "lost": stats.lost,
    }


def cpu_a_token(done: Round) -> float:
    """Of the core's own thread: a neighbour on the machine takes none of it."""
    return done.core_cpu_s / max(1, done.tokens)


class Way:
    """The way out in virtual time: rows are encoded and sent here, and the CPU of it is kept."""

    def __init__(self, address: str) -> None:
        self._client = StoreClient(address, timeout_s=60.0)
        self.minutes_s = self.logs_s = 0.0
        self.sizes: list[int] = []
        self.rows = 0

    def submit(self, batch: Batch) -> None:
        began = time.thread_time()
        metrics, _ = encode(replace(batch, logs=()))
        self._client.export(metrics, None)
        middle = time.thread_time()
        _, logs = encode(replace(batch, minutes=()))
        if logs is not None:
            self._client.export(None, logs)
        self.minutes_s += middle - began
        self.logs_s += time.thread_time() - middle
        self.rows += len(batch.minutes)
        self.sizes.append(len(metrics or b"") + len(logs or b""))

    def close(self) -> None:
        self._client.close()


def share_of_a_core(minutes: int, tenants: int, rate_per_s: float) -> dict[str, Any]:
    """Part 2: CPU of the worker's telemetry over simulated seconds."""
    least = simulated(minutes, tenants, rate_per_s, USUAL_S)
    most = simulated(minutes, tenants, rate_per_s, MINUTE_S)
    often = MINUTE_S / USUAL_S  # rows of requests travel once, a minute so often
    of_most = most["ledger_s"] + most["logs_s"] + often * most["minutes_s"]
    of_least = least["ledger_s"] + least["logs_s"] + least["minutes_s"]
    seconds = most["simulated_s"]
    return {
        "tenants": tenants,
        "rate_per_s": rate_per_s,
        **most,
        "of_a_core": of_most / seconds,
        "of_a_core_least": of_least / least["simulated_s"],
        "of_a_core_ledger": most["ledger_s"] / seconds,
        "store_of_a_core": often * most["store_s"] / seconds,
        "store_of_a_core_least": least["store_s"] / least["simulated_s"],
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
        with timed_ledger() as timed, timed_ledger(Taken) as rows:
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
        "minutes_s": rows.net_s() + way.minutes_s,
        "logs_s": way.logs_s,
        "store_s": store_s,
    }


def bad_collectors(pool: Pool, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Part 3: a row a collector, from so many cycles."""
    order = random.Random(1)
    played: dict[str, list[Round]] = {name: [] for name in (HEALTHY, *COLLECTORS)}
    lost = dict.fromkeys(played, 0)
    said = dict.fromkeys(played, "")
    close_s = dict.fromkeys(played, 0.0)
    with ExitStack() as stack:
        addresses = {HEALTHY: stack.enter_context(healthy())}
        for name, make in COLLECTORS.items():
            addresses[name] = stack.enter_context(make())
        for cycle in range(rounds):
            for name in order.sample(sorted(played), len(played)):
                exporter = Exporter(addresses[name], spool_limit_bytes=SPOOL)
                pool.gate.exporter = exporter
                pool.play(min(0.5, seconds / 4))  # those that began with another one
                played[name].append(pool.play(seconds))
                pool.deliver()  # however short the rounds are, there is something to lose
                pool.gate.exporter = None
                began = time.perf_counter()
                stats = exporter.close(2.0 if cycle == rounds - 1 else 0.1)
                close_s[name] = time.perf_counter() - began
                lost[name] += stats.lost
                said[name] = stats.last_error or said[name]
    well = played[HEALTHY]
    return [
        {
            "collector": name,
            "latency": asdict(compared(played[name], well, middle_s)),
            "cpu_a_token": asdict(compared(played[name], well, cpu_a_token)),
            "healthy": latency(well),
            "bad": latency(played[name]),
            "threads_of_wall": cpu_of_threads(played[name]),
            "healthy_threads_of_wall": cpu_of_threads(well),
            "lost": lost[name],
            "said": said[name],
            "close_s": close_s[name],
        }
        for name in COLLECTORS
    ]


def compared(bad: list[Round], well: list[Round], what: Callable[[Round], float]) -> Ratios:
    """Bad rounds over the healthy ones of their cycles; a cycle in which nobody was answered has
    nothing to say."""
    both = [(b, w) for b, w in zip(bad, well, strict=True) if b.latencies_s and w.latencies_s]
    return ratios([(what(b), what(w)) for b, w in both])


def middle_s(done: Round) -> float:
    return statistics.median(done.latencies_s)


def cpu_of_threads(rounds: list[Round]) -> float:
    return statistics.median(r.telemetry_cpu_s / r.wall_s for r in rounds)


def latency(rounds: list[Round]) -> dict[str, Any]:
    """p50 and p99 over all rounds."""
    every = sorted(x for r in rounds for x in r.latencies_s)
    return {
        "requests": len(every),
        "p50_s": every[len(every) // 2] if every else None,
        "p99_s": every[min(len(every) - 1, int(0.99 * len(every)))] if every else None,
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
        for what in ("latency", "cpu_a_token"):
            found_ratio = Ratios(**row[what])
            if found_ratio.verdict(TOLERANCE) == "more":
                missed.append(f"{name}: {what} {shown(found_ratio)} of a healthy collector's")
        if row["close_s"] >= LONGEST_CLOSE_S:
            missed.append(f"{name}: closing took {row['close_s']:.1f} s")
        if not (row["lost"] and row["said"]):
            missed.append(f"{name}: {row['lost']} lost and said {row['said']!r}")
    return missed


def text(found: dict[str, Any]) -> str:
    w, c = found["wall"], found["core"]
    lines = [
        f"real pool, {w['steps']} steps, {w['tokens']} tokens in {w['wall_s']:.1f} s",
        f"  telemetry            {w['of_wall']:7.2%} of the wall (aim {MOST_OF_WALL:.0%}): ledger "
        f"{w['ledger_us_a_step']:.0f} us a step, {w['ledger_of_wall']:.2%}; threads "
        f"{w['threads_cpu_s']:.2f} s of CPU; {w['of_core_cpu']:.2%} of the core thread's CPU",
        f"  a token's CPU, collecting ten times as often over not collecting: "
        f"{shown(Ratios(**w['cpu_a_token']))}",
        f"{c['rate_per_s']:g} requests/s of {c['tenants']} tenants, {c['simulated_s']:.0f} s "
        f"simulated, TTFT p50 {c['ttft_p50_s']:.2f} s: {c['rows_a_bucket']:.0f} rows, "
        f"{c['bytes_a_bucket'] / 1e6:.1f} MB a minute",
        f"  the worker's side    {c['of_a_core']:7.2%} of a core at most (aim "
        f"{MOST_OF_A_CORE:.0%}), {c['of_a_core_least']:.2%} at least, "
        f"of it the ledger {c['of_a_core_ledger']:.2%}",
        f"  the store process    {c['store_of_a_core']:7.2%} of a core at most, "
        f"{c['store_of_a_core_least']:.2%} at least",
        "collector    latency of a healthy one's   CPU a token             p50 ms bad, healthy"
        "   lost  close s  said",
    ]
    for r in found["collectors"]:
        both = [Ratios(**r[what]) for what in ("latency", "cpu_a_token")]
        lines.append(
            f"{r['collector']:<13}{shown(both[0]):<30}{shown(both[1]):<30}"
            f"{_ms(r['bad']['p50_s']):>6}{_ms(r['healthy']['p50_s']):>8}"
            f"{r['lost']:>7}{r['close_s']:>9.2f}  {r['said'][:50]}"
        )
        lines.append(f"{'':<13}{both[0].verdict(TOLERANCE):<30}{both[1].verdict(TOLERANCE)}")
    lines += [f"MISSED  {what}" for what in misses(found)]
    return "\n".join(lines)


def shown(found: Ratios) -> str:
    """The median and its interval."""
    return f"{found.median:.3f} ({found.low:.3f}-{found.high:.3f})"


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
    parser.add_argument("--seconds", type=amount, default=3.0, help="of a round")
    parser.add_argument("--rounds", type=count, default=8)
    parser.add_argument("--minutes", type=count, default=5, help="simulated in part 2")
    parser.add_argument("--tenants", type=count, default=TENANTS, help="in part 2")
    parser.add_argument("--rate", type=amount, default=RATE, help="requests/s in part 2")
    parser.add_argument("--quick", action="store_true", help="three short rounds, synthetic")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.rounds, arguments.minutes = 0.4, 3, 1
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
