"""The attribution on the real engine: the same arrivals with and without the culprit, in pairs.

    python benchmarks/attribution_real.py [--pairs 8] [--model smollm2-135m] [--calm 80] [--json]

In one process, without HTTP: arrivals are handed to a real core at their instants (a front's book
beside it writes what was offered). Played first with the flood, calm included, then from just
before the onset without it; every pair has arrivals of its own. What somebody waited in the first
and not in the second is the truth, noise of the machine included: with one player, the run minus
the run without it. The rows of the first are judged as anybody's would be. Printed for each pair:
whom the verdict names, the share error of ours and of the rivals, and whether the what-if's replay
of what happened is true enough to conclude from. Two to four minutes a pair on two free cores.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.threads import bound_spinning

bound_spinning()

from benchmarks.attribution.methods import METHODS, RUNG_2, judge
from benchmarks.attribution.scenarios import Player
from benchmarks.attribution.score import distance
from benchmarks.attribution.truth import Lived, Runs, facts, truth_for
from benchmarks.kept_rows import Kept
from console.demo.setup import make_adapters
from engine.build import build_core
from engine.clock import SystemClock
from engine.config import Settings
from engine.core import EngineCore
from engine.model.loaders import load_model
from engine.scheduling.request import Ask
from engine.serving.front_book import FrontBook
from engine.simulation.prompts import page_tokens, prompt
from engine.simulation.workload import Arrival, Workload, read_workload
from postmortem.whatif import Options, without_excess
from sample_incidents import incident_path
from telemetry.records import RequestRecord
from telemetry.window import read_window

RUN = "benchmark"
BEFORE_S = 10.0  # of the calm, before the run without the flood
CALM_BEFORE_S = 1e-3
FLOOD_TOKENS = 800  # everyday prompts are shorter
_WAITS = tuple(
    f"{w}_{r}_s" for w in ("wait", "rewait") for r in ("slot", "budget", "kv", "adapter")
)


def later(workload: Workload, calm_s: float) -> Workload:
    """The workload with its incident moved to `calm_s`; the everyday traffic goes on as long."""
    more = calm_s - workload.calm_s
    traffic = tuple(
        replace(t, start_s=t.start_s + more if t.start_s >= workload.calm_s else t.start_s,
                end_s=t.end_s + more)
        for t in workload.traffic
    )  # fmt: skip
    return replace(workload, traffic=traffic, calm_s=calm_s)


def play(
    core: EngineCore,
    book: FrontBook,
    clock: SystemClock,
    arrivals: Sequence[Arrival],
    page: Sequence[int],
    name: str,
) -> None:
    """Hand the arrivals over at their instants; return when all have ended and a bucket after."""
    began, first_s = clock.now(), arrivals[0].at_s
    left, ended, said = list(arrivals), 0, clock.now()
    while ended < len(arrivals):
        while left and clock.now() - began >= left[0].at_s - first_s:
            a = left.pop(0)
            now = clock.now()
            book.offered(a.tenant, a.prompt_tokens + a.max_tokens, False, now)
            book.admitted(a.tenant, a.prompt_tokens + a.max_tokens, 0.0, now)
            key = core.adapter_key(a.adapter) if a.adapter else None
            ids = tuple(prompt(page, a.seed, a.prompt_tokens))
            core.submit(
                Ask(f"{name}-{len(left)}", a.tenant, ids, a.max_tokens, now, now, key, a.adapter)
            )
        if core.wait_for_work(0.005):
            ended += len(core.step().ended)
        if clock.now() - said >= 1.0:
            said = clock.now()
            core.tick()
            book.tick(said)


def lived(rows: Iterable[RequestRecord]) -> dict[str, Lived]:
    out: dict[str, Lived] = {}
    for r in rows:
        was = out.get(r.tenant, Lived(0.0, 0.0, 0))
        waited = sum(getattr(r, w) or 0.0 for w in _WAITS)
        span = (r.ended or r.arrived) - r.arrived
        missed = was.missed + bool(r.missed_ttft)
        out[r.tenant] = Lived(was.wait_s + waited, was.latency_s + span, missed)
    return out


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair. `shares` are the truth's, `ours` those of the verdict's account. Errors by method,
    None where it has no shares; p50 and p99 of the replay are relative errors of the victims' TTFT,
    and `problem` why the what-if would conclude nothing from it (None: it does)."""

    number: int
    requests: int
    truth: str
    shares: dict[str, float]
    excess_s: float
    verdict: str
    tenant: str | None
    first: dict[str, str | None]
    errors: dict[str, float | None]
    headline: str
    p50_error: float | None
    p99_error: float | None
    ours: dict[str, float]
    problem: str | None


