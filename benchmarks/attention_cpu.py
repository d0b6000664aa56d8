"""Paged attention and the fused ops on the CPU: native beside plain torch, in one run, interleaved.

    GOMP_SPINCOUNT=500 python benchmarks/attention_cpu.py [--dtype bfloat16] [--rounds 30] [--json]

SmolLM2-135M's shape, pages of 16 tokens in random order. `gather+SDPA` is the engine's plain torch;
`contiguous SDPA` is torch on keys that already lie side by side (decode only): what paging costs.
Each figure is one layer's call, RoPE and the write of K and V included (not in the contiguous
one), median over rounds. Ratios are what to trust.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from engine.threads import bound_spinning

bound_spinning()

import torch
import torch.nn.functional as F

from engine.model.config import SMOLLM2_135M
from engine.model.rope import rope_tables
from engine.runner.arena import Arena
from engine.runner.attention import TorchOps
from engine.runner.ops import best_ops
from kernels.backend import OpsBackend, PagedRows

PAGE_TOKENS = 16
# Steps: name, then (context before the step, new tokens) of each sequence.
STEPS: Sequence[tuple[str, Sequence[tuple[int, int]]]] = (
    ("decode, 32 rows, context 128", [(127, 1)] * 32),
    ("decode, 32 rows, context 512", [(511, 1)] * 32),
    ("decode, 32 rows, context 2048", [(2047, 1)] * 32),
    ("decode, 1 row, context 4096", [(4095, 1)]),
    ("prefill, 4 x 128 tokens", [(0, 128)] * 4),
    ("prefill, 512 tokens", [(0, 512)]),
    ("prefill, 512 tokens after 1024", [(1024, 512)]),
    ("mixed, 31 rows and 480 tokens", [*[(255, 1)] * 31, (0, 480)]),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds of one layer's call."""

    what: str
    torch_us: float
    native_us: float
    contiguous_us: float | None


def paged_rows(step: Sequence[tuple[int, int]], pages: list[int]) -> PagedRows:
    rows = PagedRows(array("q", (0,)), array("q"), array("q", (0,)), array("q"))
    taken = iter(pages)
    for start, count in step:
        rows.first_row.append(rows.first_row[-1] + count)
        rows.start.append(start)
        rows.pages.extend(next(taken) for _ in range(-(-(start + count) // PAGE_TOKENS)))
        rows.first_page.append(len(rows.pages))
    return rows


def medians(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median microseconds of each, in turn, so that all meet the same neighbours."""
    took: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for mine, call in zip(took, calls, strict=True):
            began = time.perf_counter()
            call()
            mine.append(time.perf_counter() - began)
    return [statistics.median(t) * 1e6 for t in took]


def attention(
    backends: Sequence[OpsBackend], dtype: torch.dtype, rounds: int, pages: int
) -> list[Row]:
    c = SMOLLM2_135M
    shuffled = list(range(pages))
    random.Random(0).shuffle(shuffled)
    layers = iter(range(10**9))  # another layer each call, as in a step: its pages are not warm
    found = []
    for name, step in STEPS:
        rows = paged_rows(step, shuffled)
        count = rows.first_row[-1]
        qkv = torch.randn(count, c.q_width + 2 * c.kv_width).to(dtype)
        steps = [b.prepare(rows) for b in backends]
        calls: list[Callable[[], object]] = [
            lambda s=s, qkv=qkv: s.attend(next(layers) % c.layers, qkv, None)  # type: ignore[misc]
            for s in steps
        ]
        if all(n == 1 for _, n in step):
            context = step[0][0] + 1
            # As many copies as there are layers, or the caches would answer.
            kv = torch.randn(c.layers, 2, len(step), c.kv_heads, context, c.head_dim).to(dtype)
            q = torch.randn(len(step), c.kv_heads, c.heads // c.kv_heads, c.head_dim).to(dtype)
            calls.append(
                lambda kv=kv, q=q: F.scaled_dot_product_attention(  # type: ignore[misc]
                    q, *kv[next(layers) % c.layers]
                )
            )
        us = medians(calls, rounds)
        found.append(Row(name, us[0], us[1], us[2] if len(us) > 2 else None))
    return found


def fused(backends: Sequence[OpsBackend], dtype: torch.dtype, rounds: int) -> list[Row]:
    c = SMOLLM2_135M
    found = []
    for count in (1, 32, 512):
        rows = paged_rows([(0, count)], list(range(40)))
        steps = [b.prepare(rows) for b in backends]
        x, added = torch.zeros(count, c.hidden), torch.zeros(count, c.hidden, dtype=dtype)
        weight, both = torch.ones(c.hidden, dtype=dtype), torch.randn(count, 2 * c.ff).to(dtype)
        for name, calls in (
            ("add and norm", [partial(s.normed, x, added, weight) for s in steps]),
            ("gate", [partial(s.gated, both) for s in steps]),
        ):
            us = medians(calls, rounds)
            found.append(Row(f"{name}, {count} rows", us[0], us[1], None))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    c = SMOLLM2_135M
    pages = max(sum(-(-(a + b) // PAGE_TOKENS) for a, b in step) for _, step in STEPS)
    arena = Arena(c, pages, PAGE_TOKENS, dtype)
    arena.elements.normal_()
    native, said = best_ops(c, arena)
    print(said, f"{torch.get_num_threads()} threads", sep="; ", file=sys.stderr)
    if isinstance(native, TorchOps):
        raise SystemExit("nothing to compare: the native kernels are not here")
    backends = (TorchOps(c, arena, rope_tables(c)), native)
    with torch.inference_mode():
        rows = [
            *attention(backends, dtype, args.rounds, pages),
            *fused(backends, dtype, args.rounds),
        ]
    if args.json:
        print(json.dumps([asdict(r) for r in rows], indent=1))
        return
    print(
        f"{'one layer, ' + args.dtype:34}{'torch us':>10}{'native':>10}{'x':>7}{'contiguous':>12}"
    )
    for r in rows:
        contiguous = f"{r.contiguous_us:12.0f}" if r.contiguous_us is not None else ""
        print(
            f"{r.what:34}{r.torch_us:10.0f}{r.native_us:10.0f}{r.torch_us / r.native_us:7.1f}"
            f"{contiguous}"
        )


if __name__ == "__main__":
    main()
