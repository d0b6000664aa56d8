"""The cliff: more adapters in turn than the pool has room for, beside two that are always in use.

    python benchmarks/adapter_cliff.py [--seconds 120] [--link 0.25] [--rates 2.5,3] [--json]

About two minutes. Room for exactly 8 adapters (floors keep KV and adapters apart), rank 16 on all
projections of Llama-2-7B (80 MB), on the preset a10g-llama2-7b. The link carries 0.25 GB/s, so
that a load takes 0.34 s, ten times a decode step: at PCIe's 25 GB/s it is 3 ms and there is no
cliff to see (`--link 25` shows that). As many tenants as adapters, 6 to 16:

* `steady-1` and `steady-2` use their own adapters all the time (4 requests/s each, Poisson);
* the others come one after the other, in turn, each with its own, which is the worst order there
  is for least-recently-used: once their adapters are more than the 6 places left, each of them has
  just gone when its tenant comes again. Together 2.5 requests/s, evenly: if all of them miss, their
  loads take 84% of the link. And 3 requests/s: 101%, more than the link carries.

Requests are 64 tokens in, 16 out; everything is served to the end, so nobody's wait is left out.
Printed, with prefetching (8 heads) and without: TTFT p50 and p99 of the steady tenants and of the
others, in seconds; loads a second; the share of requests that found their adapter on the device,
of all, steady and others; how long after the last arrival everything had been served.

Claim: there is no collapse of tenants whose adapters are resident. The steady tenants' TTFT p50
stays within 2x of what it is with 6 adapters, whatever the others do.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from engine.arguments import amount, amounts, counts, span
from engine.config import PoolSpec, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.popularity import generator
from engine.simulation.results import Result
from engine.simulation.setup import Setup, adapter_pages, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import AdapterSpec, Arrival
from telemetry.records import AdapterMinute, Batch

PRESET, RANK, ROOM = "a10g-llama2-7b", 16, 8
ADAPTERS = range(6, 17)
STEADY = ("steady-1", "steady-2")
STEADY_PER_S = 4.0
TURNS_PER_S = (2.5, 3.0)
PROMPT, OUTPUT = 64, 16
KV_PAGES = 1024
HEADS = 8
CLAIMED = 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """One number of adapters. TTFT in seconds; hits are shares of requests."""

    adapters: int
    prefetch: bool
    turns_per_s: float
    steady_p50_s: float
    steady_p99_s: float
    others_p50_s: float
    others_p99_s: float
    loads_per_s: float
    hits: float
    steady_hits: float
    others_hits: float
    drained_s: float  # after the last arrival


class Loads:
    """Takes the worker's rows; counts copies to the device."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, batch: Batch) -> None:
        self.count += sum(r.loads or 0 for r in batch.minutes if isinstance(r, AdapterMinute))


def arrivals(adapters: int, seconds: float, per_s: float, seed: int = 1) -> Iterator[Arrival]:
    """The steady tenants' Poisson streams and the others' even one, merged."""
    found: list[tuple[float, str]] = []
    for tenant in STEADY:
        rng = generator(seed, tenant)
        at = np.cumsum(rng.exponential(1 / STEADY_PER_S, int(2 * seconds * STEADY_PER_S) + 20))
        found += [(float(t), tenant) for t in at if t < seconds]
    others = [f"turn-{i}" for i in range(adapters - len(STEADY))]
    for i in range(int(seconds * per_s)):
        found.append(((i + 0.5) / per_s, others[i % len(others)]))
    for number, (at_s, tenant) in enumerate(sorted(found)):
        yield Arrival(at_s, tenant, f"of {tenant}", PROMPT, OUTPUT, number)


def setup(adapters: int, prefetch: bool, link_gb_per_s: float) -> Setup:
    machine = replace(machine_of(PRESETS[PRESET]), link_bytes_per_s=link_gb_per_s * 1e9)
    room = ROOM * adapter_pages(machine, RANK) * machine.page_bytes
    limits = replace(
        PRESETS[PRESET].limits,
        pool_bytes=room + KV_PAGES * machine.page_bytes,
        kv_floor_bytes=KV_PAGES * machine.page_bytes,
        adapter_floor_bytes=room,
        max_context=4096,
        prefix_cache=False,
        prefetch=HEADS if prefetch else 0,
    )
    tenants = (*STEADY, *(f"turn-{i}" for i in range(adapters - len(STEADY))))
    return Setup(
        name="adapter cliff",
        machine=machine,
        pools=(PoolSpec("main", 1, limits),),
        tenants=tuple(Tenant(t) for t in tenants),
        adapters=tuple(AdapterSpec(f"of {t}", RANK, i) for i, t in enumerate(tenants)),
    )


