"""The native CPU LoRA beside plain torch, on SmolLM2-135M's shapes, all in one run.

    GOMP_SPINCOUNT=500 python benchmarks/lora_cpu.py [--rounds 30] [--isa avx512] [--json]

Three tables: one 576 x 576 linear at 32 rows with 16 adapters; the LoRA of a whole decode step of
32 rows with 1 to 32 adapters of rank 16, beside the step's linears; 512 prompt rows of 8 adapters.
Medians over rounds that take all variants in turn: ratios are what to trust. Weights are random,
the arithmetic does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

from engine.threads import bound_spinning

bound_spinning()

import torch

from engine.memory.packing import padded_row_bytes
from engine.model.linear import Linear
from kernels.backend import GROUPS, AdapterBlocks, Block, LoraBackend, Rows
from kernels.cpu import Absent, find
from kernels.cpu_lora import CpuLora
from kernels.torch_ops import GroupedLora

LAYERS, HIDDEN, KV, FF, RANK = 30, 576, 192, 1536, 16
SHAPES = {
    "q_proj": (HIDDEN, HIDDEN), "k_proj": (KV, HIDDEN), "v_proj": (KV, HIDDEN),
    "o_proj": (HIDDEN, HIDDEN), "gate_proj": (FF, HIDDEN), "up_proj": (FF, HIDDEN),
    "down_proj": (HIDDEN, FF),
}  # fmt: skip
BF16 = torch.bfloat16


def adapters(count: int) -> dict[str, AdapterBlocks]:
    """Each in one run of memory, blocks in the order the engine packs them."""
    made = {}
    for i in range(count):
        sizes = [
            RANK * padded_row_bytes(w, 2) // 2
            for _ in range(LAYERS)
            for m in sorted(SHAPES)
            for w in SHAPES[m]
        ]
        memory = (torch.randn(sum(sizes)) / 24).to(BF16)
        blocks, at = {}, 0
        for layer in range(LAYERS):
            for m in sorted(SHAPES):
                out, width = SHAPES[m]
                sides = []
                for w in (width, out):
                    stride = padded_row_bytes(w, 2) // 2
                    sides.append(memory[at : at + RANK * stride].view(RANK, stride)[:, :w])
                    at += RANK * stride
                blocks[layer, m] = Block(RANK, (sides[0],), (sides[1],))
        made[f"a{i}"] = AdapterBlocks(f"a{i}", i + 1, RANK, blocks)
    return made


def medians(rounds: int, variants: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Seconds of each, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for name in variants:
        variants[name]()
    for _ in range(rounds):
        for name, act in variants.items():
            began = time.perf_counter()
            act()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(t) for name, t in times.items()}


def one_linear(native: LoraBackend, rounds: int) -> dict[str, float]:
    """µs of a [32, 576] x [576, 576] linear and of 16 adapters' LoRA beside it."""
    known = {
        key: AdapterBlocks(key, a.generation, RANK, {(0, "o_proj"): a.blocks[0, "o_proj"]})
        for key, a in adapters(16).items()
    }
    rows = [Rows(f"a{i // 2}", i, i + 1) for i in range(32)]
    x, y = torch.randn(32, HIDDEN).to(BF16), torch.zeros(32, HIDDEN, dtype=BF16)
    linear = Linear(torch.randn(HIDDEN, HIDDEN).to(BF16))
    blocks = [a.blocks[0, "o_proj"] for a in known.values()]
    a, bt = torch.stack([b.a[0] for b in blocks]), torch.stack([b.bt[0] for b in blocks])
    index = torch.arange(32) // 2

    def gathered() -> None:
        t = torch.bmm(x[:, None], a[index].transpose(1, 2))
        y.add_(torch.bmm(t, bt[index])[:, 0])

    def applied(lora: LoraBackend) -> Callable[[], None]:
        step = lora.prepare(rows, known)
        assert step is not None
        return lambda: step.apply(0, "o", x, y)

    acts: dict[str, Callable[[], object]] = {
        "base linear": lambda: linear(x),
        "native": applied(native),
        "grouped torch": applied(GroupedLora(LAYERS, SHAPES, BF16)),
        "gather + bmm": gathered,
    }
    found = medians(rounds, {name: fifty(act) for name, act in acts.items()})
    return {name: 1e6 * s / 50 for name, s in found.items()}


