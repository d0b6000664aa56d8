"""Norms, RoPE with its KV write, and the gate with Triton: checks operands and launches.

Owns no memory. Triton is imported at the first launch.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch

from kernels.attention import Heads, PagedWork, check_arena, power_of_two
from kernels.backend import HeadNorms
from kernels.errors import KernelError
from kernels.jit import triton_module


def normed(
    x: torch.Tensor,
    added: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> None:
    """The residual stream's sum and its RMSNorm, in one pass.

    Semantics: x += added, in place; out = x / √(mean(x²) + eps) · weight, rounded once.
    Shapes: x float32 [rows, width], added [rows, width], weight [width], out [rows, width]; all
    contiguous. Raises KernelError where they do not fit together.
    """
    rows, width = _same("x and out", x, out)
    if added is not None:
        _same("x and added", x, added)
    if x.dtype != torch.float32 or weight.shape != (width,):
        raise KernelError(
            f"x is {x.dtype} of width {width}, weight {tuple(weight.shape)}: expected float32 and "
            f"[{width}]"
        )
    if not rows:
        return
    jit, _ = _kernels()
    block = power_of_two(width)
    jit.normed_kernel[(rows,)](
        x,
        x if added is None else added,
        weight,
        out,
        eps,
        WIDTH=width,
        BLOCK=block,
        ADDS=added is not None,
        num_warps=normed_warps(block),
    )


def gated(gate_up: torch.Tensor, out: torch.Tensor, block: int) -> None:
    """The MLP's gate.

    Semantics: out = SiLU(gate) · up, SiLU(g) = g / (1 + e⁻ᵍ), rounded once.
    Shapes: gate_up [rows, 2 x ff], out [rows, ff], contiguous; `block` columns a CTA, a power of
    two. Raises KernelError where they do not fit together.
    """
    rows, width = out.shape
    if gate_up.shape != (rows, 2 * width) or not (gate_up.is_contiguous() and out.is_contiguous()):
        raise KernelError(
            f"gate_up is {tuple(gate_up.shape)}, out {tuple(out.shape)}: expected contiguous "
            "[rows, 2 x ff] and [rows, ff]"
        )
    if not rows:
        return
    jit, _ = _kernels()
    block = min(block, power_of_two(width))
    jit.gated_kernel[(rows, -(-width // block))](
        gate_up, out, WIDTH=width, BLOCK=block, num_warps=gated_warps(block)
    )


def rotate_and_store(
    qkv: torch.Tensor,
    arena: torch.Tensor,
    layer: int,
    page_tokens: int,
    heads: Heads,
    work: PagedWork,
    rope: tuple[torch.Tensor, torch.Tensor],
    norms: HeadNorms | None,
    eps: float,
    heads_a_program: int,
) -> None:
    """Norm each head of q and k (if asked), rotate them, store k and v in the step's pages.

    Semantics: u = u / √(mean(u²) + eps) · norm, for each head u of q and k; then
    u = u · cos[p] + (second half, first half of u) · sin[p], p the row's position. q stays in
    `qkv`, k and v go to slot p % page_tokens of the row's page. Rounded once.

    qkv [rows, (q + 2 kv heads) x dim], contiguous; arena as `attention.attend`; rope: float32
    [positions, dim] each. Raises KernelError where they do not fit together.
    """
    check_arena(arena, qkv, layer, page_tokens, heads, work)
    cos, sin = rope
    if qkv.shape[1] != heads.qkv_width or not qkv.is_contiguous():
        raise KernelError(
            f"qkv is {tuple(qkv.shape)}: expected contiguous [rows, {heads.qkv_width}]"
        )
    if not cos.shape == sin.shape == (len(cos), heads.dim) or work.most_positions > len(cos):
        raise KernelError(
            f"rope tables of {tuple(cos.shape)} and {tuple(sin.shape)}: expected [at least "
            f"{work.most_positions}, {heads.dim}]"
        )
    if not len(qkv):
        return
    jit, _ = _kernels()
    turned = heads.q + heads.kv
    high = min(heads_a_program, 1 << (turned - 1).bit_length())
    jit.rotate_and_store_kernel[(len(qkv), -(-turned // high))](
        qkv,
        arena,
        cos,
        sin,
        cos if norms is None else norms.q,
        cos if norms is None else norms.k,
        work.rows,
        layer,
        arena.shape[1],
        eps,
        HEADS=heads.q,
        KV_HEADS=heads.kv,
        D=heads.dim,
        HALF=1 << (heads.dim // 2 - 1).bit_length(),
        PAGE_TOKENS=page_tokens,
        BH=high,
        NORMS=norms is not None,
        num_warps=4,
    )


def normed_warps(block: int) -> int:
    """So many that a thread holds at most 16 values of a row on NVIDIA."""
    return max(1, min(16, block // 512))


def gated_warps(block: int) -> int:
    """So few that a thread loads 16 bytes at a time, with AMD's 64 threads a warp as well."""
    return max(1, min(4, block // 512))


@functools.cache
def _kernels() -> tuple[ModuleType, bool]:
    return triton_module("fused_jit", "normed_kernel")


def _same(what: str, one: torch.Tensor, other: torch.Tensor) -> tuple[int, int]:
    if one.dim() != 2 or one.shape != other.shape:
        raise KernelError(f"{what} are {tuple(one.shape)} and {tuple(other.shape)}: not alike")
    if not (one.is_contiguous() and other.is_contiguous()):
        raise KernelError(f"{what} must be contiguous")
    return int(one.shape[0]), int(one.shape[1])