def play(adapters: int, prefetch: bool, seconds: float, link_gb_per_s: float, per_s: float) -> Run:
    loads = Loads()
    result = simulate(
        arrivals(adapters, seconds, per_s),
        setup(adapters, prefetch, link_gb_per_s),
        rows=loads,
    )
    steady = [result.columns.index[t] for t in STEADY]
    return Run(
        adapters,
        prefetch,
        per_s,
        *ttfts(result, steady, True),
        *ttfts(result, steady, False),
        loads_per_s=loads.count / result.simulated_s,
        hits=hits(result, steady, None),
        steady_hits=hits(result, steady, True),
        others_hits=hits(result, steady, False),
        drained_s=result.simulated_s - seconds,
    )


def ttfts(result: Result, steady: list[int], own: bool) -> tuple[float, float]:
    """p50 and p99 of the steady tenants' requests, or (not `own`) of all others'."""
    columns = result.columns
    here = np.isin(np.frombuffer(columns.tenant, dtype=np.int32), steady, invert=not own)
    of = np.frombuffer(columns.ttft_s)[here]
    p50, p99 = np.nanquantile(of, (0.5, 0.99))
    return float(p50), float(p99)


def hits(result: Result, steady: list[int], own: bool | None) -> float:
    columns = result.columns
    hit = np.frombuffer(columns.hit, dtype=np.int8)
    if own is not None:
        hit = hit[np.isin(np.frombuffer(columns.tenant, dtype=np.int32), steady, invert=not own)]
    return float((hit == 1).sum() / (hit >= 0).sum())


def worst(rows: list[Run]) -> float:
    """The steady tenants' p50 at its longest, as a multiple of the first row's."""
    return max(r.steady_p50_s for r in rows) / rows[0].steady_p50_s


def show(rows: list[Run], load_s: float) -> None:
    first = rows[0]
    print(
        f"\n{first.turns_per_s:g} requests/s in turn, {first.turns_per_s * load_s:.0%} of the link "
        f"if all miss; prefetch {f'of {HEADS} heads' if first.prefetch else 'off'}"
    )
    print(
        f"{'adapters':>8}{'steady TTFT p50/p99':>22}{'others p50/p99':>20}{'loads/s':>9}"
        f"{'hits':>7}{'steady':>8}{'others':>8}{'drained':>10}"
    )
    for r in rows:
        print(
            f"{r.adapters:>8}{f'{r.steady_p50_s:.3f} / {r.steady_p99_s:.3f}':>22}"
            f"{f'{r.others_p50_s:.3f} / {r.others_p99_s:.3f}':>20}{r.loads_per_s:>9.2f}"
            f"{r.hits:>7.0%}{r.steady_hits:>8.0%}{r.others_hits:>8.0%}{r.drained_s:>8.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=span, default=120.0, help="virtual seconds a run")
    parser.add_argument("--link", type=amount, default=0.25, help="GB/s")
    parser.add_argument("--rates", type=amounts, default=",".join(f"{r:g}" for r in TURNS_PER_S))
    parser.add_argument("--adapters", type=counts, default=",".join(map(str, ADAPTERS)))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    tables = [
        [play(n, prefetch, args.seconds, args.link, rate) for n in args.adapters]
        for rate in args.rates
        for prefetch in (True, False)
    ]
    if args.json:
        print(
            json.dumps(
                [{"worst": worst(rows), "runs": [asdict(r) for r in rows]} for rows in tables]
            )
        )
        return
    machine = machine_of(PRESETS[PRESET])
    load_s = adapter_pages(machine, RANK) * machine.page_bytes / args.link / 1e9
    print(
        f"room for {ROOM} adapters; a load takes {load_s:.3f} s; {args.seconds:g} s of arrivals a "
        "run"
    )
    for rows in tables:
        show(rows, load_s)
    print()
    for rows in tables:
        ratio, first = worst(rows), rows[0]
        print(
            f"{'PASS' if ratio <= CLAIMED else 'FAIL'}  steady tenants' TTFT p50 within "
            f"{CLAIMED:g}x at {first.turns_per_s:g}/s, prefetch "
            f"{'on' if first.prefetch else 'off'}: at most {ratio:.2f}x"
        )


if __name__ == "__main__":
    main()