def fifty(act: Callable[[], object]) -> Callable[[], None]:
    def acts() -> None:
        for _ in range(50):
            act()

    return acts


def whole_step(
    native: LoraBackend, rows: list[Rows], known: dict[str, AdapterBlocks], rounds: int
) -> dict[str, float]:
    """ms of a step's linears, and of its LoRA by each backend."""
    total = rows[-1].stop
    x = {g: torch.randn(total, SHAPES[m[0]][1]).to(BF16) for g, m in GROUPS.items()}
    y = {g: torch.zeros(total, sum(SHAPES[i][0] for i in m), dtype=BF16) for g, m in GROUPS.items()}
    torch_lora = GroupedLora(LAYERS, SHAPES, BF16, max_columns=1024, max_staged=1024)

    def run(lora: LoraBackend) -> None:
        step = lora.prepare(rows, known)
        assert step is not None
        for layer in range(LAYERS):
            for g in GROUPS:
                step.apply(layer, g, x[g], y[g])

    def linears() -> None:
        for layer in LINEARS:
            for g in GROUPS:
                layer[g](x[g])

    found = medians(
        rounds,
        {"linears": linears, "native": lambda: run(native), "torch": lambda: run(torch_lora)},
    )
    return {name: 1e3 * s for name, s in found.items()}


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--rounds", type=int, default=30)
    parse.add_argument("--isa", default="", help="hold the native kernels to this instruction set")
    parse.add_argument("--json", action="store_true")
    asked = parse.parse_args()
    torch.manual_seed(0)
    found = find({**os.environ, "TENANTSCOPE_ISA": asked.isa})
    if isinstance(found, Absent):
        raise SystemExit(f"nothing to measure: {found.reason}")

    def native() -> LoraBackend:
        return CpuLora(found, LAYERS, SHAPES, BF16)

    told: dict[str, object] = {"isa": found.isa.name.lower(), "threads": torch.get_num_threads()}
    with torch.inference_mode():
        told["one_linear_us"] = one_linear(native(), asked.rounds)
        known = adapters(32)
        steps = {}
        for count in (1, 4, 8, 16, 32):
            rows = [Rows(f"a{i % count}", i, i + 1) for i in range(32)]
            steps[count] = whole_step(native(), rows, known, asked.rounds)
        told["decode_step_ms"] = steps
        rows = [Rows(f"a{i}", 64 * i, 64 * i + 64) for i in range(8)]
        told["prefill_ms"] = whole_step(native(), rows, known, max(3, asked.rounds // 4))
    if asked.json:
        print(json.dumps(told))
    else:
        show(told)


def show(told: dict[str, object]) -> None:
    print(f"native: {told['isa']}, {told['threads']} threads, bf16, rank {RANK}, seven modules\n")
    print("one 576 x 576 linear, 32 rows, 16 adapters, µs")
    for name, us in told["one_linear_us"].items():
        print(f"  {name:<14}{us:8.0f}")
    weights = 2 * RANK * LAYERS * sum(map(sum, SHAPES.values())) / 2**30
    print("\n32 rows, ms a step    linears  native   torch   with LoRA / linears   GiB/s of LoRA")
    for count, ms in told["decode_step_ms"].items():
        share = (
            f"{1 + ms['native'] / ms['linears']:.2f} (torch {1 + ms['torch'] / ms['linears']:.2f})"
        )
        rate = weights * count / ms["native"] * 1e3
        print(
            f"  {count:>2} adapters       {ms['linears']:9.1f}{ms['native']:8.1f}{ms['torch']:8.1f}"
            f"   {share:<20}{rate:12.1f}"
        )
    ms = told["prefill_ms"]
    print(
        f"\n512 prompt rows, 8 adapters, ms: linears {ms['linears']:.0f}, "
        f"native {ms['native']:.1f}, torch {ms['torch']:.1f}"
    )


def make_linears() -> list[dict[str, Linear]]:
    out = {g: sum(SHAPES[i][0] for i in m) for g, m in GROUPS.items()}
    return [
        {g: Linear(torch.randn(out[g], SHAPES[m[0]][1]).to(BF16)) for g, m in GROUPS.items()}
        for _ in range(LAYERS)
    ]


LINEARS = make_linears()

if __name__ == "__main__":
    main()
