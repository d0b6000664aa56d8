"""The long-prefill neighbour: a decoding tenant's longest gap beside prompts of 64k tokens.

    python benchmarks/long_prefill.py [--step-s 0.05] [--prompt 65536] [--prompts 1 4] [--json]

Four accelerators with Llama-3-70B (the preset 4xh100-llama3-70b), steps of 2,048 tokens, a context
of 128k, and a cost model fitted to this very mix. `chat` decodes eight answers from the beginning;
at 2 s `long` sends 1 or 4 prompts at once, each with a short answer. With `limits.step_s` a chunk
is as long as the step's time allows; without it a step takes 2,048 tokens, however deep in the
prompt they are.

Printed for each: the longest gap between two tokens of `chat` (all its requests, from the moment
they decode) against the bound, how long the prompts took to their first token (what the bound
costs), the steps, and to whom the ledger charges `chat`'s stall. The bound is on what a step is
expected to take; here steps take just that. On a machine the gap is as much longer as the cost
model errs: `model` says how far it is from the roofline. A step takes one page of prefill even if
decode alone fills its time, so the bound cannot be held below what decode takes.

Claims, PASS or FAIL: with the bound no gap exceeds it, with four prompts as with one; without it
it does; all of the stall from 2 s on is charged to `long`; without `long` there is none from then
on, when all of `chat` decode (before that its own prompts stall its own rows: `self`).

A second or two for everything.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from engine.arguments import amount, count
from engine.config import PoolSpec, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.roofline import Mix
from engine.simulation.setup import START_UNIX_S, Machine, Setup, machine_of
from engine.simulation.simulate import simulate
from engine.simulation.workload import Arrival
from telemetry.records import Batch, InterferenceMinute, TenantMinute

PRESET = PRESETS["4xh100-llama3-70b"]
CHAT, LONG = "chat", "long"
CHATS, CHAT_PROMPT, CHAT_OUTPUT = 8, 512, 4096
LONG_OUTPUT = 16
LONG_AT_S = 2.0
BUCKET_S = 1.0


class Kept:
    """Takes the rows as the store would; keeps the last of each key."""

    def __init__(self) -> None:
        self.stall_s: dict[tuple[float, str], float] = {}  # (bucket start, victim)
        self.charged_s: dict[tuple[float, str, str], float] = {}  # (..., holder)

    def submit(self, batch: Batch) -> None:
        for row in batch.minutes:
            if isinstance(row, TenantMinute) and row.stall_s is not None:
                self.stall_s[(row.bucket_start, row.tenant)] = row.stall_s
            elif isinstance(row, InterferenceMinute) and row.reason == "stall":
                holder = row.holder if row.holder_kind == "tenant" else row.holder_kind
                self.charged_s[(row.bucket_start, row.victim, holder)] = row.charged_s or 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `stall_s` is chat's, `charged_s` the same by holder; `late_stall_s` what of it fell
    after the instant at which the long prompts come."""

    prompts: int
    bound_s: float | None
    longest_gap_s: float
    usual_gap_s: float
    first_token_s: tuple[float, ...]
    steps: int
    stall_s: float
    charged_s: dict[str, float]
    late_stall_s: float


def machine(prompt: int) -> tuple[Machine, float]:
    """The preset with costs for this mix, and the fit's worst error on it."""
    costs, report = PRESET.costs_for(Mix(prompt, 256, 2048, 64, decode_context=CHAT_PROMPT))
    return replace(machine_of(PRESET), costs=costs), report.worst


