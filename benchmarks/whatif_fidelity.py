"""Is the what-if true, and how fast: simulated incidents whose other past can be looked up.

    python benchmarks/whatif_fidelity.py [--incidents 12] [--seed 0] [--requests 200000] [--json]

Each incident is a flood by one of several tenants under FCFS, of random rate, prompts, length and
place, some on a machine that is slow for a while. Its telemetry is what the what-if gets; the
arrivals are then played under the remedy it names and without the flood, from the workload itself:
that is the truth. Printed: errors of the baseline replay (victims' TTFT p50 and p99), of the
remedy's and of the counterfactual's p99 against the truth (in seconds too: a tenth of almost
nothing is nothing), remedies named that in truth restore nobody, and incidents about which nothing
was concluded, with why. Then the recorded sample, a real engine's rows: its second act played the
same arrivals under VTC, and stands beside what the what-if says of VTC. Then the time for
`--requests` under six policies, one seed, from reading the store on, in wall and processor seconds
(processes of the replays included).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.kept_rows import Kept
from engine.config import PoolSpec, Slo, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.store_out import StoreOut
from engine.simulation.workload import Arrival, Fault
from postmortem.whatif import Options, what_if, without_excess
from postmortem.whatif.arrivals import Offered, apart
from postmortem.whatif.judge import worst_s
from postmortem.whatif.measure import of_columns
from postmortem.whatif.model import RESTORED_MISSES, Outcome, WhatIf
from postmortem.whatif.policies import apply
from telemetry.source import open_source

SAMPLE = Path(__file__).parents[1] / "sample_incidents" / "five-pm-fanout" / "store"
CALM_S, SPAN_S = 300.0, 600.0
FEW = ("vtc", "cap", "tier")
SIX = ("vtc", "cap", "rpm", "weight", "tier", "dedicated-pool")


@dataclass(frozen=True, slots=True)
class Incident:
    """A made incident: its arrivals with and without the flood, on a setup, and when it was."""

    name: str
    setup: Setup
    arrivals: tuple[Arrival, ...]
    calm: tuple[Arrival, ...]
    start_s: float
    end_s: float


def made(
    seed: int,
    *,
    rate_per_s: float = 3.0,
    span_s: float = SPAN_S,
    tenants_beside: int = 6,
    large: bool = False,
) -> Incident:
    """A flood of 1.2 to 3 times what the pool can do, for one to three minutes. `large`: on four
    H100 that short prompts and answers nearly fill, a smaller flood for five minutes."""
    rng = random.Random(seed)
    preset = PRESETS["4xh100-llama3-70b" if large else "a100-80-llama2-13b"]
    machine = machine_of(preset)
    slots = preset.slots if large else rng.choice([16, 32, 64])
    limits = replace(preset.limits, slots=slots, prefix_cache=False)
    if large:  # nobody is refused: who would be hangs on milliseconds, and no replay says who
        limits = replace(limits, queue=1 << 20, queue_per_tenant=1 << 20)
    names = [f"t{i}" for i in range(tenants_beside)]
    tenants = (
        Tenant("flood", slo=Slo(ttft_s=60.0)),
        *(Tenant(n, slo=Slo(ttft_s=2.0)) for n in names),
    )
    faults = ()
    start_s, length_s = CALM_S + rng.uniform(0, 60), 300.0 if large else rng.uniform(60, 180)
    if seed % 4 == 3:
        faults = (Fault("slow", start_s + 20, 60.0, rng.uniform(1.3, 1.8)),)
    setup = Setup(
        "made", machine, (PoolSpec("main", 1, limits),), tenants, policy="fcfs", seed=seed,
        bucket_s=60.0 if large else 20.0, faults=faults,
    )  # fmt: skip
    usual, answers = ((30, 120), (8, 32)) if large else ((50, 400), (20, 80))
    calm: list[Arrival] = []
    for tenant in ("flood", *names):
        at = 0.0
        while (at := at + rng.expovariate(rate_per_s / (1 + tenants_beside))) < span_s:
            calm.append(Arrival(at, tenant, None, rng.randint(*usual), rng.randint(*answers), 0))
    prompt = rng.randint(1000, 3000)
    costs = machine.costs
    can_per_s = 1 / (costs.prefill_token_s * prompt + costs.context_token_s * prompt**2 / 2)
    flood: list[Arrival] = []
    at = start_s
    rate = (0.35 if large else rng.uniform(1.2, 3.0)) * can_per_s
    while (at := at + rng.expovariate(rate)) < start_s + length_s:
        flood.append(Arrival(at, "flood", None, prompt, rng.randint(20, 60), 0))
    both = tuple(sorted((*calm, *flood), key=lambda a: a.at_s))
    return Incident(
        f"made {seed}", setup, both, tuple(sorted(calm, key=lambda a: a.at_s)), start_s,
        start_s + length_s,
    )  # fmt: skip


def recorded(incident: Incident) -> Kept:
    rows = Kept()
    simulate(incident.arrivals, incident.setup, rows=rows)
    return rows


def truth(
    setup: Setup, arrivals: Iterable[Arrival], start_s: float, end_s: float, hurt: Sequence[str]
) -> Outcome:
    """What these arrivals give under this setup, of those that arrive in [start_s, end_s)."""
    offered = apart(
        Offered(a.at_s, a.tenant, a.adapter, a.prompt_tokens, a.max_tokens,
                start_s <= a.at_s < end_s)
        for a in arrivals
    )  # fmt: skip
    again = [Arrival(o.at_s, o.tenant, o.adapter, o.prompt_tokens, o.output_tokens, 0)
             for o in offered]  # fmt: skip
    result = simulate(again, setup)
    slos = {t.name: t.slo for t in setup.tenants}
    return of_columns(
        result.columns, offered, start_s, end_s - start_s, slos, {t.name for t in setup.tenants},
        hurt,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One incident. Errors are relative to what was recorded, or to the truth; None = not
    concluded."""

    name: str
    requests: int
    sentence: str
    victims_right: bool
    culprit_right: bool
    p50_error: float | None
    p99_error: float | None
    remedy: str | None
    remedy_error: float | None
    remedy_off_s: float | None
    remedy_true: bool | None
    without_off_s: float | None
    slow: bool


