"""Public traces through the simulator: simulated seconds a second, and what was kept of them.

    python benchmarks/traces.py [--data ../shared/data] [--only mooncake] [--seconds 600] [--json]

About five minutes. The traces are whole files of their authors, no part of this project; without
them it says so and shows nothing. Each with the pool it is played on:

    azure code, azure conv   Azure/AzurePublicDataset 2023 (Splitwise, ISCA 2024; CC-BY-4.0): an
                             hour each; tenants are made up, 8 by Zipf 1. 4xh100-llama3-70b
    mooncake                 kvcache-ai/Mooncake (Apache-2.0): an hour of conversations up to 126
                             thousand tokens; prefix cache on. Four replicas of 4xh100-llama3-70b
    servegen 116             alibaba/ServeGen (Apache-2.0), m-large, client 116, from 1,200 s before
                             to 600 s after its onset at 597,000 s (from about 1 to 67 requests/s).
                             It describes clients: arrivals are drawn. Sixteen replicas of
                             4xh100-llama3-70b (one would need hours for those 600 s)
    vtc ...                  Ying1123/VTC-artifact (Apache-2.0): the request lists of the published
                             runs, which are longer than their 10 minutes of arrivals where the pool
                             is overloaded. a10g-llama2-7b

The ledger is on, without a store. Requests longer than the context are dropped and counted.
`requests/s` is requests a second of this machine; `cached` the part of the prompt tokens that was
found in the prefix cache.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from engine.arguments import amount
from engine.config import PoolSpec, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.roofline import Mix
from engine.simulation.setup import Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.traces.reader import read_trace
from engine.simulation.traces.trace import TraceOptions

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
H100, A10G = "4xh100-llama3-70b", "a10g-llama2-7b"
ONSET_S = 597_000.0


@dataclass(frozen=True, slots=True)
class Source:
    """A trace and the pool it is played on. `mix`: of the requests the cost model is fitted to."""

    name: str
    path: str
    format: str
    preset: str
    mix: Mix | None = None
    replicas: int = 1
    options: Callable[[], TraceOptions] = TraceOptions

    @property
    def prefixes(self) -> bool:
        return self.format == "mooncake"


def onset() -> TraceOptions:
    return TraceOptions(start_s=ONSET_S - 1200, end_s=ONSET_S + 600, clients=(116,))


SOURCES = (
    Source(
        "azure code", "azure_llm_2023/AzureLLMInferenceTrace_code.csv", "azure", H100,
        Mix(2048, 28, 2048, 128),
    ),
    Source(
        "azure conv", "azure_llm_2023/AzureLLMInferenceTrace_conv.csv", "azure", H100,
        Mix(1155, 211, 2048, 256),
    ),
    Source(
        "mooncake", "mooncake/conversation_trace.jsonl", "mooncake", H100,
        Mix(12_000, 343, 2048, 64), 4,
    ),
    Source(
        "servegen 116", "servegen/m-large", "servegen", H100,
        Mix(2402, 111, 2048, 128), 16, onset,
    ),
    *(
        Source(f"vtc {run}", f"vtc_synthetic/VTC_{run}.jsonl", "vtc", A10G)
        for run in ("increase", "on_off_overload", "overload", "proportional")
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One trace. Shares are of 1."""

    trace: str
    pool: str
    read: int
    kept: int
    dropped: int
    tenants: int
    finished: int
    wall_s: float
    simulated_s: float
    simulated_s_per_s: float
    requests_per_s: float
    steps: int
    ttft_p50_s: float
    ttft_p99_s: float
    cached: float


def play(source: Source, data: Path, seconds: float | None) -> Run:
    preset = PRESETS[source.preset]
    machine = machine_of(preset)
    if source.mix is not None:
        machine = replace(machine, costs=preset.costs_for(source.mix)[0])
    limits = replace(
        preset.limits,
        prefix_cache=source.prefixes,
        queue=1_000_000,
        queue_per_tenant=1_000_000,
    )
    options = source.options()
    if seconds is not None:
        options = replace(options, end_s=min(options.end_s, options.start_s + seconds))
    # A request that no pool of this size takes is left out here, and counted.
    options = replace(options, max_prompt_tokens=limits.max_context - 4096)
    options = replace(options, max_output_tokens=4096)
    if source.preset == A10G:
        options = replace(options, max_prompt_tokens=2048, max_output_tokens=2048)
    trace = read_trace(data / source.path, source.format, options)
    setup = Setup(
        name=source.name,
        machine=machine,
        pools=(PoolSpec("main", source.replicas, limits),),
        tenants=tuple(Tenant(t) for t in trace.tenants),
    )
    result = simulate(trace, setup)
    assert result.wall is not None
    report, columns = trace.report, result.columns
    # Nothing kept, or nothing that came to a token: no percentile to show.
    ttft = np.frombuffer(columns.ttft_s) if len(columns) else np.full(1, np.nan)
    p50, p99 = np.nanquantile(ttft, (0.5, 0.99)) if not np.isnan(ttft).all() else (0.0, 0.0)
    prompts = sum(columns.prompt)
    return Run(
        trace=source.name,
        pool=source.preset + (f" x {source.replicas}" if source.replicas > 1 else ""),
        read=report.read,
        kept=report.kept,
        dropped=sum(n for _, n in report.dropped),
        tenants=len(columns.tenants),
        finished=sum(p.finished for p in result.pools),
        wall_s=result.wall.wall_s,
        simulated_s=result.simulated_s,
        simulated_s_per_s=result.wall.simulated_s_per_s,
        requests_per_s=result.wall.requests_per_s,
        steps=sum(p.steps for p in result.pools),
        ttft_p50_s=float(p50),
        ttft_p99_s=float(p99),
        cached=sum(columns.cached) / prompts if prompts else 0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", help="traces whose name has this in it")
    parser.add_argument("--seconds", type=amount, help="only so many seconds of each trace")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.data.is_dir():
        print(f"skipped: {args.data} is not there; name the folder of the public traces by --data")
        return
    chosen = [s for s in SOURCES if args.only is None or args.only in s.name]
    if not chosen:
        parser.error(f"--only {args.only!r}: no trace is called so")
    if not args.json:
        print(
            f"{'trace':<20}{'pool':<24}{'read':>8}{'kept':>8}{'dropped':>9}{'finished':>10}"
            f"{'simulated':>11}{'wall':>9}{'sim s/s':>9}{'requests/s':>12}{'steps':>9}"
            f"{'TTFT p50/p99':>20}{'cached':>8}"
        )
    runs = []
    for source in chosen:
        if not (args.data / source.path).exists():
            if not args.json:
                print(f"{source.name:<20}skipped: {source.path} is not there")
            continue
        r = play(source, args.data, args.seconds)
        runs.append(r)
        if not args.json:
            print(
                f"{r.trace:<20}{r.pool:<24}{r.read:>8,}{r.kept:>8,}{r.dropped:>9,}"
                f"{r.finished:>10,}{r.simulated_s:>9,.0f} s{r.wall_s:>7.1f} s"
                f"{r.simulated_s_per_s:>9,.0f}{r.requests_per_s:>12,.0f}{r.steps:>9,}"
                f"{f'{r.ttft_p50_s:.2f} / {r.ttft_p99_s:.2f} s':>20}{r.cached:>8.1%}",
                flush=True,
            )
    if args.json:
        print(json.dumps([asdict(r) for r in runs]))


if __name__ == "__main__":
    main()
