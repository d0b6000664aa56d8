"""Tile sizes of the attention and fused kernels by architecture, and a default safe everywhere.

The defaults compile without spills and within shared memory on every target that
`benchmarks/aot_kernels.py` knows. What an entry of `TUNED` says was measured on that device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """What one CTA of attention holds: `rows` queries x heads of one KV head, `keys` a step; both
    powers of two from 16 on. Of a decode row one CTA takes `split` keys, a multiple of `keys`.

    Splits depend on the context's length only, so a row's bits do not change with its neighbours.
    """

    rows: int
    keys: int
    split: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class OpsTiles:
    """Tiles of a step's ops. `block`: columns one CTA of the gate computes; `heads`: those one CTA
    of RoPE takes."""

    decode: AttentionTile = AttentionTile(rows=16, keys=64, split=256, warps=4, stages=2)
    prefill: AttentionTile = AttentionTile(rows=64, keys=32, split=1 << 30, warps=4, stages=2)
    block: int = 1024
    heads: int = 8


SAFE = OpsTiles()
# fp32 operands take twice the room, and their IEEE products twice the registers again.
SAFE_FP32 = OpsTiles(
    decode=AttentionTile(rows=16, keys=16, split=256, warps=4, stages=1),
    prefill=AttentionTile(rows=32, keys=16, split=1 << 30, warps=8, stages=1),
)
# For 16-bit dtypes; by torch.cuda.get_device_capability() on NVIDIA, by gcnArchName's first part on
# AMD. An entry needs a measurement on that device (`benchmarks/gpu.py` times candidates); none has
# been made.
TUNED: dict[str, OpsTiles] = {}


def architecture(device: torch.device) -> str:
    """`sm_90`, `gfx942` or `cpu` (the interpreter)."""
    if device.type != "cuda":
        return "cpu"
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(device).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def tiles_for(device: torch.device, dtype: torch.dtype) -> OpsTiles:
    """The device's own tiles, else the safe ones."""
    if dtype == torch.float32:
        return SAFE_FP32
    return TUNED.get(architecture(device), SAFE)
