"""One model on several ranks beside the same model on one: answers, bytes paged, loads, steps.

    python benchmarks/tensor_parallel.py [--model smollm2-135m] [--tp 3] [--streams 4] [--json]

Real rank processes over gloo on this machine. The same prompts, adapters and page ids are given to
both; every stream decodes greedily, adapters dealt round over them.

    answers     greedy tokens that are equal, and the largest difference between two logits
    paged       KV bytes of the streams, and pages of an adapter, on the busiest rank
    loads       bytes and seconds of one adapter's load, rank by rank (receiving and copying)
    steps       seconds of a decode step, in the median

Aims: float32 tokens are equal and logits within 1e-3; a rank pages 1/tp of the KV; a load moves
less to each rank than the whole adapter. What a step takes is told, not judged: on one machine's
cores more ranks have no more cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.threads import bound_spinning

bound_spinning()

import torch

from engine.arguments import count
from engine.bench import prompts
from engine.config import PoolSpec
from engine.errors import EngineError
from engine.model.loaders import LoadedModel, load_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.parallel.adapters import CutReader
from engine.parallel.cut import check_cut
from engine.parallel.ranks import Ranks, open_ranks
from engine.parallel.runner import RankLoad, TensorParallelRunner
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import HostAdapter, Segment, StepPlan
from engine.serving.device import cores_here

PAGE_TOKENS = 16
SILENT_S = 60.0
WITHIN = 1e-3


@dataclass(frozen=True, slots=True)
class Asked:
    """What both are given."""

    prompts: tuple[tuple[int, ...], ...]
    folders: tuple[Path, ...]
    steps: int
    pages: int

    @property
    def pages_each(self) -> int:
        longest = max(map(len, self.prompts)) + self.steps
        return -(-longest // PAGE_TOKENS)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """`adapter_pages` of one adapter, its bytes on all ranks at true rank; `loads` of the last one,
    rank by rank."""

    tokens: tuple[tuple[int, ...], ...]
    logits: torch.Tensor
    page_bytes_a_rank: int
    adapter_pages: int
    adapter_bytes: int
    loads: tuple[RankLoad, ...]
    decode_s: float


def play(
    runner: TorchRunner | TensorParallelRunner,
    read: Callable[[Path], HostAdapter],
    asked: Asked,
    page_bytes_a_rank: int,
) -> Seen:
    """Load the adapters at the end of the arena, then decode every stream to its end."""
    end, keys, adapter_pages, adapter_bytes = runner.pages, [], 0, 0
    loads: tuple[RankLoad, ...] = ()
    for folder in asked.folders:
        adapter = read(folder)
        end -= adapter.pages
        began_s = time.perf_counter()
        runner.copy_in(adapter, range(end, end + adapter.pages))
        took_s = time.perf_counter() - began_s
        if isinstance(runner, TensorParallelRunner):
            loads = runner.last_load
        else:
            loads = (RankLoad(0, adapter.pages * page_bytes_a_rank, took_s),)
        keys.append(adapter.key)
        adapter_pages, adapter_bytes = adapter.pages, adapter.device_bytes
    texts = [list(p) for p in asked.prompts]
    done = [0] * len(texts)
    seconds: list[float] = []
    last = torch.empty(0)
    for step in range(asked.steps):
        plan = StepPlan(
            step, tuple(_segment(i, t, done[i], asked, keys) for i, t in enumerate(texts))
        )
        began_s = time.perf_counter()
        outcome = runner.execute(plan)
        seconds.append(time.perf_counter() - began_s)
        if outcome.failed or outcome.tokens is None:
            raise RuntimeError(f"rows failed: {dict(outcome.failed)}")
        if step == asked.steps - 1:
            rows = runner.logits(plan)
            last = torch.stack([rows[str(i)] for i in range(len(texts))])
        for i, text in enumerate(texts):
            done[i] = len(text)
            text.append(outcome.tokens[str(i)])
    made = tuple(tuple(t[-asked.steps :]) for t in texts)
    decode_s = statistics.median(seconds[1:])
    return Seen(made, last, page_bytes_a_rank, adapter_pages, adapter_bytes, loads, decode_s)


def _segment(i: int, text: list[int], done: int, asked: Asked, keys: Sequence[str]) -> Segment:
    each = asked.pages_each
    adapter = keys[i % len(keys)] if keys else None
    tokens, pages = tuple(text[done:]), tuple(range(i * each, (i + 1) * each))
    return Segment(str(i), "bench", adapter, tokens, done, pages, True, done == 0)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    model = load_model(args.model, args.dtype, progress=say)
    check_cut(model.config, args.tp)
    with tempfile.TemporaryDirectory(prefix="tensor-parallel-") as scratch:
        folders = tuple(
            make_adapter(Path(scratch) / f"a{i}", model.config, args.rank, seed=i)
            for i in range(args.adapters)
        )
        given = prompts(model.config.vocab, args.streams, args.prompt, 1)
        asked = Asked(tuple(map(tuple, given)), folders, args.output, args.pages)
        one = _one(model, asked)
        cut = _cut(model, asked, args)
    each = asked.pages_each * args.streams
    logits = float((one.logits - cut.logits).abs().max())
    return {
        "model": model.name,
        "dtype": model.dtype_name,
        "tp": args.tp,
        "streams": args.streams,
        "adapters": args.adapters,
        "lora_rank": args.rank,
        "tokens": sum(map(len, one.tokens)),
        "tokens_equal": sum(
            a == b
            for mine, theirs in zip(one.tokens, cut.tokens, strict=True)
            for a, b in zip(mine, theirs, strict=True)
        ),
        "largest_logit_difference": logits,
        "one": told(one, each),
        "cut": told(cut, each),
    }


def _one(model: LoadedModel, asked: Asked) -> Seen:
    runner = TorchRunner(model, asked.pages, PAGE_TOKENS)
    size = runner.page_bytes
    return play(runner, lambda f: read_adapter(f, model.config, model.dtype, size), asked, size)


def _cut(model: LoadedModel, asked: Asked, args: argparse.Namespace) -> Seen:
    spec = PoolSpec("bench", tp=args.tp)
    torch.set_num_threads(max(1, len(cores_here()) // args.tp))  # as the other ranks have it
    ranks = Ranks(spec, 0, args.model, asked.pages, PAGE_TOKENS, SILENT_S)
    runner = open_ranks(ranks, model, lost=say, say=say)
    try:
        size = runner.page_bytes
        read = CutReader(model.config, model.dtype, size, args.tp)
        return play(runner, read, asked, size // args.tp)
    finally:
        runner.close()


def told(seen: Seen, kv_pages: int) -> dict[str, Any]:
    return {
        "page_bytes_a_rank": seen.page_bytes_a_rank,
        "kv_bytes_a_rank": kv_pages * seen.page_bytes_a_rank,
        "adapter_pages": seen.adapter_pages,
        "adapter_bytes": seen.adapter_bytes,
        "loads": [{"rank": x.rank, "bytes": x.bytes_, "seconds": x.took_s} for x in seen.loads],
        "decode_step_s": seen.decode_s,
    }


def text(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['model']}, {found['dtype']}, {found['tp']} ranks over gloo beside one process: "
        f"{found['streams']} streams, {found['adapters']} adapters of rank {found['lora_rank']}",
        f"answers   {found['tokens_equal']} of {found['tokens']} greedy tokens equal, logits "
        f"within {found['largest_logit_difference']:.1e}",
        f"{'':10}{'one process':>14}{'each of ' + str(found['tp']):>14}",
    ]
    one, cut = found["one"], found["cut"]
    for name, key in (("page", "page_bytes_a_rank"), ("KV", "kv_bytes_a_rank")):
        lines.append(f"{name:<10}{one[key]:>12,} B{cut[key]:>12,} B")
    lines.append(f"{'adapter':<10}{one['adapter_pages']:>8} pages{cut['adapter_pages']:>8} pages")
    share = cut["adapter_bytes"] // found["tp"]
    lines.append(f"{'':10}{one['adapter_bytes']:>12,} B{share:>12,} B")
    for side in (one, cut):
        for load in side["loads"]:
            of = "one process" if side is one else f"rank {load['rank']}"
            lines.append(f"load      {of}: {load['bytes']:,} B in {load['seconds'] * 1e3:.2f} ms")
    step = f"{one['decode_step_s'] * 1e3:.1f} ms, cut {cut['decode_step_s'] * 1e3:.1f} ms"
    lines.append(f"step      decode, in the median: one process {step}")
    return lines


def claims(found: dict[str, Any]) -> list[tuple[bool, str]]:
    one, cut, tp = found["one"], found["cut"], found["tp"]
    judged = [
        (
            cut["kv_bytes_a_rank"] * tp == one["kv_bytes_a_rank"],
            f"a rank pages {cut['kv_bytes_a_rank']:,} B of {one['kv_bytes_a_rank']:,} B of KV "
            f"(aim 1/{tp})",
        )
    ]
    if found["dtype"] == "float32":
        equal = found["tokens_equal"] == found["tokens"]
        near = found["largest_logit_difference"] <= WITHIN
        judged.append((equal and near, f"answers are one process's (logits within {WITHIN:g})"))
    if found["adapters"]:
        whole, most = one["adapter_bytes"], cut["adapter_bytes"] // tp
        judged.append(
            (most < whole, f"a load moves {most / whole:.2f} of it to each rank (aim < 1)")
        )
    return judged


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32", choices=("bfloat16", "float32"))
    parser.add_argument("--tp", type=count, default=3, help="ranks")
    parser.add_argument("--streams", type=count, default=4)
    parser.add_argument("--adapters", type=count, default=4)
    parser.add_argument("--rank", type=count, default=16, help="of the adapters")
    parser.add_argument("--prompt", type=count, default=64, help="tokens in")
    parser.add_argument("--output", type=count, default=16, help="tokens out")
    parser.add_argument("--pages", type=count, default=300, help="of the arena")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    try:
        found = measure(args)
    except KeyboardInterrupt:
        return 130
    except EngineError as e:
        say(f"error: {e}")
        return 2
    judged = claims(found)
    if args.json:
        lines = [{"met": ok, "claim": claim} for ok, claim in judged]
        print(json.dumps({**found, "claims": lines}))
    else:
        print("\n".join(text(found)))
        for ok, claim in judged:
            print(f"{'PASS' if ok else 'MISS'}  {claim}")
    return 0 if all(ok for ok, _ in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
