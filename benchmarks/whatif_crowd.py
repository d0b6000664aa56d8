"""Is a replay of very many victims believed when it is true, and refused when it is not.

    python benchmarks/whatif_crowd.py [--tenants 120] [--seeds 2] [--policy vtc] [--json]

A pool of uneven tenants is flooded by one of them, on a machine whose steps take now more, now less
than its cost model says (each stretch of 0.3 to 2 s at a factor of its own): no replay knows that,
as none knows it of a real engine. Its telemetry is what the what-if gets. Printed: the verdict on
the replay as it is made, and on replays made wrong on purpose (steps longer or shorter than they
were, a prefill token dearer, another policy, some victims in another tier): how far those hurt
together are off, how many victims are, how many between two replays of the same, and whether
anything would be concluded.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.kept_rows import Kept
from engine.arguments import count, counts
from engine.config import PoolSpec, Slo, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival, Fault
from postmortem.whatif.fidelity import compare
from postmortem.whatif.model import NoConclusion
from postmortem.whatif.prepare import Prepared, prepare
from postmortem.whatif.replay import MOMENT_S, Job, replay
from telemetry.window import read_window

RATE_PER_S = 24.0
CALM_S, FLOOD_S, SPAN_S = 300.0, 150.0, 540.0
UNEVEN = 0.2  # spread of the logarithm of a stretch's factor


@dataclass(frozen=True, slots=True)
class Row:
    """One replay. Errors are of those hurt together, relative to what was recorded."""

    seed: int
    replay: str
    victims: int
    p50_error: float | None
    p99_error: float | None
    off: int
    by_chance: int | None
    concluded: bool
    why: str | None


def flooded(seed: int, tenants: int, policy: str) -> tuple[Setup, list[Arrival]]:
    rng = random.Random(seed)
    preset = PRESETS["a100-80-llama2-13b"]
    machine = machine_of(preset)
    limits = replace(preset.limits, prefix_cache=False, queue=1 << 20, queue_per_tenant=1 << 20)
    names = [f"t{i}" for i in range(tenants)]
    known = (
        Tenant("flood", slo=Slo(ttft_s=60.0)),
        *(Tenant(n, slo=Slo(ttft_s=2.0)) for n in names),
    )
    faults: list[Fault] = []
    at = 0.0
    while at < SPAN_S + 120:
        length = rng.uniform(0.3, 2.0)
        factor = max(1.0, math.exp(rng.gauss(0.15, UNEVEN)))
        faults.append(Fault("slow", at, length, factor))
        at += length
    setup = Setup(
        "a crowd", machine, (PoolSpec("main", 1, limits),), known, policy=policy, seed=seed,
        bucket_s=60.0, faults=tuple(faults),
    )  # fmt: skip
    parts = [1 / (1 + i % 7) for i in range(tenants)]
    out: list[Arrival] = []
    for name, part in zip(names, parts, strict=True):
        rate, at = RATE_PER_S * part / sum(parts), 0.0
        while (at := at + rng.expovariate(rate)) < SPAN_S:
            out.append(Arrival(at, name, None, rng.randint(30, 120), rng.randint(8, 32), 0))
    prompt, costs = rng.randint(1000, 3000), machine.costs
    can_per_s = 1 / (costs.prefill_token_s * prompt + costs.context_token_s * prompt**2 / 2)
    at = CALM_S
    while (at := at + rng.expovariate(rng.uniform(0.8, 1.1) * can_per_s)) < CALM_S + FLOOD_S:
        out.append(Arrival(at, "flood", None, prompt, rng.randint(20, 60), 0))
    return setup, sorted(out, key=lambda a: a.at_s)


def prepared(setup: Setup, arrivals: list[Arrival]) -> Prepared:
    rows = Kept()
    simulate(arrivals, setup, rows=rows)
    start = setup.start_unix_s
    return prepare(rows, read_window(rows, start + 60, start + SPAN_S), None, None, 10**9)


def _costs(setup: Setup, change: Callable[[Any], Any]) -> Setup:
    return replace(setup, machine=replace(setup.machine, costs=change(setup.machine.costs)))


def wrong(made: Prepared) -> dict[str, Setup]:
    """The setup as it is made, and made wrong."""
    setup = made.facts.setup
    moved = set(made.facts.victims[: max(1, len(made.facts.victims) // 50)])
    return {
        "as it is made": setup,
        "steps 1.1 times as long": _costs(setup, lambda c: c.scaled(1.1)),
        "steps 1.25 times as long": _costs(setup, lambda c: c.scaled(1.25)),
        "steps 1.5 times as long": _costs(setup, lambda c: c.scaled(1.5)),
        "steps 0.7 times as long": _costs(setup, lambda c: c.scaled(0.7)),
        "a prefill token at twice": _costs(
            setup, lambda c: replace(c, prefill_token_s=2 * c.prefill_token_s)
        ),
        "another policy": replace(setup, policy="fcfs" if setup.policy != "fcfs" else "vtc"),
        f"{len(moved)} victims in a lower tier": replace(
            setup,
            tenants=tuple(replace(t, tier=1) if t.name in moved else t for t in setup.tenants),
        ),
    }


def judged(seed: int, name: str, made: Prepared, setup: Setup) -> Row:
    victims = made.facts.victims
    job = Job(name, "window", setup, made.of, frozenset(victims))
    first = replay(job, made.window)
    again = replay(replace(job, jolt_s=MOMENT_S), made.window)
    found = compare(made.recorded, first, victims, again)
    together, *each = found.errors
    return Row(
        seed, name, len(each), together.p50_error, together.p99_error,
        sum(not e.holds for e in each), found.by_chance, found.holds, found.problem,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tenants", type=count, default=120)
    parser.add_argument("--seeds", type=counts, default=[2])
    parser.add_argument("--policy", choices=("vtc", "fcfs"), default="vtc")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows: list[Row] = []
    for seed in args.seeds:
        try:
            made = prepared(*flooded(seed, args.tenants, args.policy))
        except NoConclusion as e:
            print(f"seed {seed}: {e}")
            continue
        for name, setup in wrong(made).items():
            rows.append(judged(seed, name, made, setup))
            if not args.json:
                print(line_of(rows[-1]), flush=True)
    if args.json:
        print(json.dumps([asdict(r) for r in rows], indent=2, allow_nan=False))


def line_of(r: Row) -> str:
    chance = f"(chance {r.by_chance})"
    return (
        f"seed {r.seed}  {r.replay:<26} together {r.p50_error or 0:4.0%} {r.p99_error or 0:4.0%}  "
        f"victims off {r.off:>3}/{r.victims} {chance:<12} "
        f"{'concluded' if r.concluded else 'REFUSED'}"
    )


if __name__ == "__main__":
    main()
