"""Where a decode step's time goes, and what adapters add to it.

    python benchmarks/step_split.py [--streams 32] [--adapters 1,4,8,16,32] [--rounds 3] [--json]

The real core with scheduler, pool, ledger and telemetry plays rounds of requests (128 tokens in,
64 out), without adapters and with so many of rank 16, in an order drawn anew each round; the steps
in which every stream decodes are looked at. Every second one is split at the engine's seams:

    linears     the model's own products, the head's apart
    lora        the adapters' products
    attention   rotating, storing and attending, all layers
    fused       norms and the gate between the linears
    head        logits and the choice of tokens
    batch       the step's index arrays, and the preparation of LoRA and of attention
    decoder     what is left of the runner: the decoder's and the runner's own Python (the
                clocks' own cost taken off)
    core        plan, settle, ledger and delivery: what is not the runner's

Python is batch + decoder + core. The other steps run without a clock in them: their medians are
the step times, their ratios to the base model's are taken within a round. The floor is the bytes a
step must read (weights, keys and values, adapters) at the read bandwidth measured beside each
round. Three minutes on two free cores. Aims: 16 adapters at most 1.25 of the base step, prefill
with 8 at most 1.3 of the base prefill.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.threads import bound_spinning

bound_spinning()

import torch

from benchmarks.core_rig import CoreRig, dealt
from benchmarks.paired import Ratios, ratios
from benchmarks.step_meter import PARTS, Meter, metered
from engine.arguments import count, counts
from engine.bench import prompts
from engine.model.config import MODULES, ModelConfig
from engine.model.loaders import load_model
from engine.model.made_adapters import make_adapter

STEP_AIM, STEP_ADAPTERS = 1.25, 16
PREFILL_AIM, PREFILL_ADAPTERS = 1.3, 8
READ_BYTES = 512 << 20
WARM_TOKENS = 4
PYTHON = ("batch", "decoder", "core")
SHOWN = (*PARTS, "decoder", "core")


@dataclass(frozen=True, slots=True)
class Round:
    """Medians of one round's steps, seconds. `step_s`: without a clock inside, `split` of those
    with one (their whole is `split_step_s`). `floor_s`: the bytes at the bandwidth beside it."""

    adapters: int
    prefill_s: float
    step_s: float
    split_step_s: float
    split: dict[str, float]
    bytes_: int
    bandwidth: float  # bytes/s

    @property
    def floor_s(self) -> float:
        return self.bytes_ / self.bandwidth


def step_bytes(config: ModelConfig, itemsize: int, adapters: int, rank: int, keys: int) -> int:
    """What a decode step must read at least: every weight of the linears and of the head once,
    the keys and values attended, each adapter in use once."""
    shapes = [config.module_shape(m) for m in MODULES]
    weights = config.layers * sum(out * width for out, width in shapes)
    weights += config.vocab * config.hidden
    kv = keys * config.layers * 2 * config.kv_width
    lora = adapters * rank * config.layers * sum(out + width for out, width in shapes)
    return itemsize * (weights + kv + lora)


def bandwidth(buffer: torch.Tensor) -> float:
    """Bytes/s that all compute threads read together, the best of three passes over the buffer."""
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        buffer.sum()
        best = max(best, buffer.nbytes / (time.perf_counter() - began))
    return best


def play(
    rig: CoreRig,
    meter: Meter,
    texts: Sequence[Sequence[int]],
    adapters: int,
    output: int,
    rank: int,
    buffer: torch.Tensor,
) -> Round:
    """One round. Raises ValueError when no step had every stream decoding."""
    model = rig.runner.model
    streams = len(texts)
    read = bandwidth(buffer)
    prefill_s = 0.0
    plain: list[float] = []
    split: list[tuple[float, dict[str, float]]] = []
    begun: set[int] = set()
    meter.on = False
    for step in rig.play(texts, dealt(streams, adapters), output):
        if len(begun) < streams:
            begun.update(i for i, _ in step.tokens)
            prefill_s = step.at_s
        elif step.decode_rows == streams:
            if meter.on:
                parts = dict(meter.seconds)
                parts["decoder"] = step.runner_s - sum(parts.values()) - meter.own_s
                parts["core"] = step.took_s - step.runner_s
                split.append((step.took_s, parts))
            else:
                plain.append(step.took_s)
            meter.on = not meter.on
            meter.clear()
    meter.on = False
    if not plain or not split:
        raise ValueError("no step in which every stream decodes: raise --output")
    keys = streams * (len(texts[0]) + output // 2)
    return Round(
        adapters,
        prefill_s,
        statistics.median(plain),
        statistics.median(took for took, _ in split),
        {p: statistics.median(parts[p] for _, parts in split) for p in SHOWN},
        step_bytes(model.config, model.dtype.itemsize, min(adapters, streams), rank, keys),
        read,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One number of adapters over all rounds: medians, and ratios to the base model's."""

    adapters: int
    step_s: float
    prefill_s: float
    split: dict[str, float]
    python_share: float
    clock_share: float  # what the clocks inside add to a step
    floor_share: float  # of the step, at the bandwidth measured beside it
    step_ratio: Ratios | None
    prefill_ratio: Ratios | None


