"""The two Triton kernels of grouped LoRA, and nothing else. Importing this needs triton.

One program computes one item of the work list (`kernels.work`). No atomics and no grid-wide
syncs: shrink leaves fp32 partials of each K split side by side and expand adds them as it reads,
always in the same order. `UPCAST` is for Triton's interpreter, whose dot multiplies the bit
patterns of bf16: there, operands are turned into fp32 first.
"""

# mypy: ignore-errors
# A kernel is Triton's language, not Python: its arguments have no Python types.

import triton
import triton.language as tl


@triton.jit
def shrink_kernel(
    x,  # [rows, K]
    arena,  # [elements], x's dtype
    t,  # fp32 [splits, slices, rows, ranks]
    items,  # int32 [items, 5]
    order,  # int32 [positions]
    index,  # int32 [slots, slices, 3]
    block_rows,  # int64 [entries]
    K,
    x_stride,
    t_split,
    t_slice,
    t_row,
    SLICES: tl.constexpr,
    ALIGN: tl.constexpr,  # elements in a row's alignment
    BM: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    SPLIT_K: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """t[split, s, i, r] = x[i, K of the split] . A[a(i), s][r, K of the split]."""
    item = items + tl.program_id(0) * 5
    split = tl.program_id(1)
    count = tl.load(item + 1)
    if count > 0:
        position = tl.load(item)
        piece = tl.load(item + 3)
        tile = tl.load(item + 4)
        entry = index + (tl.load(item + 2) * SLICES + piece) * 3
        rank = tl.load(entry)
        if tile * BR < rank:  # a layer's rank may be below the step's largest
            m = tl.arange(0, BM)
            in_chunk = m < count
            row = tl.load(order + position + m, mask=in_chunk, other=0).to(tl.int64)
            r = tile * BR + tl.arange(0, BR)
            in_rank = r < rank
            a_row = tl.load(block_rows + tl.load(entry + 1) + r, mask=in_rank, other=0)
            a_row = tl.multiple_of(a_row, [ALIGN])

            acc = tl.zeros((BM, BR), dtype=tl.float32)
            # SPLIT_K is a multiple of BK: only the last split has a ragged end, and that is K.
            k_end = tl.minimum(K, (split + 1) * SPLIT_K)
            for k0 in range(split * SPLIT_K, k_end, BK):
                k = k0 + tl.arange(0, BK)
                xs = tl.load(
                    x + row[:, None] * x_stride + k[None, :],
                    mask=in_chunk[:, None] & (k < K)[None, :],
                    other=0.0,
                )
                a = tl.load(
                    arena + a_row[:, None] + k[None, :],
                    mask=in_rank[:, None] & (k < K)[None, :],
                    other=0.0,
                )
                if UPCAST:
                    xs = xs.to(tl.float32)
                    a = a.to(tl.float32)
                acc = tl.dot(xs, tl.trans(a), acc, input_precision="ieee")

            target = t + split * t_split + piece * t_slice + row[:, None] * t_row + r[None, :]
            tl.store(target, acc, mask=in_chunk[:, None] & in_rank[None, :])


@triton.jit
def expand_kernel(
    t,  # fp32 [splits, slices, rows, ranks]
    arena,  # [elements]
    y,  # [rows, sum of widths]
    items,  # int32 [items, 5]
    order,  # int32 [positions]
    index,  # int32 [slots, slices, 3]
    block_rows,  # int64 [entries]
    columns,  # int32 [slices, 2]
    y_stride,
    t_split,
    t_slice,
    t_row,
    SLICES: tl.constexpr,
    SPLITS: tl.constexpr,
    ALIGN: tl.constexpr,  # elements in a row's alignment
    BM: tl.constexpr,
    BR: tl.constexpr,
    BN: tl.constexpr,
    WIDTH_ALIGN: tl.constexpr,  # divides every slice's start and width
    WIDE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """y[i, columns of s] += (sum of t[:, s, i] over splits) . Bt[a(i), s].

    WIDE keeps t in fp32 for the dot. fp16 needs it: t can pass 65,504 where x has outliers.
    """
    item = items + tl.program_id(0) * 5
    count = tl.load(item + 1)
    if count > 0:
        position = tl.load(item)
        piece = tl.load(item + 3)
        n = tl.load(item + 4) * BN + tl.arange(0, BN)
        entry = index + (tl.load(item + 2) * SLICES + piece) * 3
        rank = tl.load(entry)
        if rank > 0:
            first = block_rows + tl.load(entry + 2)
            # Without the hints the compiler must load and store element by element.
            width = tl.multiple_of(tl.load(columns + piece * 2 + 1), WIDTH_ALIGN)
            start = tl.multiple_of(tl.load(columns + piece * 2), WIDTH_ALIGN)
            in_slice = n < width
            m = tl.arange(0, BM)
            in_chunk = m < count
            row = tl.load(order + position + m, mask=in_chunk, other=0).to(tl.int64)

            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for r0 in range(0, rank, BR):
                r = r0 + tl.arange(0, BR)
                in_rank = r < rank
                source = t + piece * t_slice + row[:, None] * t_row + r[None, :]
                known = in_chunk[:, None] & in_rank[None, :]
                ts = tl.zeros((BM, BR), dtype=tl.float32)
                for split in tl.static_range(SPLITS):
                    ts += tl.load(source + split * t_split, mask=known, other=0.0)
                b_row = tl.multiple_of(tl.load(first + r, mask=in_rank, other=0), [ALIGN])
                b = tl.load(
                    arena + b_row[:, None] + n[None, :],
                    mask=in_rank[:, None] & in_slice[None, :],
                    other=0.0,
                )
                if WIDE or UPCAST:
                    b = b.to(tl.float32)
                else:
                    ts = ts.to(b.dtype)
                acc = tl.dot(ts, b, acc, input_precision="ieee")

            target = y + row[:, None] * y_stride + (start + n)[None, :]
            inside = in_chunk[:, None] & in_slice[None, :]
            total = tl.load(target, mask=inside, other=0.0).to(tl.float32) + acc
            tl.store(target, total.to(y.dtype.element_ty), mask=inside)
