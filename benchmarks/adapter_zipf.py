"""The Zipf curve: how many requests find their adapter on the device, by room and by skew.

    python benchmarks/adapter_zipf.py [--requests 6000] [--adapters 256] [--json]   (two minutes)

256 adapters of one size (rank 8 on all projections of Llama-2-7B, 40 MB), each request with one
drawn by Zipf shares of exponent 0.6 to 1.4, in any order (independent draws). Room for 4 to 192 of
them; floors keep KV and adapters apart. The preset a10g-llama2-7b; 16 tokens in, 2 out, 2 requests
a second, so that hardly two adapters are in use at once and room is all there is to see. The first
third of the requests fills the room and is not counted.

Printed, of the requests that are counted:

    hit rate     found on the device at arrival, by the real scheduler, pool and residency
    lru          the same draws against a list of that many, least recently used goes first
    che          Che's approximation of it: 1 - exp(-p_i*T), T such that the sum is the room
                 (Che, Tung, Wang, Hierarchical Web Caching Systems, 2002)
    top-k        the most popular fill the room for good: the best that any rule can do on average
                 without knowing what comes

Claims: within 1 point of `lru` everywhere (a load takes time, and what is in use cannot go), and
of `che` within 3 (4,000 draws scatter by 1).
"""

from __future__ import annotations

import argparse
import json
from collections import OrderedDict
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.arguments import amounts_or_none, count, counts
from engine.config import PoolSpec, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.popularity import Zipf, generator
from engine.simulation.setup import Setup, adapter_pages, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import AdapterSpec, Arrival

PRESET, RANK = "a10g-llama2-7b", 8
SKEWS = (0.6, 0.8, 1.0, 1.2, 1.4)
ROOMS = (4, 8, 16, 32, 64, 128, 192)
PROMPT, OUTPUT, PER_S = 16, 2, 2.0
KV_PAGES = 512
WARM = 1 / 3  # of the requests
NEAR_LRU, NEAR_CHE = 0.01, 0.03


@dataclass(frozen=True, slots=True)
class Cell:
    """Hit rates as shares of 1."""

    skew: float
    room: int
    hits: float
    lru: float
    che: float
    top_k: float


def measured(draws: NDArray[np.int64], adapters: int, room: int, warm: int) -> float:
    """The simulator's hit rate of the requests from number `warm` on."""
    machine = machine_of(PRESETS[PRESET])
    held = room * adapter_pages(machine, RANK) * machine.page_bytes
    limits = replace(
        PRESETS[PRESET].limits,
        pool_bytes=held + KV_PAGES * machine.page_bytes,
        kv_floor_bytes=KV_PAGES * machine.page_bytes,
        adapter_floor_bytes=held,
        max_context=4096,
        prefix_cache=False,
    )
    setup = Setup(
        name="adapters by popularity",
        machine=machine,
        pools=(PoolSpec("main", 1, limits),),
        tenants=(Tenant("t"),),
        adapters=tuple(AdapterSpec(f"a{i}", RANK, i) for i in range(adapters)),
    )
    arrivals = (
        Arrival(i / PER_S, "t", f"a{a}", PROMPT, OUTPUT, i) for i, a in enumerate(draws.tolist())
    )
    columns = simulate(arrivals, setup).columns
    counted = np.frombuffer(columns.arrived_s) >= warm / PER_S
    hit = np.frombuffer(columns.hit, dtype=np.int8)[counted]
    return float((hit == 1).mean())


def lru(draws: NDArray[np.int64], room: int, warm: int) -> float:
    there: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for number, a in enumerate(draws.tolist()):
        if a in there:
            there.move_to_end(a)
            hits += number >= warm
        else:
            if len(there) >= room:
                there.popitem(last=False)
            there[a] = None
    return hits / (len(draws) - warm)


def che(shares: NDArray[np.float64], room: int) -> float:
    """T by bisection: the sum of 1 - exp(-p*T) over adapters grows with T, up to their number."""
    if room >= len(shares):
        return 1.0
    low, high = 0.0, 1.0
    while -np.expm1(-shares * high).sum() < room:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(-shares * middle).sum() < room else (low, middle)
    return float((shares * -np.expm1(-shares * high)).sum())


def cell(skew: float, room: int, adapters: int, requests: int) -> Cell:
    zipf = Zipf(adapters, skew)
    draws = zipf.draw(generator("adapters", skew), requests)
    warm = int(requests * WARM)
    return Cell(
        skew,
        room,
        measured(draws, adapters, room, warm),
        lru(draws, room, warm),
        che(zipf.shares, room),
        float(zipf.shares[:room].sum()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=count, default=6000, help="a cell")
    parser.add_argument("--adapters", type=count, default=256)
    parser.add_argument("--rooms", type=counts, default=",".join(map(str, ROOMS)))
    parser.add_argument("--skews", type=amounts_or_none, default=",".join(map(str, SKEWS)))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rooms, skews = args.rooms, args.skews
    cells = {(s, r): cell(s, r, args.adapters, args.requests) for s in skews for r in rooms}
    if args.json:
        print(json.dumps([asdict(c) for c in cells.values()]))
        return
    print(f"{args.adapters} adapters, {args.requests:,} requests a cell; hit rate by room")
    print(f"{'skew':>5}  {'':<9}" + "".join(f"{r:>8}" for r in rooms))
    for skew in skews:
        for name, of in (
            ("hit rate", [cells[skew, r].hits for r in rooms]),
            ("lru", [cells[skew, r].lru for r in rooms]),
            ("che", [cells[skew, r].che for r in rooms]),
            ("top-k", [cells[skew, r].top_k for r in rooms]),
        ):
            label = f"{skew:g}" if name == "hit rate" else ""
            print(f"{label:>5}  {name:<9}" + "".join(f"{v:>8.1%}" for v in of))
    off_lru = max(abs(c.hits - c.lru) for c in cells.values())
    off_che = max(abs(c.hits - c.che) for c in cells.values())
    print()
    for claim, off, near in (
        ("lru", off_lru, NEAR_LRU),
        ("che", off_che, NEAR_CHE),
    ):
        print(
            f"{'PASS' if off <= near else 'FAIL'}  within {100 * near:g} point(s) of {claim} "
            f"everywhere: at most {100 * off:.2f}"
        )


if __name__ == "__main__":
    main()
