"""FCFS against VTC on the real engine: the same arrivals, in turn, several times. Medians.

    python benchmarks/fairness.py [--pairs 3] [--model smollm2-135m] [--incident five-pm-fanout]

In one process, without HTTP: arrivals are handed to the core at their instants. Only the incident's
span is played. Prints a row a run, then medians: victims' TTFT p50/p99, longest gap, SLOs met, and
tokens per second until all have drained.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

from engine.threads import bound_spinning

bound_spinning()

from console.demo.result import Act, act
from console.demo.setup import make_adapters
from engine.build import build_core
from engine.clock import SystemClock
from engine.config import Settings
from engine.core import EngineCore
from engine.model.loaders import load_model
from engine.scheduling.request import Ask
from engine.simulation.prompts import page_tokens, prompt
from engine.simulation.workload import Arrival, read_workload
from sample_incidents import incident_path
from telemetry.records import Batch, RequestRecord


class Kept:
    """Takes the worker's batches; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []

    def submit(self, batch: Batch) -> None:
        self.requests += [r for r in batch.logs if isinstance(r, RequestRecord)]


@dataclass(frozen=True, slots=True)
class Run:
    act: Act
    victims_p50_s: float
    victims_p99_s: float
    longest_gap_s: float
    met: float


def play(
    core: EngineCore,
    clock: SystemClock,
    kept: Kept,
    policy: str,
    arrivals: list[Arrival],
    page: tuple[int, ...],
    number: int,
    suspect: str | None,
) -> Run:
    core.set_policy(policy, who="benchmark", why="the same arrivals in turn")
    kept.requests.clear()
    began, began_unix = clock.now(), time.time()
    left = list(arrivals)
    ended = 0
    while ended < len(arrivals):
        while left and clock.now() - began >= left[0].at_s - arrivals[0].at_s:
            a = left.pop(0)
            now = clock.now()
            key = core.adapter_key(a.adapter) if a.adapter else None
            ids = tuple(prompt(page, a.seed, a.prompt_tokens))
            name = f"{policy}-{number}-{len(left)}"
            core.submit(Ask(name, a.tenant, ids, a.max_tokens, now, now, key, a.adapter))
        if core.wait_for_work(0.005):
            ended += len(core.step().ended)
    core.tick()
    for batch in core.ledger.collect(clock.now()):
        kept.submit(batch)
    result = act(policy, kept.requests, began_unix)
    victims = [r for r in kept.requests if r.tenant != suspect]
    ttfts = sorted(r.ttft_s for r in victims if r.ttft_s is not None)
    return Run(
        result,
        statistics.median(ttfts),
        ttfts[min(len(ttfts) - 1, int(0.99 * len(ttfts)))],
        max(r.max_gap_s or 0.0 for r in victims),
        sum(bool(r.slo_met) for r in victims) / len(victims),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--incident", default="five-pm-fanout")
    args = parser.parse_args()
    workload = read_workload(incident_path(args.incident) / "workload.toml")
    model = load_model(args.model)
    kept, clock = Kept(), SystemClock()
    settings = Settings(
        model=args.model,
        bucket_s=workload.bucket_s,
        limits=workload.limits,
        tenants=workload.tenants,
        adapters=tuple(make_adapters(workload, args.model, print)),
    )
    core = build_core(settings, clock, "benchmark", model, kept)
    page = page_tokens(model.tokenizer.encode)
    pace = workload.pace(core.scheduler.costs)
    end = workload.calm_s + workload.incident_s
    arrivals = workload.arrivals(workload.calm_s, end, pace)
    print(f"pace {pace:.2f}, {len(arrivals)} requests a run")
    runs: dict[str, list[Run]] = {"fcfs": [], "vtc": []}
    for number in range(args.pairs):
        # In turn, and turned round each time, so that a drift of the machine hits both.
        for policy in ("fcfs", "vtc") if number % 2 == 0 else ("vtc", "fcfs"):
            run = play(core, clock, kept, policy, arrivals, page, number, workload.suspect)
            runs[policy].append(run)
            print(
                f"{number + 1} {policy:<4} drained {run.act.drained_s:6.1f} s  "
                f"{run.act.output_per_s:6.2f} out tok/s  victims TTFT p50 "
                f"{run.victims_p50_s:6.2f} p99 {run.victims_p99_s:6.2f} s  "
                f"gap {run.longest_gap_s:5.2f} s  SLO met {run.met:4.0%}",
                flush=True,
            )
    core.close()
    medians = {p: statistics.median(r.act.output_per_s for r in rs) for p, rs in runs.items()}
    for policy, rs in runs.items():
        print(
            f"median {policy:<4} {medians[policy]:6.2f} out tok/s  TTFT p50 "
            f"{statistics.median(r.victims_p50_s for r in rs):6.2f} p99 "
            f"{statistics.median(r.victims_p99_s for r in rs):6.2f} s  SLO met "
            f"{statistics.median(r.met for r in rs):4.0%}"
        )
    pairs = [
        v.act.output_per_s / f.act.output_per_s
        for v, f in zip(runs["vtc"], runs["fcfs"], strict=True)
    ]
    print(f"throughput VTC / FCFS: median of pairs {statistics.median(pairs):.3f}")


if __name__ == "__main__":
    main()
