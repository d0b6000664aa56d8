"""Grouped LoRA with Triton: checks operands and launches the pair. Owns no memory, plans no work.

Triton is imported at the first launch, so this module loads where there is none (its wheels are
for Linux). With TRITON_INTERPRET=1 set before that, the same kernels run on CPU tensors.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType

import torch

from kernels.blocks import ROW_ALIGN_BYTES, Table
from kernels.errors import KernelError
from kernels.jit import DTYPES, triton_module
from kernels.work import Work


def partials_shape(table: Table, work: Work, rows: int) -> tuple[int, int, int, int]:
    """Shape of the fp32 tensor between shrink and expand: [splits, slices, rows, ranks]."""
    r = work.tile.r
    ranks = max(1, -(-table.max_rank // r)) * r  # whole tiles keep each row's start aligned
    return work.tile.splits(table.in_width), table.slices, rows, ranks


def shrink(
    x: torch.Tensor, arena: torch.Tensor, table: Table, work: Work, out: torch.Tensor
) -> None:
    """Project rows down to their adapter's rank, each K split on its own.

    Semantics: sum over splits of out[:, s, i, :r] = x[i] @ A[a(i), s].T, r the true rank of row
    i's adapter in slice s. Rows of no adapter and columns past r are not written.

    x [rows, in], unit column stride; arena flat, of x's dtype; out fp32, at least
    `partials_shape`, unit column stride. Raises KernelError where they do not fit together.
    """
    _check_common(x, arena, table, work)
    if x.shape[1] != table.in_width:
        raise KernelError(f"x is {tuple(x.shape)}, the table's A is {table.in_width} wide")
    if x.dtype != arena.dtype:
        raise KernelError(f"x is {x.dtype}, the arena {arena.dtype}: cast x first")
    _check_partials(out, table, work, x.shape[0])
    if not len(work.shrink):
        return
    jit, interpreted = _kernels()
    tile = work.tile
    jit.shrink_kernel[(len(work.shrink), tile.splits(table.in_width))](
        x,
        arena,
        out,
        work.shrink,
        work.order,
        table.index,
        table.rows,
        table.in_width,
        x.stride(0),
        out.stride(0),
        out.stride(1),
        out.stride(2),
        SLICES=table.slices,
        ALIGN=ROW_ALIGN_BYTES // arena.itemsize,
        BM=tile.m,
        BR=tile.r,
        BK=tile.k,
        SPLIT_K=tile.split_k,
        UPCAST=interpreted,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def expand(t: torch.Tensor, arena: torch.Tensor, table: Table, work: Work, y: torch.Tensor) -> None:
    """Add the projections back up to each slice's width.

    Semantics: y[i, c_s : c_s + out_s] += sum over splits of t[:, s, i, :r] @ Bt[a(i), s], where c_s
    is the sum of the widths of the slices before s. Sums are fp32, rounded once to y's dtype; rows
    of no adapter are not touched. With a bf16 arena t is rounded to bf16 before the product.

    t as left by `shrink`; arena flat; y [rows, sum of out], unit column stride, any of fp32, fp16,
    bf16. Raises KernelError where they do not fit together.
    """
    _check_common(y, arena, table, work)
    if y.shape[1] != sum(table.out_widths):
        raise KernelError(f"y is {tuple(y.shape)}, the slices are {table.out_widths} wide")
    _check_partials(t, table, work, y.shape[0])
    if not len(work.expand):
        return
    jit, interpreted = _kernels()
    tile = work.tile
    jit.expand_kernel[(len(work.expand),)](
        t,
        arena,
        y,
        work.expand,
        work.order,
        table.index,
        table.rows,
        table.columns,
        y.stride(0),
        t.stride(0),
        t.stride(1),
        t.stride(2),
        SLICES=table.slices,
        SPLITS=tile.splits(table.in_width),
        ALIGN=ROW_ALIGN_BYTES // arena.itemsize,
        BM=tile.m,
        BR=tile.r,
        BN=tile.n,
        WIDTH_ALIGN=math.gcd(16, *table.out_widths),
        WIDE=arena.dtype != torch.bfloat16,
        UPCAST=interpreted,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


@functools.cache
def _kernels() -> tuple[ModuleType, bool]:
    """The Triton kernels, and whether the interpreter runs them."""
    return triton_module("sgmv_jit", "shrink_kernel")


def _check_common(rows: torch.Tensor, arena: torch.Tensor, table: Table, work: Work) -> None:
    if rows.dim() != 2 or rows.stride(1) != 1:
        raise KernelError(
            f"x or y is {tuple(rows.shape)} with strides {rows.stride()}: expected [rows, width] "
            "with contiguous rows"
        )
    if rows.shape[0] < work.x_rows:
        raise KernelError(f"x or y has {rows.shape[0]} rows, the work list names {work.x_rows}")
    if arena.dtype not in DTYPES or arena.dtype != table.dtype:
        raise KernelError(f"the arena is {arena.dtype}, the table was built for {table.dtype}")
    if arena.dim() != 1 or arena.stride(0) != 1:
        raise KernelError(f"the arena is {tuple(arena.shape)}: expected one flat tensor")
    if work.ranks.shape != table.ranks.shape:
        raise KernelError(
            f"the work list is for {work.ranks.shape} (slots, slices), the table for "
            f"{table.ranks.shape}"
        )
    if (table.ranks > work.ranks).any():
        # The list has no items for the ranks beyond, so they would be lost without a word.
        slot, piece = (int(i[0]) for i in (table.ranks > work.ranks).nonzero())
        raise KernelError(
            f"slot {slot}, slice {piece} has rank {table.ranks[slot, piece]}, the work list was "
            f"built for {work.ranks[slot, piece]}: build it with the largest rank of all layers"
        )


def _check_partials(t: torch.Tensor, table: Table, work: Work, rows: int) -> None:
    needed = partials_shape(table, work, rows)
    if t.dtype != torch.float32 or t.dim() != 4 or t.stride(3) != 1:
        raise KernelError(f"t is {t.dtype} {tuple(t.shape)}: expected contiguous fp32 {needed}")
    if any(have < need for have, need in zip(t.shape, needed, strict=True)):
        raise KernelError(f"t is {tuple(t.shape)}, too small: expected at least {needed}")
