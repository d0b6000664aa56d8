"""The launches whose bytes `aot_kernels.py` counts: one of each kernel, and what it must move.

What must move: every operand that any way of computing it reads, once, and every result, once; K
and V up to the positions that are seen, of a weight the ranks that are used. Tables of pages and
rows are not counted there, so they show in the ratio.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

import torch

from kernels import attention, fused, sgmv
from kernels.attention import Heads, build_paged
from kernels.backend import PagedRows
from kernels.blocks import Block, Pair, Span, build_table
from kernels.gpu_room import StepRoom
from kernels.tuned import SAFE
from kernels.work import DECODE, Segment, build_work

HEADS = Heads(32, 8, 128)
HIDDEN, FF, PAGE_TOKENS, DTYPE = 4096, 14336, 16, torch.float16
SIZE = DTYPE.itemsize
Launch = tuple[str, str, int, Callable[[], None]]


def launches() -> Iterator[Launch]:
    """(kernel, launch in words, bytes it must move, the launch)."""
    yield from _attention("decode, 2 rows, contexts 512", [(511, 1), (511, 1)])
    yield from _attention("64 new tokens after 192", [(192, 64)])
    yield from _fused()
    yield from _sgmv("8 rows, 4 adapters of rank 16", 8, 4)
    yield from _sgmv("8 rows, 8 adapters of rank 16", 8, 8)


def _paged(sequences: list[tuple[int, int]]) -> PagedRows:
    first_row, first_page, pages = array("q", (0,)), array("q", (0,)), array("q")
    for start, count in sequences:
        first_row.append(first_row[-1] + count)
        pages.extend(range(len(pages), len(pages) + -(-(start + count) // PAGE_TOKENS)))
        first_page.append(len(pages))
    return PagedRows(first_row, array("q", [s for s, _ in sequences]), first_page, pages)


def _attention(words: str, sequences: list[tuple[int, int]]) -> Iterator[Launch]:
    rows = _paged(sequences)
    work = build_paged(rows, PAGE_TOKENS, HEADS, SAFE, StepRoom(torch.device("cpu")))
    arena = torch.randn(len(rows.pages), PAGE_TOKENS * 2 * HEADS.kv * HEADS.dim).to(DTYPE)
    qkv = torch.randn(rows.first_row[-1], HEADS.qkv_width).to(DTYPE)
    out = torch.empty(len(qkv), HEADS.q_width, dtype=DTYPE)
    shape = work.partials_shape(HEADS)
    partials = torch.empty(shape[0] * shape[1] * shape[2])
    keys = sum(start + count for start, count in sequences)
    must = SIZE * (keys * 2 * HEADS.kv * HEADS.dim + 2 * out.numel())

    def launch() -> None:
        attention.attend(qkv, arena, 0, PAGE_TOKENS, HEADS, work, partials, out)

    yield "attend" + (" + combine" if work.splits else ""), words, must, launch


def _fused() -> Iterator[Launch]:
    x, added = torch.randn(4, HIDDEN), torch.randn(4, HIDDEN).to(DTYPE)
    h = torch.empty_like(added)
    yield (
        "normed",
        f"4 rows of {HIDDEN}",
        4 * HIDDEN * (4 + 4 + SIZE + SIZE) + 4 * HIDDEN,
        lambda: fused.normed(x, added, torch.ones(HIDDEN), 1e-5, h),
    )
    gate_up, out = torch.randn(2, 2 * FF).to(DTYPE), torch.empty(2, FF, dtype=DTYPE)
    yield (
        "gated",
        f"2 rows of {FF}",
        3 * 2 * FF * SIZE,
        lambda: fused.gated(gate_up, out, SAFE.block),
    )
    rows = _paged([(100, 1)] * 4)
    work = build_paged(rows, PAGE_TOKENS, HEADS, SAFE, StepRoom(torch.device("cpu")))
    arena = torch.empty(len(rows.pages), PAGE_TOKENS * 2 * HEADS.kv * HEADS.dim, dtype=DTYPE)
    qkv, rope = torch.randn(4, HEADS.qkv_width).to(DTYPE), torch.ones(101, HEADS.dim)
    yield (
        "rotate and store",
        "4 rows of 32 + 2 x 8 heads",
        2 * 4 * HEADS.qkv_width * SIZE + 2 * HEADS.dim * 4,
        lambda: fused.rotate_and_store(
            qkv, arena, 0, PAGE_TOKENS, HEADS, work, (rope, rope), None, 1e-5, SAFE.heads
        ),
    )


def _sgmv(words: str, rows: int, adapters: int) -> Iterator[Launch]:
    rank, widths = 16, (4096, 1024, 1024)
    pairs: list[list[Pair | None]] = []
    used = 0
    for _ in range(adapters):
        blocks = []
        for width in (HIDDEN, widths[0], HIDDEN, widths[1], HIDDEN, widths[2]):
            blocks.append(Block((Span(rank, used, width),), width))
            used += rank * width
        pairs.append([Pair(a, b) for a, b in zip(blocks[::2], blocks[1::2], strict=True)])
    arena = torch.randn(used).to(DTYPE)
    table = build_table(pairs, HIDDEN, widths, DTYPE, used)
    segments = [Segment(i, 1, i % adapters) for i in range(rows)]
    work = build_work(segments, table.ranks, widths, DECODE)
    x, y = torch.randn(rows, HIDDEN).to(DTYPE), torch.zeros(rows, sum(widths), dtype=DTYPE)
    t = torch.zeros(sgmv.partials_shape(table, work, rows))
    a_bytes, t_bytes = SIZE * adapters * rank * HIDDEN * 3, 4 * rows * rank * 3
    yield (
        "shrink",
        words,
        a_bytes + SIZE * x.numel() + t_bytes,
        lambda: sgmv.shrink(x, arena, table, work, t),
    )
    yield (
        "expand",
        words,
        SIZE * adapters * rank * sum(widths) + 2 * SIZE * y.numel() + t_bytes,
        lambda: sgmv.expand(t, arena, table, work, y),
    )
