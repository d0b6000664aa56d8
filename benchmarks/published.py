"""The published suites of VTC, replayed: VTC and FCFS on identical arrivals, beside the paper.

    python benchmarks/published.py [--suite overload ...] [--arrivals own recorded]
        [--trace-dir DIR] [--slowdown 1 --slowdown auto] [--seconds 600] [--json]

Sheng et al., Fairness in Serving Large Language Models, OSDI 2024: Llama-2-7B on an A10G, a pool of
10,000 tokens, 256 tokens in and 256 out, even spacing. `own` arrivals are drawn at the paper's
rates with seed 42; `recorded` ones are those of the published runs (FCFS_SUITE.jsonl, which for
overload goes on for 600 s where the published VTC run stopped after 360 s).

**The difference.** W_i(t) is the service of tenant i since t = 0: prompt + 2 x output. As in the
paper's artifact, a request's service is spread evenly from its first token to its end. *Most* is
the largest |W_1 - W_2| while both are backlogged, *end* the last of those values; looked at four
times a second while requests arrive. A tenant is backlogged while a request of it has arrived and
not got its first token. Nothing restarts: a lead that a tenant won stays in the difference, also
through a time in which the other had nothing waiting. Beside it, *counters* is the same maximum
by what the shadow counters charged (a prompt at its admission, output token by token), looked at
once a second to the last answer, and counted anew whenever both come to be backlogged: what
Theorem 4.4 bounds.
`paper` are the figures as published; `its run` is the published run, measured by this script.

`--slowdown` multiplies every step's time. The preset's roofline serves a little more than the
paper's machine did, which makes the same rates a lighter load; `auto` is the one factor with
which FCFS under overload serves the published number of requests a second.

Claims, PASS or FAIL: the most under VTC at or below 1.1 times the published most (the two overload
suites); throughput under VTC no more than 2% below FCFS's (all suites); under FCFS the lightest
tenant waits at least four times as long for its first token as under VTC (where the paper's does).
In proportional and increase a tenant that asks for less than its share is not meant to be equal:
there the difference since t = 0 is what the loads differ by, and *counters* says what is unfair.

About 5 s a run on one core, 33 runs by default.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.arguments import amount
from engine.config import PoolSpec, Tenant
from engine.simulation.arrivals import OnOff, Process, Ramp, Rate, Spacing, Steady
from engine.simulation.columns import Columns
from engine.simulation.hardware import PRESETS
from engine.simulation.lengths import Even
from engine.simulation.setup import Machine, Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.traces.reader import read_trace
from engine.simulation.workload import Arrival, Traffic
from engine.simulation.workload_stream import stream

Floats = NDArray[np.float64]

TOKENS = 256
SEED = 42
SPAN_S = 600.0
LOOK_S = 0.25
PUBLISHED_PER_S = 1.74  # requests a second of the published FCFS overload run, 60 s to 400 s
TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "vtc_synthetic"


@dataclass(frozen=True, slots=True)
class Suite:
    """One published workload: tenants' rates, the paper's figures (None = it prints none)."""

    name: str
    rates: tuple[Rate, ...]
    most: float | None = None  # under VTC
    end: float | None = None
    fcfs: float | None = None  # at the end
    ttft_s: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # (VTC, FCFS)


SUITES = (
    Suite("overload", (Steady(1.5), Steady(3.0)), 9050, 8101, 237_738),
    Suite(
        "on_off_overload", (OnOff(2.0, 60.0, 60.0), Steady(3.0)), 7541, 6535, 363_415,
        ((75, 510), (374, 414)),
    ),
    Suite(
        "proportional", (Steady(0.25), Steady(0.5), Steady(1.5)),
        ttft_s=((4.8, 4.9, 124), (97, 97, 96)),
    ),
    Suite("increase", (Steady(0.5), Ramp(0.2, 2.0, SPAN_S)), ttft_s=((0.3, 15), (7.2, 12))),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Served:
    """What a run did to each request, by tenant number; instants in seconds from its start."""

    tenant: NDArray[np.int64]
    arrived_s: Floats
    first_s: Floats
    ended_s: Floats
    amount: Floats

    @classmethod
    def of(cls, columns: Columns, names: Sequence[str]) -> Served:
        number = {columns.index[name]: i for i, name in enumerate(names)}
        arrived = np.array(columns.arrived_s)
        return cls(
            np.array([number[n] for n in columns.tenant]),
            arrived,
            arrived + np.array(columns.ttft_s),
            np.array(columns.ended_s),
            np.array(columns.prompt) + 2.0 * np.array(columns.output),
        )

    @classmethod
    def published(cls, path: Path) -> Served:
        """A published run, as it was served. Raises OSError when the file is not there."""
        with path.open(encoding="utf-8") as f:
            rows = json.loads(f.readline())["result"]["responses"]
        names = sorted({r["adapter_dir"] for r in rows})
        arrived = np.array([r["req_time"] for r in rows])
        return cls(
            np.array([names.index(r["adapter_dir"]) for r in rows]),
            arrived,
            arrived + np.array([r["first_token_latency"] for r in rows]),
            arrived + np.array([r["request_latency"] for r in rows]),
            np.array([r["prompt_len"] + 2.0 * r["output_len"] for r in rows]),
        )

    def difference(self, span_s: float) -> tuple[float, float]:
        """(most, end) of the docstring, over every two tenants, up to `span_s`."""
        at = np.arange(0.0, span_s + LOOK_S / 2, LOOK_S)
        count = int(self.tenant.max()) + 1
        service = np.zeros((count, len(at)))
        waiting = np.zeros((count, len(at)), dtype=bool)
        for i in range(count):
            own = self.tenant == i
            first, end, amount = self.first_s[own], self.ended_s[own], self.amount[own]
            part = np.clip((at[:, None] - first) / np.maximum(end - first, 1e-9), 0.0, 1.0)
            service[i] = part @ amount
            arrived, first = np.sort(self.arrived_s[own]), np.sort(first)
            come = np.searchsorted(arrived, at, side="right")
            waiting[i] = come > np.searchsorted(first, at, side="right")
        most, end_at, end_value = 0.0, -1, 0.0
        for i in range(count):
            for j in range(i):
                both = np.flatnonzero(waiting[i] & waiting[j])
                if not len(both):
                    continue
                gaps = np.abs(service[i] - service[j])[both]
                most = max(most, float(gaps.max()))
                if both[-1] > end_at:
                    end_at, end_value = int(both[-1]), float(gaps[-1])
        return most, end_value

    def mean_ttft_s(self) -> tuple[float, ...]:
        waits = self.first_s - self.arrived_s
        return tuple(float(waits[self.tenant == i].mean()) for i in range(self.tenant.max() + 1))

    def per_s(self, low_s: float, high_s: float) -> float:
        """Requests ended a second between two instants."""
        return float(((self.ended_s >= low_s) & (self.ended_s < high_s)).sum()) / (high_s - low_s)


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's figures."""

    most: float
    end: float
    counters: float
    ttft_s: tuple[float, ...]
    tokens_per_s: float
    per_s: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class Its:
    """A published run, measured by this script."""

    most: float
    end: float
    ttft_s: tuple[float, ...]
    span_s: float  # of arrivals

    @classmethod
    def of(cls, path: Path) -> Its:
        served = Served.published(path)
        span_s = float(np.floor(served.arrived_s.max()))
        return cls(*served.difference(span_s), served.mean_ttft_s(), span_s)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both policies on identical arrivals. `published`: the artifact's VTC and FCFS runs; None
    where they are not there."""

    suite: str
    arrivals: str
    slowdown: float
    requests: int
    vtc: Run
    fcfs: Run
    published: tuple[Its, ...] | None

    @property
    def throughput(self) -> float:
        return self.vtc.tokens_per_s / self.fcfs.tokens_per_s


def own_arrivals(suite: Suite, span_s: float) -> list[Arrival]:
    length = Even(TOKENS, TOKENS)
    traffic = tuple(
        Traffic(f"t{i}", (f"t{i}",), (), 0.0, span_s, Process(Spacing(0.0), rate), length, length)
        for i, rate in enumerate(suite.rates)
    )
    return list(stream(traffic, SEED, 0.0, span_s, 1.0))


def recorded_arrivals(suite: Suite, folder: Path, span_s: float) -> list[Arrival]:
    trace = read_trace(folder / f"FCFS_{suite.name}.jsonl", "vtc")
    # Whole, the last ones come within two seconds of the span's end.
    return [a for a in trace if a.at_s < span_s or span_s >= SPAN_S]


def slowed(slowdown: float) -> Machine:
    machine = machine_of(PRESETS["a10g-llama2-7b"])
    return replace(machine, costs=replace(machine.costs.scaled(slowdown), version=1))


def play(arrivals: list[Arrival], policy: str, slowdown: float, span_s: float) -> Run:
    """One policy to the last answer; the difference is that of the time of arrivals."""
    names = sorted({a.tenant for a in arrivals})
    limits = replace(
        PRESETS["a10g-llama2-7b"].limits,
        prefix_cache=False,
        queue=len(arrivals) + 1,  # the paper refuses nobody
        queue_per_tenant=len(arrivals) + 1,
    )
    setup = Setup(
        "published",
        slowed(slowdown),
        (PoolSpec("main", 1, limits),),
        tuple(Tenant(n) for n in names),
        policy=policy,
        seed=SEED,
    )
    result = simulate(arrivals, setup)
    served = Served.of(result.columns, names)
    most, end = served.difference(span_s)
    return Run(
        most,
        end,
        result.accumulated_difference,
        served.mean_ttft_s(),
        result.pools[0].tokens_per_s,
        served.per_s(span_s / 10, span_s * 2 / 3),
        result.pools[0].preemptions,
    )


def pair(
    suite: Suite, kind: str, arrivals: list[Arrival], slowdown: float, span_s: float, folder: Path
) -> Pair:
    published = None
    if all((folder / f"{p}_{suite.name}.jsonl").exists() for p in ("VTC", "FCFS")):
        published = tuple(Its.of(folder / f"{p}_{suite.name}.jsonl") for p in ("VTC", "FCFS"))
    return Pair(
        suite.name,
        kind,
        slowdown,
        len(arrivals),
        play(arrivals, "vtc", slowdown, span_s),
        play(arrivals, "fcfs", slowdown, span_s),
        published,
    )


def calibrated(span_s: float) -> float:
    """The factor with which FCFS under overload serves what the published run did."""
    run = play(own_arrivals(SUITES[0], span_s), "fcfs", 1.0, span_s)
    return round(run.per_s / PUBLISHED_PER_S, 3)


def claims(suite: Suite, p: Pair) -> list[tuple[bool, str]]:
    found = []
    if suite.most is not None:
        bar = 1.1 * suite.most
        found.append(
            (p.vtc.most <= bar, f"most {p.vtc.most:,.0f} <= 1.1 x {suite.most:,.0f} = {bar:,.0f}")
        )
    found.append((p.throughput >= 0.98, f"throughput VTC / FCFS {p.throughput:.4f} >= 0.98"))
    if suite.ttft_s is not None and suite.ttft_s[1][0] >= 4 * suite.ttft_s[0][0]:
        ratio = p.fcfs.ttft_s[0] / p.vtc.ttft_s[0]
        found.append((ratio >= 4, f"lightest tenant's TTFT, FCFS / VTC {ratio:.1f}, at least 4"))
    return found


def seconds(values: Sequence[float] | None) -> str:
    return (
        "-" if values is None else ", ".join(f"{v:.1f}" if v < 20 else f"{v:.0f}" for v in values)
    )


def whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def show(suite: Suite, p: Pair) -> None:
    print(
        f"{p.suite}, {p.arrivals} arrivals, {p.requests:,} requests, slowdown {p.slowdown:g}: "
        f"{p.fcfs.per_s:.2f} requests/s under FCFS (published overload: {PUBLISHED_PER_S})"
    )
    print(
        f"  {'':<10}{'most':>10}{'end':>10}{'counters':>10}{'tokens/s':>10}{'preempted':>11}"
        "   mean TTFT a tenant, s"
    )
    paper = suite.ttft_s or (None, None)
    for i, (name, run) in enumerate((("VTC", p.vtc), ("FCFS", p.fcfs))):
        print(
            f"  {name:<10}{run.most:>10,.0f}{run.end:>10,.0f}{run.counters:>10,.0f}"
            f"{run.tokens_per_s:>10,.0f}{run.preemptions:>11,}   {seconds(run.ttft_s)}"
        )
        most, end = (suite.most, suite.end) if i == 0 else (None, suite.fcfs)
        print(f"  {'  paper':<10}{whole(most):>10}{whole(end):>10}{'':>31}   {seconds(paper[i])}")
        if p.published is not None:
            its = p.published[i]
            print(
                f"  {'  its run':<10}{its.most:>10,.0f}{its.end:>10,.0f}{'':>31}"
                f"   {seconds(its.ttft_s)} ({its.span_s:.0f} s of arrivals)"
            )
    for good, text in claims(suite, p):
        print(f"  {'PASS' if good else 'FAIL'}  {text}")
    print(flush=True)


def _slowdown(text: str) -> float | None:
    """None = auto: as it is calibrated."""
    return None if text == "auto" else amount(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [s.name for s in SUITES]
    parser.add_argument("--suite", nargs="+", choices=names, default=names)
    kinds = ["own", "recorded"]
    parser.add_argument("--arrivals", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--trace-dir", type=Path, default=TRACES)
    parser.add_argument(
        "--slowdown", type=_slowdown, action="append", help="a factor, or auto; may be repeated"
    )
    parser.add_argument("--seconds", type=amount, default=SPAN_S, help="of arrivals")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    span_s = options.seconds
    slowdowns = [calibrated(span_s) if s is None else s for s in options.slowdown or (1.0, None)]
    told = not options.json
    results = []
    for suite in (s for s in SUITES if s.name in options.suite):
        for kind in options.arrivals:
            if kind == "own":
                arrivals = own_arrivals(suite, span_s)
            elif (options.trace_dir / f"FCFS_{suite.name}.jsonl").exists():
                arrivals = recorded_arrivals(suite, options.trace_dir, span_s)
            else:
                if told:
                    print(f"{suite.name}: no recorded arrivals in {options.trace_dir}\n")
                continue
            for slowdown in slowdowns:
                p = pair(suite, kind, arrivals, slowdown, span_s, options.trace_dir)
                results.append((suite, p))
                if told:
                    show(suite, p)
    judged = [good for suite, p in results for good, _ in claims(suite, p)]
    if told:
        print(f"{sum(judged)} of {len(judged)} claims hold")
        return
    plain = [
        asdict(p)
        | {"throughput": p.throughput}
        | {"claims": [{"holds": good, "claim": text} for good, text in claims(suite, p)]}
        for suite, p in results
    ]
    print(json.dumps({"paper": [asdict(s) for s in SUITES], "runs": plain}, indent=2))


if __name__ == "__main__":
    main()