def pair(
    number: int,
    core: EngineCore,
    book: FrontBook,
    clock: SystemClock,
    kept: Kept,
    workload: Workload,
    page: Sequence[int],
    press: float,
) -> Pair:
    suspect = workload.suspect or ""
    pace = press * workload.pace(core.scheduler.costs)
    end_s = workload.calm_s + workload.incident_s
    drawn = replace(workload, seed=workload.seed + number).arrivals(0.0, end_s, pace)
    calm = [a for a in drawn if not (a.tenant == suspect and a.prompt_tokens > FLOOD_TOKENS)]
    began = clock.base.unix(clock.now())
    play(core, book, clock, drawn, page, f"with-{number}")
    _to_bucket_end(core, book, clock, workload.bucket_s)
    # The next run begins in a bucket of its own, and that is none of this one's.
    middle = math.floor(clock.base.unix(clock.now()) / workload.bucket_s) * workload.bucket_s
    short = [a for a in calm if a.at_s >= workload.calm_s - BEFORE_S]
    play(core, book, clock, short, page, f"without-{number}")
    _to_bucket_end(core, book, clock, workload.bucket_s)
    end = clock.base.unix(clock.now())

    onset = began + workload.calm_s - drawn[0].at_s
    requests = kept.read("request", began, end)
    player = Player("tenant", suspect)
    runs: Runs = {
        frozenset((player,)): lived(r for r in requests if onset - BEFORE_S <= r.arrived < middle),
        frozenset(): lived(r for r in requests if r.arrived >= middle),
    }
    window = read_window(_Until(kept, began, middle), onset - CALM_BEFORE_S, middle)
    judged = judge(window)
    known = facts(runs)
    own = truth_for(runs, judged.victims, judged.measure).shares
    claim = without_excess(
        _Until(kept, began, middle), onset - CALM_BEFORE_S, middle, suspect,
        options=Options(seeds=1, processes=1),
    )  # fmt: skip
    errors = claim.fidelity.errors if claim.fidelity is not None else ()
    return Pair(
        number, len(drawn), known.kind, dict(known.shares), known.excess_s,
        judged.verdict.kind, judged.verdict.tenant,
        {m: judged.of(m).first for m in METHODS},
        {m: distance(s, own) if (s := judged.of(m).shares) and own else None for m in METHODS},
        judged.verdict.headline,
        max((e.p50_error for e in errors), default=None),
        max((e.p99_error for e in errors), default=None),
        {who: round(s, 3) for who, s in judged.of(RUNG_2).shares.items() if s >= 0.0005},
        claim.fidelity.problem if claim.fidelity is not None else claim.sentence,
    )  # fmt: skip


class _Until:
    """A source that knows nothing outside the first run of a pair."""

    def __init__(self, kept: Kept, start: float, end: float) -> None:
        self._kept, self._start, self._end = kept, start, end

    def read(self, table: str, start: float, end: float) -> list[Any]:
        return self._kept.read(table, max(start, self._start - 60.0), min(end, self._end))


def _to_bucket_end(core: EngineCore, book: FrontBook, clock: SystemClock, bucket_s: float) -> None:
    """Idle until the open bucket is sealed: a run's rows are whole, and touch no other run's."""
    now = clock.base.unix(clock.now())
    end = math.ceil(now / bucket_s) * bucket_s + 0.2
    while clock.base.unix(clock.now()) < end:
        core.wait_for_work(0.1)
    core.tick()
    book.tick(clock.now())


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Attribution against paired runs on the real engine.",
        epilog="example: python benchmarks/attribution_real.py --pairs 1 --model synthetic",
    )
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--model", default="smollm2-135m", help="or synthetic, or a folder")
    parser.add_argument("--policy", default="fcfs")
    parser.add_argument("--calm", type=float, default=80.0, help="seconds before the flood (80)")
    parser.add_argument("--press", type=float, default=1.3, help="times this machine's pace (1.3)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(args)
    workload = read_workload(incident_path("five-pm-fanout") / "workload.toml")
    workload = later(workload, given.calm)
    model, kept, clock = load_model(given.model), Kept(), SystemClock()
    settings = Settings(
        model=given.model,
        policy=given.policy,
        bucket_s=workload.bucket_s,
        limits=workload.limits,
        tenants=workload.tenants,
        adapters=tuple(make_adapters(workload, given.model, _narrate)),
    )
    core = build_core(settings, clock, RUN, model, kept)
    book = FrontBook(settings, clock, RUN, kept, lambda tenant, now: (None, None, 0))
    page = page_tokens(model.tokenizer.encode)
    pairs: list[Pair] = []
    began = time.monotonic()
    try:
        for number in range(given.pairs):
            pairs.append(pair(number, core, book, clock, kept, workload, page, given.press))
            _narrate(f"{number + 1} of {given.pairs}, {time.monotonic() - began:.0f} s")
            if not given.json:
                print(_line(pairs[-1]), flush=True)
    finally:
        core.close()
    if given.json:
        print(json.dumps([asdict(p) for p in pairs], indent=2, allow_nan=False))
        return 0
    for method in METHODS:
        errors = [e for p in pairs if (e := p.errors[method]) is not None]
        right = sum(p.first[method] == workload.suspect for p in pairs)
        mean = f"{fmean(errors):.2f}" if errors else "-"
        print(f"{method:<18} first {right} of {len(pairs)}  share error {mean} (n {len(errors)})")
    return 0


def _narrate(text: str) -> None:
    print(text, file=sys.stderr)


def _line(p: Pair) -> str:
    shares = ", ".join(f"{k} {v:.2f}" for k, v in p.shares.items())
    errors = ", ".join(f"{m} {e:.2f}" for m, e in p.errors.items() if e is not None)
    ours = ", ".join(f"{k} {v:.2f}" for k, v in p.ours.items())
    replay = "-" if p.p99_error is None else f"p50 {p.p50_error:.2f} p99 {p.p99_error:.2f}"
    return (
        f"pair {p.number + 1}: {p.requests} requests, truth {p.truth} ({shares or '-'}; "
        f"{p.excess_s:.0f} s), verdict {p.verdict} {p.tenant or '-'} ({ours or '-'}); "
        f"errors {errors or '-'}; "
        f"replay off {replay}, {p.problem or 'true enough'}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