def row_of(rounds: Sequence[Round], base: Sequence[Round]) -> Row:
    split = {p: statistics.median(r.split[p] for r in rounds) for p in SHOWN}
    is_base = rounds[0].adapters == 0
    return Row(
        rounds[0].adapters,
        statistics.median(r.step_s for r in rounds),
        statistics.median(r.prefill_s for r in rounds),
        split,
        statistics.median(sum(r.split[p] for p in PYTHON) / r.split_step_s for r in rounds),
        statistics.median(r.split_step_s / r.step_s - 1 for r in rounds),
        statistics.median(r.floor_s / r.step_s for r in rounds),
        None
        if is_base
        else ratios([(r.step_s, b.step_s) for r, b in zip(rounds, base, strict=True)]),
        None
        if is_base
        else ratios([(r.prefill_s, b.prefill_s) for r, b in zip(rounds, base, strict=True)]),
    )


def claims(rows: Sequence[Row]) -> list[tuple[bool, str]]:
    out = []
    for r in rows:
        for what, ratio, at, aim in (
            ("step", r.step_ratio, STEP_ADAPTERS, STEP_AIM),
            ("prefill", r.prefill_ratio, PREFILL_ADAPTERS, PREFILL_AIM),
        ):
            if ratio is not None and r.adapters == at:
                text = f"{what} with {at} adapters: x {ratio.median:.2f} of the base's (aim {aim})"
                out.append((ratio.median <= aim, text))
    return out


def measure(args: argparse.Namespace) -> tuple[list[Row], str]:
    model = load_model(args.model, args.dtype, progress=say)
    numbers = [0, *args.adapters]
    rounds: dict[int, list[Round]] = {n: [] for n in numbers}
    buffer = torch.ones(READ_BYTES // 4)
    order = random.Random(args.seed)

    def texts(seed: int) -> list[tuple[int, ...]]:
        return prompts(model.config.vocab, args.streams, args.prompt, seed)

    with tempfile.TemporaryDirectory(prefix="split-") as scratch:
        folders = [
            make_adapter(Path(scratch) / f"a{i}", model.config, args.rank, seed=i)
            for i in range(max(numbers))
        ]
        rig = CoreRig(model, folders, streams=args.streams)
        try:
            with metered(rig.runner) as meter:
                for n in numbers:  # adapters come to the device, buffers grow: not counted
                    for _ in rig.play(texts(n), dealt(args.streams, n), WARM_TOKENS):
                        pass
                say("warm")
                for number in range(args.rounds):
                    for n in order.sample(numbers, len(numbers)):
                        asked = texts(1000 * (number + 1) + n)
                        done = play(rig, meter, asked, n, args.output, args.rank, buffer)
                        rounds[n].append(done)
                    say(f"round {number + 1} of {args.rounds}")
        finally:
            rig.close()
        about = (
            f"{model.name}, {model.dtype_name}, {torch.get_num_threads()} threads, "
            f"{args.streams} streams, rank {args.rank}, {args.prompt} in, {args.output} out; "
            f"reads {statistics.median(r.bandwidth for r in rounds[0]) / 2**30:.1f} GiB/s"
        )
    return [row_of(rounds[n], rounds[0]) for n in numbers], about


def text(rows: Sequence[Row], about: str) -> list[str]:
    lines = [about, "", "milliseconds a decode step"]
    lines.append(
        f"{'adapters':<9}{'step':>7}{'/ base':>8}"
        + "".join(f"{p:>10}" for p in SHOWN)
        + f"{'python':>8}{'floor':>7}{'clock':>7}{'prefill s':>11}{'/ base':>8}"
    )
    for r in rows:
        step, prefill = (
            "" if x is None else f"{x.median:.2f}" for x in (r.step_ratio, r.prefill_ratio)
        )
        lines.append(
            f"{r.adapters or 'base':<9}{r.step_s * 1e3:>7.1f}{step:>8}"
            + "".join(f"{r.split[p] * 1e3:>10.2f}" for p in SHOWN)
            + f"{r.python_share:>8.1%}{r.floor_share:>7.0%}{r.clock_share:>7.1%}"
            f"{r.prefill_s:>11.2f}{prefill:>8}"
        )
    return lines


def say(told: str) -> None:
    print(told, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--streams", type=count, default=32)
    parser.add_argument("--adapters", type=counts, default=[1, 4, 8, 16, 32])
    parser.add_argument("--rank", type=count, default=16)
    parser.add_argument("--prompt", type=count, default=128, help="tokens in")
    parser.add_argument("--output", type=count, default=64, help="tokens out")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    try:
        rows, about = measure(args)
    except KeyboardInterrupt:
        return 130
    judged = claims(rows)
    if args.json:
        found: dict[str, Any] = {
            "about": about,
            "rows": [asdict(r) for r in rows],
            "claims": [{"met": ok, "claim": claim} for ok, claim in judged],
        }
        print(json.dumps(found))
    else:
        print("\n".join(text(rows, about)))
        for ok, claim in judged:
            print(f"{'PASS' if ok else 'MISS'}  {claim}")
    return 0 if all(ok for ok, _ in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