def judged(incident: Incident) -> Row:
    rows = recorded(incident)
    base = incident.setup.start_unix_s
    start, end = base + CALM_S - 60, base + SPAN_S
    found = what_if(rows, start, end, options=Options(FEW, 1, 600.0, processes=1))
    claim = without_excess(rows, start, end, "flood", options=Options(seeds=1, processes=1))
    errors = found.fidelity.errors if found.fidelity is not None else ()
    remedy_error = remedy_off_s = without_off_s = None
    remedy_true: bool | None = None
    if found.best is not None:
        best = found.best
        first, last = found.start - base, found.end - base
        real = truth(
            apply(best.remedy, incident.setup), incident.arrivals, first, last, found.victims
        )
        was, is_ = worst_s(best.outcome.hurt), worst_s(real.hurt)
        if was is not None and is_ is not None:
            remedy_off_s = abs(was - is_)
            remedy_error = remedy_off_s / is_
        remedy_true = all(
            n.missed <= 2 * RESTORED_MISSES * n.eligible
            for t in found.victims
            if (n := real.of(t)) is not None
        )
        if claim.holds and claim.without is not None:
            real = truth(incident.setup, incident.calm, first, last, found.victims)
            a, b = worst_s(claim.without.hurt), worst_s(real.hurt)
            without_off_s = None if a is None or b is None else abs(a - b)
    return Row(
        incident.name,
        len(incident.arrivals),
        found.sentence,
        bool(found.victims) and "flood" not in found.victims,
        found.culprits == ("flood",),
        max((e.p50_error for e in errors), default=None),
        max((e.p99_error for e in errors), default=None),
        found.remedy,
        remedy_error,
        remedy_off_s,
        remedy_true,
        without_off_s,
        bool(incident.setup.faults),
    )


