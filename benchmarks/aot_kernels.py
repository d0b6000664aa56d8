"""Compile every Triton kernel ahead of time, and count the bytes its loads ask for. Needs no GPU.

    python benchmarks/aot_kernels.py [--targets sm_90,gfx942] [--part compile|bytes|all] [--json]

Two tables. The first is what each target's compiler makes of a kernel (heads of 128, as large
models have them; SGMV as `aot_sgmv.py`). The second is what a kernel must move once, by its shapes,
against what its loads and stores ask for, counted in Triton's interpreter; what is asked for twice
comes from a cache at best. Exit status 1 where a kernel spills registers, needs more shared memory
than the target has, or reads K, V or weights in pieces smaller than 16 bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import aot_sgmv
from aot_sgmv import DTYPES, SHARED_CEILING_BYTES, Compiled

from kernels.fused import gated_warps, normed_warps
from kernels.tuned import SAFE, SAFE_FP32, AttentionTile
from kernels.work import DECODE, PREFILL

HEADS, KV_HEADS, DIM, HIDDEN, FF, PAGE_TOKENS = 32, 8, 128, 4096, 14336, 16


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of one launch: what it must read and write once, and what its CTAs ask for."""

    kernel: str
    shape: str
    must_bytes: int
    asked_bytes: int

    @property
    def ratio(self) -> float:
        return self.asked_bytes / self.must_bytes


def attention_arguments(dtype: str, tile: AttentionTile, partial: bool) -> tuple[Any, Any]:
    data = f"*{dtype}"
    arguments = {"qkv": data, "arena": data, "out": "*fp32" if partial else data}
    arguments |= {"stats": "*fp32" if partial else data, "items": "*i32", "pages": "*i32"}
    arguments |= {"layer": "i32", "page_elements": "i32", "q_stride": "i32", "scale": "fp32"}
    constants = {"HEADS": HEADS, "KV_HEADS": KV_HEADS, "D": DIM, "BD": DIM}
    constants |= {"PAGE_TOKENS": PAGE_TOKENS, "BM": tile.rows, "BN": tile.keys}
    constants |= {"PARTIAL": partial, "UPCAST": False}
    return arguments, constants


