"""The Triton kernels between a step's linears that are not attention. Importing this needs triton.

Each reads its operands once, computes in float32 and rounds once as it stores.
"""

# mypy: ignore-errors
# A kernel is Triton's language, not Python: its arguments have no Python types.

import triton
import triton.language as tl


@triton.jit
def normed_kernel(
    x,  # fp32 [rows, WIDTH], added to in place
    added,  # [rows, WIDTH]
    weight,  # [WIDTH]
    out,  # [rows, WIDTH]
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # WIDTH up to a power of two
    ADDS: tl.constexpr,
):
    """x += added; out = x / sqrt(mean(x^2) + eps) x weight."""
    at = tl.program_id(0).to(tl.int64) * WIDTH
    i = tl.arange(0, BLOCK)
    known = i < WIDTH
    value = tl.load(x + at + i, mask=known, other=0.0)
    if ADDS:
        value += tl.load(added + at + i, mask=known, other=0.0).to(tl.float32)
        tl.store(x + at + i, value, mask=known)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / WIDTH + eps)
    w = tl.load(weight + i, mask=known, other=0.0).to(tl.float32)
    tl.store(out + at + i, (value * scale * w).to(out.dtype.element_ty), mask=known)


@triton.jit
def gated_kernel(
    gate_up,  # [rows, 2 x WIDTH]
    out,  # [rows, WIDTH]
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) x up."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    known = i < WIDTH
    gate = tl.load(gate_up + row * (2 * WIDTH) + i, mask=known, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * (2 * WIDTH) + WIDTH + i, mask=known, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * WIDTH + i, value.to(out.dtype.element_ty), mask=known)


# A layer's number must not be specialised: layers 0, 1 and 16 would each be compiled anew.
@triton.jit(do_not_specialize=["layer"])
def rotate_and_store_kernel(
    qkv,  # [rows, (HEADS + 2 x KV_HEADS) x D]; q is rotated in place
    arena,  # [elements], qkv's dtype
    cos,  # fp32 [positions, D]
    sin,  # fp32 [positions, D], the sign of the rotation in it
    q_norm,  # [D]
    k_norm,  # [D]
    rows,  # int32 [rows, 2]: position, page
    layer,
    page_elements,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,  # D / 2 up to a power of two
    PAGE_TOKENS: tl.constexpr,
    BH: tl.constexpr,
    NORMS: tl.constexpr,
):
    """Norm heads of q and k (NORMS), rotate them; q back to qkv, k and v into the row's page."""
    row = tl.program_id(0)
    head = tl.program_id(1) * BH + tl.arange(0, BH)
    is_q = head < HEADS
    is_k = (head >= HEADS) & (head < HEADS + KV_HEADS)
    i = tl.arange(0, HALF)
    in_half = i < D // 2
    mine = (is_q | is_k)[:, None] & in_half[None, :]
    source = (
        qkv + row.to(tl.int64) * ((HEADS + 2 * KV_HEADS) * D) + (head * D)[:, None] + i[None, :]
    )
    first = tl.load(source, mask=mine, other=0.0).to(tl.float32)
    second = tl.load(source + D // 2, mask=mine, other=0.0).to(tl.float32)
    if NORMS:
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        scale = (1.0 / tl.sqrt(squares / D + eps))[:, None]
        for_q = is_q[:, None]
        q1 = tl.load(q_norm + i, mask=in_half, other=0.0).to(tl.float32)[None, :]
        q2 = tl.load(q_norm + D // 2 + i, mask=in_half, other=0.0).to(tl.float32)[None, :]
        k1 = tl.load(k_norm + i, mask=in_half, other=0.0).to(tl.float32)[None, :]
        k2 = tl.load(k_norm + D // 2 + i, mask=in_half, other=0.0).to(tl.float32)[None, :]
        first = first * scale * tl.where(for_q, q1, k1)
        second = second * scale * tl.where(for_q, q2, k2)

    position = tl.load(rows + row * 2)
    page = tl.load(rows + row * 2 + 1).to(tl.int64)
    at = position.to(tl.int64) * D + i
    cos1 = tl.load(cos + at, mask=in_half, other=0.0)[None, :]
    cos2 = tl.load(cos + at + D // 2, mask=in_half, other=0.0)[None, :]
    sin1 = tl.load(sin + at, mask=in_half, other=0.0)[None, :]
    sin2 = tl.load(sin + at + D // 2, mask=in_half, other=0.0)[None, :]
    turned1 = (first * cos1 + second * sin1).to(qkv.dtype.element_ty)
    turned2 = (second * cos2 + first * sin2).to(qkv.dtype.element_ty)

    to_q = is_q[:, None] & in_half[None, :]
    tl.store(source, turned1, mask=to_q)
    tl.store(source + D // 2, turned2, mask=to_q)

    to_k = is_k[:, None] & in_half[None, :]
    slot = layer * PAGE_TOKENS + position % PAGE_TOKENS
    place = page * page_elements + (slot * (2 * KV_HEADS) + head - HEADS) * D
    target = arena + place[:, None] + i[None, :]
    tl.store(target, turned1, mask=to_k)
    tl.store(target + D // 2, turned2, mask=to_k)
    value = source + KV_HEADS * D
    tl.store(target + KV_HEADS * D, tl.load(value, mask=to_k, other=0.0), mask=to_k)
    tl.store(
        target + KV_HEADS * D + D // 2, tl.load(value + D // 2, mask=to_k, other=0.0), mask=to_k
    )
