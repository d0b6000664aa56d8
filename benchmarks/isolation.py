"""One noisy neighbour on each rung of the isolation ladder: what a victim gets, what it costs.

    python benchmarks/isolation.py [--rounds 3] [--model smollm2-135m] [--quick] [--json FILE]

Real `serve` processes over HTTP, a fresh one a rung and round, rungs in turn (turned round every
other round, so that a drift of the machine hits all). In each: the five-p.m. incident, where `acme`
fans out long contexts; then, alone, a backlog of acme's, to see what of the machine it can reach
while everybody else is idle. The rungs:

    fcfs       one pool, first come first served
    vtc        one pool, fair shares
    tiers      one pool, fair shares, acme a tier below
    dedicated  globex in a pool of its own, on the same cores
    own-cores  as dedicated, each pool's worker on cores of its own

Medians over rounds: globex's (the one with the contract) and the other victims' TTFT p99, longest
gap and goodput (SLOs met of all eligible), acme's tokens a second alone, as a ratio to `vtc` of the
same round, and the arena bytes that stand idle in globex's pool while it asks for nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from console.demo.result import percentile
from console.demo.setup import make_adapters
from engine.config import Limits, PoolSpec, Settings, Tenant
from engine.model.text import load_tokenizer
from engine.serving.api.auth import new_key
from engine.serving.load import Seen, Target, drive
from engine.serving.processes import ServeProcesses
from engine.simulation.prompts import page_tokens, prompt
from engine.simulation.workload import Arrival, Workload, read_workload
from sample_incidents import incident_path
from telemetry.records import RequestRecord
from telemetry.source import open_source

RUNGS = ("fcfs", "vtc", "tiers", "dedicated", "own-cores")
NOISY, CONTRACT = "acme", "globex"
_BACKLOG, _BACKLOG_PROMPT, _BACKLOG_OUT = 16, 256, 48
_GOLD_SHARE = 4  # globex's pool has one part in so many of slots and bytes
_ROWS_S = 20.0


@dataclass(frozen=True, slots=True)
class Got:
    """What somebody got in the incident. Seconds."""

    requests: int
    ttft_p99_s: float
    max_gap_s: float
    goodput: float


@dataclass(frozen=True, slots=True)
class Played:
    rung: str
    contract: Got
    others: Got
    noisy_output_per_s: float  # in the incident
    drained_s: float
    alone_output_per_s: float
    idle_bytes: int


def settings_of(rung: str, workload: Workload, base: Settings, cores: Sequence[int]) -> Settings:
    """The settings of one rung."""
    if rung in ("fcfs", "vtc"):
        return replace(base, policy=rung)
    if rung == "tiers":
        lowered = tuple(replace(t, tier=int(t.name == NOISY)) for t in base.tenants)
        return replace(base, tenants=lowered)
    whole = workload.limits
    gold = _part(whole, 1, _GOLD_SHARE)
    tail = _part(whole, _GOLD_SHARE - 1, _GOLD_SHARE)
    half = max(1, len(cores) // 2)
    own = rung == "own-cores"
    pools = (
        PoolSpec("tail", limits=tail, cpus=tuple(cores[half:]) if own else ()),
        PoolSpec("gold", limits=gold, cpus=tuple(cores[:half]) if own else ()),
    )
    placed = tuple(_placed(t) for t in base.tenants)
    return replace(base, pool="tail", limits=tail, pools=pools, tenants=placed)


def _part(limits: Limits, parts: int, of: int) -> Limits:
    return replace(
        limits,
        slots=max(1, limits.slots * parts // of),
        pool_bytes=limits.pool_bytes * parts // of,
    )


def _placed(tenant: Tenant) -> Tenant:
    return replace(tenant, pool="gold" if tenant.name == CONTRACT else "tail")


def play(
    rung: str, settings: Settings, workload: Workload, keys: dict[str, str], share: float
) -> Played:
    """One rung, once, on processes of its own."""
    page = page_tokens(load_tokenizer(settings.model).encode)
    with (
        tempfile.TemporaryDirectory() as folder,
        ServeProcesses(settings, Path(folder) / "store") as serve,
    ):
        target = Target(
            serve.url,
            settings.model,
            keys,
            lambda a: prompt(page, a.seed, a.prompt_tokens),
        )
        pace = _pace(serve.store_address, workload)
        drawn = workload.arrivals(
            workload.calm_s, workload.calm_s + share * workload.incident_s, pace
        )
        began = time.time()
        seen = _drive(target, drawn, workload.calm_s)
        ended = max(s.ended for s in seen)
        rows = _rows(serve.store_address, began, len(seen))
        backlog = [
            Arrival(0.0, NOISY, None, _BACKLOG_PROMPT, _BACKLOG_OUT, seed=1_000 + i)
            for i in range(_BACKLOG)
        ]
        alone_began = time.time()
        alone = _drive(target, backlog, 0.0)
        alone_s = max(s.ended for s in alone) - alone_began
    errors = [s.error for s in (*seen, *alone) if s.error]
    if errors:
        print(f"{rung}: {len(errors)} requests failed: {errors[0]}", file=sys.stderr)
    noisy = sum(r.output_tokens or 0 for r in rows if r.tenant == NOISY)
    gold = next((p for p in settings.pools if p.name == "gold"), None)
    return Played(
        rung,
        _got([r for r in rows if r.tenant == CONTRACT]),
        _got([r for r in rows if r.tenant not in (CONTRACT, NOISY)]),
        noisy / (ended - began),
        ended - began,
        sum(s.tokens for s in alone) / alone_s,
        0 if gold is None else gold.limits.pool_bytes,
    )


def _drive(target: Target, arrivals: Sequence[Arrival], offset_s: float) -> list[Seen]:
    async def run() -> list[Seen]:
        return await drive(target, arrivals, offset_s, asyncio.Event())

    return asyncio.run(run())


def _rows(address: str, began: float, expected: int) -> list[RequestRecord]:
    """The engine's own rows of what was sent since; they come within a second of their end."""
    source = open_source(address)
    rows: list[RequestRecord] = []
    try:
        give_up = time.monotonic() + _ROWS_S
        while len(rows) < expected and time.monotonic() < give_up:
            rows = [
                r
                for r in source.read("request", began, time.time() + 1)
                if isinstance(r, RequestRecord)
            ]
            time.sleep(0.5)
    finally:
        source.close()
    if len(rows) < expected:
        print(f"{expected - len(rows)} of {expected} rows did not come", file=sys.stderr)
    return rows