def sample() -> dict[str, Any]:
    """The recorded sample: what the what-if says of VTC beside what VTC then did."""
    source = open_source(SAMPLE)
    span = source.span()
    assert span is not None
    found = what_if(source, *span, options=Options(policies=("vtc",), seeds=3, processes=1))
    assert found.fidelity is not None
    switched = next(p.at for p in source.read("policy", *span) if p.previous is not None)
    act = [r for r in source.read("request", switched, span[1]) if r.tenant in found.victims]
    # All requests of those hurt in the second act: not request by request the same arrivals.
    times = sorted(r.ttft_s for r in act if r.ttft_s is not None)
    said = [t.outcome.hurt for t in found.tried]
    return {
        "fidelity": [asdict(e) | {"p50_error": e.p50_error, "p99_error": e.p99_error}
                     for e in found.fidelity.errors],
        "said_of_vtc_p50_s": said[0].ttft_p50_s if said else None,
        "said_of_vtc_p99_s": worst_s(said[0]) if said else None,
        "said_of_vtc_missed": said[0].missed if said else None,
        "vtc_then_p50_s": times[math.ceil(0.5 * len(times)) - 1],
        "vtc_then_p99_s": times[math.ceil(0.99 * len(times)) - 1],
        "vtc_then_missed": sum(bool(r.missed_ttft) for r in act),
        "vtc_then_requests": len(act),
        "sentence": found.sentence,
    }  # fmt: skip


def speed(requests: int) -> dict[str, Any]:
    """Six policies, one seed: half an hour of 1,001 tenants and so many requests, from a store."""
    incident = made(1, rate_per_s=requests / 1800.0, span_s=1800.0, tenants_beside=1000, large=True)
    base = incident.setup.start_unix_s
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with StoreOut(store) as out:
            simulate(incident.arrivals, incident.setup, rows=out)
        source = open_source(store)
        cpu, began = _cpu_s(), time.perf_counter()
        options = Options(policies=SIX, seeds=1, retries="kept")
        # The flood is named here: whether the verdict does is not what takes the time.
        found: WhatIf = what_if(source, base, base + 1800.0, culprits=("flood",), options=options)
        wall_s, cpu_s = time.perf_counter() - began, _cpu_s() - cpu
        source.close()
    return {
        "requests": len(incident.arrivals),
        "replayed": found.recorded.everyone.offered if found.recorded is not None else 0,
        "replayed_s": found.end - found.start,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "tried": [t.remedy.name for t in found.tried],
        "not_run": list(found.not_run),
        "sentence": found.sentence,
    }


def _cpu_s() -> float:
    both = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--incidents", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=200_000, help="for the time; 0 = leave out")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows: list[Row] = []
    for i in range(args.incidents):
        rows.append(judged(made(args.seed + i)))
        if not args.json:
            print(line_of(rows[-1]), flush=True)
    real = sample() if args.incidents else None
    fast = speed(args.requests) if args.requests else None
    if args.json:
        body = {"incidents": [asdict(r) for r in rows], "sample": real, "speed": fast}
        print(json.dumps(body, indent=2, allow_nan=False))
        return
    done = [r for r in rows if r.remedy is not None]
    print(
        f"{len(rows)} incidents, {len(done)} with a remedy, "
        f"{sum(r.remedy_true is False for r in rows)} named wrongly; culprit as made in "
        f"{sum(r.culprit_right for r in rows)}; baseline p99 off "
        f"{_pc(median([r.p99_error for r in rows if r.p99_error is not None] or [0.0]))} "
        "at the median"
    )
    print("recorded sample:", json.dumps(real, indent=2))
    if fast is not None:
        print("speed:", json.dumps(fast, indent=2))


def line_of(r: Row) -> str:
    text = (
        f"{r.name:<10}{r.requests:>7} requests{'  slow' if r.slow else '      '}  "
        f"p50 off {_pc(r.p50_error)}  p99 off {_pc(r.p99_error)}  {r.remedy or '-':<8} "
        f"p99 off {_pc(r.remedy_error)} {_s(r.remedy_off_s)}  "
        f"{'true' if r.remedy_true else '-' if r.remedy_true is None else 'WRONG'}  "
        f"without: off {_s(r.without_off_s)}"
    )
    return text if r.remedy is not None else f"{text}\n          {r.sentence}"


def _pc(value: float | None) -> str:
    return "   -" if value is None else f"{100 * value:3.0f}%"


def _s(value: float | None) -> str:
    return "     -" if value is None else f"{value:5.2f}s"


if __name__ == "__main__":
    main()
