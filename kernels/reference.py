"""What grouped LoRA means, in slow plain torch: the oracle of every faster path. Knows no tiles.

Operands lie in one flat arena; each block is found through its spans (element offset, row
stride), each segment is computed at its adapter's true rank. Rows of no adapter, columns past a
row's rank and modules an adapter leaves alone are not touched: not written, not even with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.blocks import Block, Pairs
from kernels.work import Segment


def block_matrix(arena: torch.Tensor, block: Block) -> torch.Tensor:
    """The block's values as fp64 [rank, width], gathered from its spans in the flat `arena`."""
    # Sliced first: as_strided's own offset counts from the storage, which the arena may not begin.
    parts = [
        arena[s.offset :].as_strided((s.rows, block.width), (s.stride, 1)) for s in block.spans
    ]
    if not parts:
        return torch.empty(0, block.width, dtype=torch.float64, device=arena.device)
    return torch.cat(parts).to(torch.float64)


def shrink(
    x: torch.Tensor,
    arena: torch.Tensor,
    pairs: Pairs,
    segments: Sequence[Segment],
    out: torch.Tensor,
) -> None:
    """Project rows down to their adapter's rank.

    Semantics: out[s, i, :r] = x[i] @ A[a(i), s].T for every row i of a segment whose adapter a(i)
    has a pair of rank r > 0 in slice s.

    x [rows, in]; arena [elements], flat; out fp32 [slices, rows, >= max rank], written in place.
    """
    for segment in segments:
        if segment.slot < 0:
            continue
        rows = slice(segment.first_row, segment.first_row + segment.rows)
        for s, pair in enumerate(pairs[segment.slot]):
            if pair is None or not pair.rank:
                continue
            a = block_matrix(arena, pair.a)
            out[s, rows, : pair.rank] = (x[rows].to(torch.float64) @ a.T).to(out.dtype)


def expand(
    t: torch.Tensor,
    arena: torch.Tensor,
    pairs: Pairs,
    segments: Sequence[Segment],
    y: torch.Tensor,
) -> None:
    """Add the projections back up to each slice's width.

    Semantics: y[i, c_s : c_s + out_s] += t[s, i, :r] @ Bt[a(i), s], where c_s is the sum of the
    widths of the slices before s. The scale is in Bt already.

    t fp32 [slices, rows, >= max rank]; arena [elements], flat; y [rows, sum of out], in place,
    rounded once to y's dtype.
    """
    for segment in segments:
        if segment.slot < 0:
            continue
        rows = slice(segment.first_row, segment.first_row + segment.rows)
        column = 0
        widths = _slice_widths(pairs)
        for s, pair in enumerate(pairs[segment.slot]):
            if pair is not None and pair.rank:
                bt = block_matrix(arena, pair.bt)
                target = y[rows, column : column + widths[s]]
                added = t[s, rows, : pair.rank].to(torch.float64) @ bt
                target.copy_((target.to(torch.float64) + added).to(y.dtype))
            column += widths[s]


def _slice_widths(pairs: Pairs) -> list[int]:
    """Output width of each slice, from whichever adapter has it (0 where none does)."""
    return [
        max((p.bt.width for p in column if p is not None), default=0)
        for column in zip(*pairs, strict=True)
    ]