def cases(dtype: str) -> Iterator[tuple[str, str, Any, tuple[Any, Any], int, int]]:
    """(op, tile, kernel, (arguments, constants), warps, stages) of the attention and fused ops."""
    from kernels import attention_jit, fused_jit

    data = f"*{dtype}"
    tiles = SAFE_FP32 if dtype == "fp32" else SAFE
    for name, tile in (("decode", tiles.decode), ("prefill", tiles.prefill)):
        made = attention_arguments(dtype, tile, name == "decode")
        yield "attend", name, attention_jit.attend_kernel, made, tile.warps, tile.stages
    arguments = {"partial": "*fp32", "stats": "*fp32", "out": data, "spans": "*i32"}
    constants: dict[str, Any] = {"HEADS": HEADS, "D": DIM, "BD": DIM, "BH": 16}
    yield "combine", "", attention_jit.combine_kernel, (arguments, constants), 4, 3
    arguments = {"x": "*fp32", "added": data, "weight": "*fp32", "out": data, "eps": "fp32"}
    constants = {"WIDTH": HIDDEN, "BLOCK": HIDDEN, "ADDS": True}
    yield "normed", "", fused_jit.normed_kernel, (arguments, constants), normed_warps(HIDDEN), 3
    arguments = {"gate_up": data, "out": data}
    constants = {"WIDTH": FF, "BLOCK": SAFE.block}
    yield "gated", "", fused_jit.gated_kernel, (arguments, constants), gated_warps(SAFE.block), 3
    arguments = {"qkv": data, "arena": data, "cos": "*fp32", "sin": "*fp32", "q_norm": "*fp32"}
    arguments |= {"k_norm": "*fp32", "rows": "*i32", "layer": "i32", "page_elements": "i32"}
    arguments |= {"eps": "fp32"}
    constants = {"HEADS": HEADS, "KV_HEADS": KV_HEADS, "D": DIM, "HALF": DIM // 2}
    constants |= {"PAGE_TOKENS": PAGE_TOKENS, "BH": SAFE.heads, "NORMS": True}
    yield "rotate", "", fused_jit.rotate_and_store_kernel, (arguments, constants), 4, 3


def compile_all(targets: list[str], dtypes: list[str]) -> list[Compiled]:
    rows = []
    for target in targets:
        for dtype in dtypes:
            for op, tile, fn, (arguments, constants), warps, stages in cases(dtype):
                even = [n for n, kind in arguments.items() if kind != "fp32" and n != "layer"]
                signature = arguments | dict.fromkeys(constants, "constexpr")
                built = aot_sgmv.build(target, fn, signature, constants, even, warps, stages)
                rows.append(Compiled(target, op, tile, dtype, *built))
            for op in ("shrink", "expand"):
                for name, sgmv_tile in (("decode", DECODE), ("prefill", PREFILL)):
                    rows.append(aot_sgmv.compile_one(target, op, name, sgmv_tile, dtype))
    return rows


def faults(row: Compiled) -> list[str]:
    found = row.faults()
    if row.op in ("rotate", "combine"):  # a few kilobytes a row: nothing is won by wide loads
        found = [f for f in found if "16-byte" not in f]
    return found


def counted_bytes() -> list[Moved]:
    """The second table, from a process whose Triton interprets."""
    run = subprocess.run(
        [sys.executable, __file__, "--part", "counting"],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        check=True,
    )
    return [Moved(**row) for row in json.loads(run.stdout)]


def count_here() -> list[Moved]:
    """Each kernel once in the interpreter, its loads and stores counted."""
    import aot_bytes
    import torch
    from triton.runtime.interpreter import interpreter_builder as builder

    torch.manual_seed(0)
    asked = 0
    load, store = builder.create_masked_load, builder.create_masked_store

    def counting_load(ptrs: Any, mask: Any, *rest: Any) -> Any:
        nonlocal asked
        made = load(ptrs, mask, *rest)
        asked += int(mask.data.sum()) * made.data.itemsize
        return made

    def counting_store(ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        nonlocal asked
        asked += int(mask.data.sum()) * value.data.itemsize
        return store(ptrs, value, mask, *rest)

    builder.create_masked_load, builder.create_masked_store = counting_load, counting_store
    found = []
    for kernel, shape, must, launch in aot_bytes.launches():
        asked = 0
        launch()
        found.append(Moved(kernel, shape, must, asked))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default=",".join(SHARED_CEILING_BYTES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--part", choices=("all", "compile", "bytes", "counting"), default="all")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    if options.part == "counting":
        print(json.dumps([asdict(m) for m in count_here()]))
        return 0
    rows, moved = [], []
    if options.part in ("all", "compile"):
        rows = compile_all(options.targets.split(","), options.dtypes.split(","))
    if options.part in ("all", "bytes"):
        moved = counted_bytes()
    if options.json:
        print(
            json.dumps({"compiled": [asdict(r) for r in rows], "moved": [asdict(m) for m in moved]})
        )
    if rows and not options.json:
        print("| target | op | tile | dtype | registers | spills | shared bytes | 16-byte loads |")
        print("|---|---|---|---|---|---|---|---|")
        for r in rows:
            print("| " + " | ".join(str(v) for v in asdict(r).values()) + " |")
        print()
    if moved and not options.json:
        print("| kernel | launch | must move, bytes | asked for, bytes | asked ÷ must |")
        print("|---|---|---|---|---|")
        for m in moved:
            numbers = f"{m.must_bytes:,} | {m.asked_bytes:,} | {m.ratio:.2f}"
            print(f"| {m.kernel} | {m.shape} | {numbers} |")
    found = [f"{r.target} {r.op} {r.tile} {r.dtype}: {f}" for r in rows for f in faults(r)]
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
