"""The two Triton kernels of paged attention, and nothing else. Importing this needs triton.

One program computes one item of `kernels.attention`'s list for one KV head: the query heads that
share it stand together as rows, so that K and V are read once for all of them. No atomics: the
splits of a long context leave partial sums side by side, and `combine_kernel` adds them in order.
`UPCAST` is for Triton's interpreter, whose dot multiplies the bit patterns of bf16.
"""

# mypy: ignore-errors
# A kernel is Triton's language, not Python: its arguments have no Python types.

import triton
import triton.language as tl


# A layer's number must not be specialised: layers 0, 1 and 16 would each be compiled anew.
@triton.jit(do_not_specialize=["layer"])
def attend_kernel(
    qkv,  # [rows, q width and more]
    arena,  # [elements], qkv's dtype
    out,  # [rows, q width], or fp32 [items, HEADS, D] of partial sums
    stats,  # fp32 [items, HEADS, 2]: largest score and sum of weights (partial sums only)
    items,  # int32 [items, 6]
    pages,  # int32 [entries]
    layer,
    page_elements,
    q_stride,
    scale,  # times log2(e): weights are powers of two
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,  # D up to a power of two
    PAGE_TOKENS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PARTIAL: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """softmax(q . K^T x scale) . V of an item's queries over its keys, each up to its position."""
    GROUP: tl.constexpr = HEADS // KV_HEADS
    number = tl.program_id(0)
    kv_head = tl.program_id(1)
    item = items + number * 6
    queries = tl.load(item + 1)
    if queries > 0:
        m = tl.arange(0, BM)
        query = m // GROUP
        head = kv_head * GROUP + m % GROUP
        in_tile = query < queries
        row = (tl.load(item) + query).to(tl.int64)
        position = tl.load(item + 2) + query
        table = pages + tl.load(item + 3)
        first_key = tl.load(item + 4)
        end_key = tl.load(item + 5)
        d = tl.arange(0, BD)
        in_head = d < D
        inside = in_tile[:, None] & in_head[None, :]
        q = tl.load(
            qkv + row[:, None] * q_stride + (head * D)[:, None] + d[None, :], mask=inside, other=0.0
        )
        if UPCAST:
            q = q.to(tl.float32)

        best = tl.full((BM,), float("-inf"), dtype=tl.float32)
        total = tl.zeros((BM,), dtype=tl.float32)
        acc = tl.zeros((BM, BD), dtype=tl.float32)
        for n0 in range(first_key, end_key, BN):
            n = n0 + tl.arange(0, BN)
            known = n < end_key
            page = tl.load(table + n // PAGE_TOKENS, mask=known, other=0).to(tl.int64)
            slot = layer * PAGE_TOKENS + n % PAGE_TOKENS
            place = page * page_elements + (slot * (2 * KV_HEADS) + kv_head) * D
            found = known[:, None] & in_head[None, :]
            source = arena + place[:, None] + d[None, :]
            k = tl.load(source, mask=found, other=0.0)
            v = tl.load(source + KV_HEADS * D, mask=found, other=0.0)
            if UPCAST:
                k = k.to(tl.float32)
                v = v.to(tl.float32)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            # An item's first key is visible to all its queries, so `best` is finite from here on.
            visible = known[None, :] & (n[None, :] <= position[:, None])
            scores = tl.where(visible, scores, float("-inf"))
            higher = tl.maximum(best, tl.max(scores, 1))
            weights = tl.exp2(scores - higher[:, None])
            fade = tl.exp2(best - higher)
            total = total * fade + tl.sum(weights, 1)
            acc = acc * fade[:, None]
            acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")
            best = higher

        if PARTIAL:
            place = number.to(tl.int64) * HEADS + head
            tl.store(out + place[:, None] * D + d[None, :], acc, mask=inside)
            tl.store(stats + place * 2, best, mask=in_tile)
            tl.store(stats + place * 2 + 1, total, mask=in_tile)
        else:
            target = out + row[:, None] * (HEADS * D) + (head * D)[:, None] + d[None, :]
            tl.store(target, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def combine_kernel(
    partial,  # fp32 [items, HEADS, D]
    stats,  # fp32 [items, HEADS, 2]
    out,  # [rows, HEADS x D]
    spans,  # int32 [sequences, 3]: row, first item, items
    HEADS: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BH: tl.constexpr,
):
    """The splits of one row, weighed by their sums and added in the order of their keys."""
    span = spans + tl.program_id(0) * 3
    count = tl.load(span + 2)
    if count > 0:
        row = tl.load(span).to(tl.int64)
        first = tl.load(span + 1).to(tl.int64)
        head = tl.program_id(1) * BH + tl.arange(0, BH)
        known = head < HEADS
        d = tl.arange(0, BD)
        inside = known[:, None] & (d < D)[None, :]
        best = tl.full((BH,), float("-inf"), dtype=tl.float32)
        total = tl.zeros((BH,), dtype=tl.float32)
        acc = tl.zeros((BH, BD), dtype=tl.float32)
        for i in range(count):
            place = (first + i) * HEADS + head
            theirs = tl.load(stats + place * 2, mask=known, other=0.0)
            held = tl.load(stats + place * 2 + 1, mask=known, other=1.0)
            part = tl.load(partial + place[:, None] * D + d[None, :], mask=inside, other=0.0)
            higher = tl.maximum(best, theirs)
            old = tl.exp2(best - higher)
            new = tl.exp2(theirs - higher)
            total = total * old + held * new
            acc = acc * old[:, None] + part * new[:, None]
            best = higher
        target = out + row * (HEADS * D) + (head * D)[:, None] + d[None, :]
        tl.store(target, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)