def play(prompts: int, prompt: int, bound_s: float | None) -> Run:
    limits = replace(
        PRESET.limits,
        step_tokens=2048,
        step_s=bound_s,
        max_context=2 * prompt,
        prefix_cache=False,
    )
    setup = Setup(
        "long-prefill",
        machine(prompt)[0],
        (PoolSpec("main", 1, limits),),
        (Tenant(CHAT), Tenant(LONG)),
        bucket_s=BUCKET_S,
    )
    arrivals = [
        Arrival(0.0, CHAT, None, CHAT_PROMPT, CHAT_OUTPUT, seed) for seed in range(CHATS)
    ] + [Arrival(LONG_AT_S, LONG, None, prompt, LONG_OUTPUT, 100 + i) for i in range(prompts)]
    kept = Kept()
    result = simulate(arrivals, setup, rows=kept)
    columns = result.columns
    who = np.array(columns.tenant)
    chats = who == columns.index[CHAT]
    charged: dict[str, float] = {}
    for (_, victim, holder), charged_s in kept.charged_s.items():
        if victim == CHAT:
            charged[holder] = charged.get(holder, 0.0) + charged_s
    own = {start: s for (start, tenant), s in kept.stall_s.items() if tenant == CHAT}
    return Run(
        prompts,
        bound_s,
        float(np.array(columns.max_gap_s)[chats].max()),
        float(np.median(np.array(columns.tpot_s)[chats])),
        tuple(np.array(columns.ttft_s)[~chats].tolist()),
        result.pools[0].steps,
        sum(own.values()),
        charged,
        sum(s for start, s in own.items() if start >= START_UNIX_S + LONG_AT_S),
    )


def claims(bounded: Sequence[Run], free: Sequence[Run], alone: Run) -> list[tuple[bool, str]]:
    found = []
    for run in bounded:
        gap, bound_s = run.longest_gap_s, run.bound_s or 0.0
        found.append(
            (
                gap <= bound_s * (1 + 1e-9),
                f"{run.prompts} prompts: longest gap {gap * 1e3:.1f} ms <= {bound_s * 1e3:.0f} ms",
            )
        )
    for run in free:
        gap, bound_s = run.longest_gap_s, bounded[0].bound_s or 0.0
        found.append(
            (gap > bound_s, f"{run.prompts} prompts: without the bound {gap * 1e3:.1f} ms")
        )
    for run in (*bounded, *free):
        named = run.charged_s.get(LONG, 0.0)
        late = run.late_stall_s
        name = f"{run.prompts} prompts, {'bounded' if run.bound_s else 'free'}"
        found.append(
            (
                named > 0 and abs(named - late) <= 1e-6 * late,
                f"{name}: {named:.2f} s of {late:.2f} s of stall charged to {LONG}",
            )
        )
    found.append((alone.late_stall_s == 0.0, f"decode alone: {alone.late_stall_s:g} s of stall"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--step-s", type=amount, default=0.05, help="the bound")
    parser.add_argument("--prompt", type=count, default=65_536, help="tokens of a long prompt")
    parser.add_argument("--prompts", type=count, nargs="+", default=[1, 4])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bounded = [play(n, options.prompt, options.step_s) for n in options.prompts]
    free = [play(n, options.prompt, None) for n in options.prompts]
    alone = play(0, options.prompt, options.step_s)
    judged = claims(bounded, free, alone)
    worst = machine(options.prompt)[1]
    if options.json:
        plain = {
            "machine": PRESET.name,
            "model_worst_error": worst,
            "runs": [asdict(r) for r in (*bounded, *free, alone)],
            "claims": [{"holds": good, "claim": text} for good, text in judged],
        }
        print(json.dumps(plain, indent=2))
        return
    print(f"{PRESET.name}, prompts of {options.prompt:,}; model: worst error {worst:.1%} here")
    print(
        f"{'prompts':>7}{'bound':>9}{'longest gap':>13}{'TPOT':>9}{'prompts take':>15}{'steps':>8}"
        f"{'stall':>10}   charged to"
    )
    for run in (alone, *bounded, *free):
        bound = "none" if run.bound_s is None else f"{run.bound_s * 1e3:.0f} ms"
        took = f"{max(run.first_token_s):.1f} s" if run.first_token_s else "-"
        named = ", ".join(f"{n} {s:.2f} s" for n, s in sorted(run.charged_s.items())) or "-"
        print(
            f"{run.prompts:>7}{bound:>9}{run.longest_gap_s * 1e3:>10.1f} ms"
            f"{run.usual_gap_s * 1e3:>6.1f} ms{took:>15}{run.steps:>8,}{run.stall_s:>8.2f} s"
            f"   {named}"
        )
    for good, text in judged:
        print(f"{'PASS' if good else 'FAIL'}  {text}")


if __name__ == "__main__":
    main()
