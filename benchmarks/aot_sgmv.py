"""Compile the SGMV pair ahead of time and print what each target makes of it. Needs no GPU.

    python benchmarks/aot_sgmv.py [--targets sm_90,gfx942] [--json]

Exit status 1 where a kernel spills registers, needs more shared memory than the target has, or
loads 16-bit weights in pieces smaller than 16 bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernels.work import DECODE, PREFILL, Tile

SLICES = 3
IN_WIDTH = 4096
DTYPES = {"fp32": 4, "fp16": 2, "bf16": 2}
# The most shared memory (LDS on AMD) one program may have, in bytes.
SHARED_CEILING_BYTES = {
    "sm_80": 163 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "gfx942": 64 * 1024,
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel on one target. `registers` and `spills` are a thread's; spills count 32-bit words
    on AMD and bytes on NVIDIA. `wide_loads`: 16-byte global loads in the code."""

    target: str
    op: str
    tile: str
    dtype: str
    registers: int
    spills: int
    shared_bytes: int
    wide_loads: int

    def faults(self) -> list[str]:
        ceiling = SHARED_CEILING_BYTES[self.target]
        found = []
        if self.spills:
            found.append(f"spills {self.spills}")
        if self.shared_bytes > ceiling:
            found.append(f"needs {self.shared_bytes} bytes of shared memory, there are {ceiling}")
        if not self.wide_loads:
            found.append("has no 16-byte loads")
        return found


def kernel_arguments(op: str, dtype: str, tile: Tile) -> tuple[dict[str, str], dict[str, Any]]:
    """(signature, constexprs) of a kernel as `kernels.sgmv` launches it."""
    i32, i64, fp32, data = "*i32", "*i64", "*fp32", f"*{dtype}"
    common = {"SLICES": SLICES, "ALIGN": 128 // DTYPES[dtype], "BM": tile.m, "BR": tile.r}
    if op == "shrink":
        arguments = {"x": data, "arena": data, "t": fp32, "items": i32, "order": i32, "index": i32}
        arguments |= {"block_rows": i64, "K": "i32", "x_stride": "i32"}
        constants = {**common, "BK": tile.k, "SPLIT_K": tile.split_k, "UPCAST": False}
    else:
        arguments = {"t": fp32, "arena": data, "y": data, "items": i32, "order": i32, "index": i32}
        arguments |= {"block_rows": i64, "columns": i32, "y_stride": "i32"}
        constants = {**common, "SPLITS": tile.splits(IN_WIDTH), "BN": tile.n, "UPCAST": False}
        constants["WIDTH_ALIGN"] = 16
        constants["WIDE"] = dtype != "bf16"
    arguments |= {"t_split": "i32", "t_slice": "i32", "t_row": "i32"}
    return arguments | dict.fromkeys(constants, "constexpr"), constants


def compile_one(target: str, op: str, tile_name: str, tile: Tile, dtype: str) -> Compiled:
    from kernels import sgmv_jit

    fn = getattr(sgmv_jit, f"{op}_kernel")
    signature, constants = kernel_arguments(op, dtype, tile)
    # As the launcher finds them: tensors on 16-byte boundaries, sizes and strides multiples of 16.
    even = [name for name, kind in signature.items() if kind != "constexpr"]
    built = build(target, fn, signature, constants, even, tile.warps, tile.stages)
    return Compiled(target, op, tile_name, dtype, *built)


def build(
    target: str,
    fn: Any,
    signature: dict[str, str],
    constants: dict[str, Any],
    even: Iterable[str],
    warps: int,
    stages: int,
) -> tuple[int, int, int, int]:
    """(registers, spills, shared bytes, 16-byte loads) of a kernel compiled for a target.

    even: the arguments that are multiples of 16.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(signature)
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in even}
    source = ASTSource(fn, signature, constexprs=constants, attrs=attrs)
    options = {"num_warps": warps, "num_stages": stages}
    if target.startswith("sm_"):
        built = triton.compile(
            source, target=GPUTarget("cuda", int(target[3:]), 32), options=options
        )
        registers, spills = _nvidia_usage(built.asm["cubin"])
        wide = len(
            re.findall(r"(ld\.global[\w.:]*\.v4\.b32|cp\.async\.cg\S* .*0x10)", built.asm["ptx"])
        )
    else:
        built = triton.compile(source, target=GPUTarget("hip", target, 64), options=options)
        text = built.asm["amdgcn"]
        registers = _amd_number(text, "vgpr_count")
        spills = _amd_number(text, "vgpr_spill_count") + _amd_number(text, "sgpr_spill_count")
        wide = len(re.findall(r"(global|buffer)_load_dwordx4", text))
    return registers, spills, built.metadata.shared, wide


def _nvidia_usage(cubin: bytes) -> tuple[int, int]:
    """(registers, stack bytes) of the kernel in a cubin; a spill shows as stack."""
    import triton.backends.nvidia as nvidia

    tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [str(tool), "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no resource usage: {text!r}")
    return int(found[1]), int(found[2])


def _amd_number(assembly: str, name: str) -> int:
    found = re.search(rf"\.{name}:\s+(\d+)", assembly)
    if found is None:
        raise RuntimeError(f"no .{name} in the assembly's metadata")
    return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default=",".join(SHARED_CEILING_BYTES))
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    options = parser.parse_args()
    rows = [
        compile_one(target, op, name, tile, dtype)
        for target in options.targets.split(",")
        for op in ("shrink", "expand")
        for name, tile in (("decode", DECODE), ("prefill", PREFILL))
        for dtype in DTYPES
    ]
    if options.json:
        print(json.dumps([asdict(r) for r in rows]))
    else:
        print("| target | op | tile | dtype | registers | spills | shared bytes | 16-byte loads |")
        print("|---|---|---|---|---|---|---|---|")
        for r in rows:
            print("| " + " | ".join(str(v) for v in asdict(r).values()) + " |")
    faults = [f"{r.target} {r.op} {r.tile} {r.dtype}: {f}" for r in rows for f in r.faults()]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
