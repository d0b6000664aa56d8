"""VTC against request-level round-robin: a tenant of 5-token requests beside one of 500 tokens.

    python benchmarks/round_robin.py [--heavy 0.5 0.75 1 1.5 2 4] [--light 0.25 0.5 1 2]
        [--seconds 120] [--slots 64] [--json]

`light` asks with 5 tokens and gets 5, `heavy` asks with 500 and gets 500; Poisson, seed 42, on the
A10G preset (Llama-2-7B, 10,000 tokens of KV). Round-robin takes one request of each tenant in
turn, whatever it costs: two equal shares of the *requests*, a hundred to one of the *service*.
Loads are told in parts of a tenant's fair share: 1 and 1 is the same service (prompt + 2 x output)
for both, and together just what the pool can do. What it can do is measured first, each tenant
alone and overloaded.

Two ratios are claimed for VTC over request-level round-robin on such a pair, without the load or
the measure they were seen with: 2.9 times the fairness and 6.3 times better worst-case latency.
So, for each load, how many times better VTC is, by three measures of fairness and two of latency:

    difference   the most |W_light - W_heavy| since both came to be backlogged, to the end of the
                 time in which both are (looked at four times a second); "-" = never together
    table        the mean of the paper's table metric, sum_i min(max_j s_j - s_i, |demand_i - s_i|)
    share        light's share of the service in the time of arrivals, VTC's over round-robin's
    worst, p99   light's longest latency, and its 99th percentile: arrival to last token

and at the end on which loads each claimed ratio is reached, and which load comes nearest to both.
Where heavy asks for more than the pool has left, round-robin's queue of light requests grows as
long as requests arrive, and with it every ratio: there they say more about --seconds than about
the policies.

About 4 s a load on one core, 24 loads by default.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from engine.arguments import amount, count
from engine.config import PoolSpec, Tenant
from engine.simulation.arrivals import Process, Spacing, Steady
from engine.simulation.fairness import paper_table
from engine.simulation.hardware import PRESETS
from engine.simulation.lengths import Even
from engine.simulation.results import Result
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival, Traffic
from engine.simulation.workload_stream import stream

PRESET = PRESETS["a10g-llama2-7b"]
LIGHT, HEAVY = "light", "heavy"
TOKENS = {LIGHT: 5, HEAVY: 500}
SEED = 42
CLAIMED_FAIRNESS, CLAIMED_LATENCY = 2.9, 6.3


@dataclass(frozen=True, slots=True)
class Figures:
    """One policy under one load. `difference` None: never backlogged together."""

    difference: float | None
    table: float
    light_share: float
    worst_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """How much each asks for, in parts of its fair share, and what both policies make of it."""

    light: float
    heavy: float
    vtc: Figures
    round_robin: Figures

    def times_better(self) -> dict[str, float | None]:
        v, r = self.vtc, self.round_robin
        mine, other = v.difference, r.difference
        return {
            "difference": other / mine if mine and other else None,
            "table": r.table / v.table if v.table else None,
            "share": v.light_share / r.light_share,
            "worst": r.worst_s / v.worst_s,
            "p99": r.p99_s / v.p99_s,
        }


def arrivals(rates: dict[str, float], span_s: float) -> list[Arrival]:
    traffic = tuple(
        Traffic(
            name, (name,), (), 0.0, span_s, Process(Spacing(1.0), Steady(rate)),
            Even(TOKENS[name], TOKENS[name]), Even(TOKENS[name], TOKENS[name]),
        )
        for name, rate in rates.items()
    )  # fmt: skip
    return list(stream(traffic, SEED, 0.0, span_s, 1.0))


def run(asked: Sequence[Arrival], policy: str, slots: int, until_s: float = math.inf) -> Result:
    limits = replace(
        PRESET.limits,
        slots=slots,
        prefix_cache=False,
        queue=len(asked) + 1,
        queue_per_tenant=len(asked) + 1,
    )
    setup = Setup(
        "round-robin",
        machine_of(PRESET),
        (PoolSpec("main", 1, limits),),
        (Tenant(LIGHT), Tenant(HEAVY)),
        policy=policy,
        seed=SEED,
    )
    return simulate(asked, setup, until_s=until_s, sample_s=0.25)


def fair_per_s(slots: int) -> dict[str, float]:
    """Requests a second of each with which both have the same service and the pool is just full:
    a second of service s takes s / S_i of the pool, where S_i is what it does for i alone."""
    span_s, alone = 60.0, {}
    for tenant, tokens in TOKENS.items():
        asked = arrivals({tenant: 2000 / tokens}, span_s)  # more than can be served
        ended = np.array(run(asked, "fcfs", slots, span_s).columns.ended_s)
        alone[tenant] = float((ended > span_s / 3).sum()) / (span_s * 2 / 3) * 3 * tokens
    service = 1 / sum(1 / s for s in alone.values())
    return {t: service / (3 * tokens) for t, tokens in TOKENS.items()}


def figures(asked: Sequence[Arrival], policy: str, slots: int, span_s: float) -> Figures:
    result = run(asked, policy, slots)
    c = result.columns
    arrived, ended = np.array(c.arrived_s), np.array(c.ended_s)
    light = c.index[LIGHT]
    latency_s = (ended - arrived)[np.array(c.tenant) == light]
    table = paper_table(
        c.tenant, arrived, arrived + np.array(c.ttft_s), ended, c.prompt, c.output, horizon_s=span_s
    )
    then = [
        float(np.interp(span_s, result.series_at_s, w)) for w in zip(*result.series, strict=True)
    ]
    return Figures(
        result.accumulated_difference if result.compared > 1 else None,
        table.mean,
        then[light] / sum(then),
        float(latency_s.max()),
        float(np.quantile(latency_s, 0.99)),
    )


def play(light: float, heavy: float, fair: dict[str, float], slots: int, span_s: float) -> Load:
    asked = arrivals({LIGHT: light * fair[LIGHT], HEAVY: heavy * fair[HEAVY]}, span_s)
    return Load(
        light,
        heavy,
        figures(asked, "vtc", slots, span_s),
        figures(asked, "round-robin", slots, span_s),
    )


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}x" if value < 100 else f"{value:,.0f}x"


def whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


HEAD = (
    f"{'load':>12} |{'most difference':>18} |{'light share':>14} |{'light worst, s':>16} |"
    f"  VTC is better by\n"
    f"{'light':>6}{'heavy':>6} |{'VTC':>9}{'RR':>9} |{'VTC':>7}{'RR':>7} |{'VTC':>8}{'RR':>8} |"
    f"{'difference':>11}{'table':>7}{'share':>7}{'worst':>7}{'p99':>7}"
)


def row(load: Load) -> str:
    v, r = load.vtc, load.round_robin
    better = load.times_better()
    return (
        f"{load.light:>6g}{load.heavy:>6g} |{whole(v.difference):>9}{whole(r.difference):>9} |"
        f"{v.light_share:>7.1%}{r.light_share:>7.1%} |{v.worst_s:>8.2f}{r.worst_s:>8.2f} |"
        f"{times(better['difference']):>11}"
        + "".join(f"{times(better[k]):>7}" for k in ("table", "share", "worst", "p99"))
    )


def _off(load: Load) -> float:
    """How far from the two claimed ratios, in powers of e."""
    better = load.times_better()
    off = ((better["difference"], CLAIMED_FAIRNESS), (better["worst"], CLAIMED_LATENCY))
    return sum(abs(math.log((found or 1.0) / claimed)) for found, claimed in off)


def reached(loads: Sequence[Load]) -> list[str]:
    """On which loads the claimed ratios hold, in words."""
    lines = []
    found: dict[str, list[Load]] = {}
    for name in ("difference", "table", "share", "worst", "p99"):
        claimed = CLAIMED_LATENCY if name in ("worst", "p99") else CLAIMED_FAIRNESS
        found[name] = [x for x in loads if (x.times_better()[name] or 0.0) >= claimed]
        where = ", ".join(f"{x.light:g}/{x.heavy:g}" for x in found[name])
        lines.append(f"{name:<10} >= {claimed}x on light/heavy {where or 'none of these'}")
    both = [x for x in found["worst"] if any(x in found[k] for k in ("difference", "table"))]
    where = ", ".join(f"{x.light:g}/{x.heavy:g}" for x in both)
    lines.append(f"{'both':<10} {'PASS' if both else 'FAIL'} on {where or 'none of these'}")
    apart = [x for x in loads if (x.times_better()["difference"] or 0.0) > 0]
    if apart:
        near = min(apart, key=_off)
        better = near.times_better()
        lines.append(
            f"{'nearest':<10} {near.light:g}/{near.heavy:g}: difference "
            f"{times(better['difference'])}, worst latency {times(better['worst'])}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--light", type=amount, nargs="+", default=[0.25, 0.5, 1.0, 2.0])
    parser.add_argument("--heavy", type=amount, nargs="+", default=[0.5, 0.75, 1.0, 1.5, 2.0, 4.0])
    parser.add_argument("--seconds", type=amount, default=120.0, help="of arrivals")
    parser.add_argument("--slots", type=count, default=PRESET.slots)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    fair = fair_per_s(options.slots)
    if not options.json:
        print(
            f"{PRESET.name}, {options.slots} slots; fair shares: {fair[LIGHT]:.1f} light and "
            f"{fair[HEAVY]:.3f} heavy requests a second"
        )
        print(HEAD)
    loads = []
    for heavy in options.heavy:
        for light in options.light:
            loads.append(play(light, heavy, fair, options.slots, options.seconds))
            if not options.json:
                print(row(loads[-1]), flush=True)
    if options.json:
        plain = [asdict(x) | {"times_better": x.times_better()} for x in loads]
        claimed = {"fairness": CLAIMED_FAIRNESS, "latency": CLAIMED_LATENCY}
        print(json.dumps({"claimed": claimed, "fair_per_s": fair, "loads": plain}, indent=2))
        return
    print()
    print("\n".join(reached(loads)))


if __name__ == "__main__":
    main()