def _pace(address: str, workload: Workload) -> float:
    """How fast this machine is, from the slowest worker's warm-up."""
    from engine.costs import CostModel

    source = open_source(address)
    try:
        for _ in range(40):
            runs = source.read("engine_run", 0.0, time.time() + 1)
            if runs:
                return min(workload.pace(CostModel(**json.loads(r.costs))) for r in runs)
            time.sleep(0.25)
    finally:
        source.close()
    raise SystemExit("the workers' runs did not reach the store")


def _got(rows: Sequence[RequestRecord]) -> Got:
    judged = [bool(r.slo_met) for r in rows if r.slo_met is not None]
    return Got(
        len(rows),
        percentile([r.ttft_s for r in rows if r.ttft_s is not None], 0.99) or float("nan"),
        max((r.max_gap_s or 0.0 for r in rows), default=float("nan")),
        sum(judged) / len(judged) if judged else float("nan"),
    )


def table(played: Sequence[Played]) -> str:
    """Medians over rounds, a row a rung."""
    lines = [
        "rung       | globex: TTFT p99   gap  goodput | others: TTFT p99   gap  goodput |"
        " acme tok/s  alone, of vtc  idle arena"
    ]
    reference = [p.alone_output_per_s for p in played if p.rung == "vtc"]
    for rung in RUNGS:
        rounds = [p for p in played if p.rung == rung]
        if not rounds:
            continue

        def middle(values: Sequence[float]) -> float:
            return statistics.median(values)

        of = [p.alone_output_per_s / v for p, v in zip(rounds, reference, strict=False)]
        of_vtc = f"{middle(of):.2f}" if of else "-"
        lines.append(
            f"{rung:<10} |"
            f" {middle([p.contract.ttft_p99_s for p in rounds]):13.2f} s"
            f" {middle([p.contract.max_gap_s for p in rounds]):5.2f}"
            f" {middle([p.contract.goodput for p in rounds]):7.0%}  |"
            f" {middle([p.others.ttft_p99_s for p in rounds]):13.2f} s"
            f" {middle([p.others.max_gap_s for p in rounds]):5.2f}"
            f" {middle([p.others.goodput for p in rounds]):7.0%}  |"
            f" {middle([p.noisy_output_per_s for p in rounds]):9.1f}"
            f" {of_vtc:>14}"
            f" {rounds[0].idle_bytes / 2**20:9.0f} MiB"
        )
    return "\n".join(lines)


def main() -> None:
    import os

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rungs", default=",".join(RUNGS), help="which, comma-separated")
    parser.add_argument("--quick", action="store_true", help="one round of half the incident")
    parser.add_argument("--json", type=Path, help="every round, for programs")
    args = parser.parse_args()
    rungs = [r for r in args.rungs.split(",") if r]
    for rung in rungs:
        if rung not in RUNGS:
            parser.error(f"--rungs: {rung!r} is not one of {', '.join(RUNGS)}")
    cores = sorted(os.sched_getaffinity(0))
    if "own-cores" in rungs and len(cores) < 2:
        parser.error("own-cores needs two cores at least: leave it out with --rungs")
    workload = read_workload(incident_path("five-pm-fanout") / "workload.toml")
    keys: dict[str, str] = {}
    tenants = []
    for tenant in workload.tenants:
        keys[tenant.name], digest = new_key()
        tenants.append(replace(tenant, key_sha256=(digest,)))
    base = Settings(
        engine="isolation",
        model=args.model,
        bucket_s=workload.bucket_s,
        provisional_s=1.0,
        limits=workload.limits,
        tenants=tuple(tenants),
        adapters=tuple(make_adapters(workload, args.model, print)),
    )
    played: list[Played] = []
    for number in range(1 if args.quick else args.rounds):
        for rung in rungs if number % 2 == 0 else rungs[::-1]:
            once = play(
                rung,
                settings_of(rung, workload, base, cores),
                workload,
                keys,
                0.5 if args.quick else 1.0,
            )
            played.append(once)
            print(
                f"{number + 1} {rung:<10} globex p99 {once.contract.ttft_p99_s:6.2f} s "
                f"{once.contract.goodput:4.0%} of {once.contract.requests}, others "
                f"{once.others.ttft_p99_s:6.2f} s {once.others.goodput:4.0%} of "
                f"{once.others.requests}, drained {once.drained_s:5.1f} s, alone "
                f"{once.alone_output_per_s:5.1f} tok/s",
                flush=True,
            )
    print(f"\n{len(cores)} cores, {args.model}, medians of {1 if args.quick else args.rounds}")
    print(table(played))
    if args.json:
        args.json.write_text(json.dumps([asdict(p) for p in played], indent=1))


if __name__ == "__main__":
    main()
