"""Cases for the SGMV pair: the grid, its pairwise cover, operands in poisoned arenas, the checks.

The checks run in a child process under Triton's interpreter (`conftest.interpreter`), so nothing
here may import triton.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from engine.memory.packing import lay_out, padded_row_bytes
from kernels import reference, sgmv
from kernels.blocks import Block, Pair, Span, Table, build_table
from kernels.work import (
    BASE,
    DECODE,
    PREFILL,
    Buffers,
    Capacity,
    Segment,
    Tile,
    Work,
    build_work,
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
RANKS = (1, 3, 4, 8, 12, 16, 24, 32, 33, 48, 64, 128)
BATCHES = (1, 2, 7, 16, 33, 133)
POPULARITIES = ("distinct", "uniform", "zipf", "identical", "skewed")

# Several tiles, splits and K steps where there are few rows; few where there are many, because the
# interpreter takes milliseconds a program.
SMALL = Tile(m=16, r=64, k=64, n=64, split_k=128, warps=4, stages=1)
LARGE = Tile(m=16, r=64, k=64, n=64, split_k=64, warps=4, stages=1)
PAGE_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Case:
    dtype: torch.dtype
    ranks: tuple[int, ...]
    batch: int
    popularity: str

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"{name}-r{'+'.join(map(str, self.ranks))}-b{self.batch}-{self.popularity}"

    @property
    def seed(self) -> int:
        return sum(self.ranks) * 1000 + self.batch * 10 + DTYPES.index(self.dtype)

    @property
    def tile(self) -> Tile:
        if self.popularity == "identical" and self.batch == max(BATCHES):
            return PREFILL
        if self.batch == 7:
            return DECODE
        return SMALL if self.batch <= 16 else LARGE

    @property
    def in_width(self) -> int:
        return 200 if self.batch <= 16 else 56

    @property
    def out_widths(self) -> tuple[int, ...]:
        return (80, 40, 24) if self.batch <= 16 else (48, 16)


def segments_of(case: Case) -> tuple[list[Segment], int]:
    """(segments, adapters): who asks for what, base rows among them, in shuffled order."""
    rng = random.Random(case.seed)
    base = max(1, case.batch // 5) if case.batch > 1 else 0
    rows = case.batch - base
    match case.popularity:
        case "distinct":
            slots = list(range(rows))
        case "uniform":
            slots = [i % max(1, round(rows**0.5)) for i in range(rows)]
        case "zipf":
            weights = [1 / (i + 1) for i in range(max(1, rows // 2))]
            slots = rng.choices(range(len(weights)), weights, k=rows)
        case "identical":
            slots = [0] * rows
        case "skewed":  # one long prompt chunk beside decode rows of their own adapters
            slots = [0] * (rows - rows // 4) + list(range(1, rows // 4 + 1))
    names = {slot: i for i, slot in enumerate(dict.fromkeys(slots))}
    runs: list[tuple[int, int]] = [(BASE, 1)] * base
    for slot, group in itertools.groupby(sorted(names[s] for s in slots)):
        left = len(list(group))
        while left:
            take = rng.randint(1, left)
            runs.append((slot, take))
            left -= take
    rng.shuffle(runs)
    segments, first = [], 0
    for slot, count in runs:
        segments.append(Segment(first, count, slot))
        first += count
    return segments, len(names)


def rank_of(case: Case, slot: int, piece: int) -> int:
    """Ranks go round over adapters, and within one over its modules (as a rank pattern does)."""
    return case.ranks[(slot + piece) % len(case.ranks)]


def used_ranks(case: Case) -> set[int]:
    _, adapters = segments_of(case)
    pieces = range(len(case.out_widths))
    return {rank_of(case, a, p) for a in range(adapters) for p in pieces}


def pairs_of(case: Case) -> set[tuple[object, object]]:
    """Every pair of grid values that the case really exercises."""
    axes = [{case.dtype}, used_ranks(case), {case.batch}, {case.popularity}]
    return {pair for a, b in itertools.combinations(axes, 2) for pair in itertools.product(a, b)}


def all_pairs() -> set[tuple[object, object]]:
    axes = (DTYPES, RANKS, BATCHES, POPULARITIES)
    return {pair for a, b in itertools.combinations(axes, 2) for pair in itertools.product(a, b)}


def pairwise() -> list[Case]:
    """A greedy, repeatable cover of all pairs by cases of mixed ranks."""
    rng = random.Random(7)
    missing, chosen = all_pairs(), []
    while missing:
        tries = [
            Case(
                rng.choice(DTYPES),
                tuple(rng.sample(RANKS, 3)),
                rng.choice(BATCHES),
                rng.choice(POPULARITIES),
            )
            for _ in range(200)
        ]
        best = max(tries, key=lambda c: len(missing & pairs_of(c)))
        if gained := missing & pairs_of(best):
            missing -= gained
            chosen.append(best)
    return chosen


def full_grid() -> Iterator[Case]:
    for dtype, rank, batch, popularity in itertools.product(DTYPES, RANKS, BATCHES, POPULARITIES):
        yield Case(dtype, (rank,), batch, popularity)


@dataclass(frozen=True, slots=True)
class Operands:
    arena: torch.Tensor
    pairs: list[list[Pair | None]]
    table: Table
    segments: list[Segment]
    work: Work
    rows: int


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=dtype)


def pack(
    matrices: list[torch.Tensor], dtype: torch.dtype, rng: random.Random
) -> tuple[torch.Tensor, list[Block]]:
    """Lay the matrices out in pages as adapters are, in shuffled pages of a poisoned arena."""
    row_bytes = [padded_row_bytes(m.shape[1], dtype.itemsize) for m in matrices]
    layout = lay_out([(len(m), b) for m, b in zip(matrices, row_bytes, strict=True)], PAGE_BYTES)
    pages = list(range(layout.pages + 2))
    rng.shuffle(pages)
    arena = poisoned(len(pages) * PAGE_BYTES // dtype.itemsize, dtype=dtype)
    spans: list[list[Span]] = [[] for _ in matrices]
    for s in layout.spans:
        stride = row_bytes[s.block] // dtype.itemsize
        offset = (pages[s.page] * PAGE_BYTES + s.offset) // dtype.itemsize
        part = matrices[s.block][s.first_row : s.first_row + s.rows]
        arena[offset:].as_strided(part.shape, (stride, 1)).copy_(part)
        spans[s.block].append(Span(s.rows, offset, stride))
    widths = [m.shape[1] for m in matrices]
    return arena, [Block(tuple(s), w) for s, w in zip(spans, widths, strict=True)]


def operands(case: Case, buffers: Buffers | None = None) -> Operands:
    torch.manual_seed(case.seed)
    segments, adapters = segments_of(case)
    matrices = []
    for slot, (piece, width) in itertools.product(range(adapters), enumerate(case.out_widths)):
        rank = rank_of(case, slot, piece)
        matrices.append(torch.randn(rank, case.in_width) / case.in_width**0.5)
        matrices.append(torch.randn(rank, width) / rank**0.5)
    arena, blocks = pack(matrices, case.dtype, random.Random(case.seed))
    flat = [Pair(a, bt) for a, bt in zip(blocks[::2], blocks[1::2], strict=True)]
    slices = len(case.out_widths)
    pairs: list[list[Pair | None]] = [
        list(flat[i * slices : (i + 1) * slices]) for i in range(adapters)
    ]
    table = build_table(pairs, case.in_width, case.out_widths, case.dtype, arena.numel())
    work = build_work(segments, table.ranks, case.out_widths, case.tile, buffers)
    return Operands(arena, pairs, table, segments, work, case.batch)


def adapter_rows(segments: Iterable[Segment], rows: int) -> torch.Tensor:
    mask = torch.zeros(rows, dtype=torch.bool)
    for s in segments:
        mask[s.first_row : s.first_row + s.rows] = s.slot != BASE
    return mask


def check_shrink(case: Case) -> None:
    """Equal to the reference, and not one element written besides."""
    ops = operands(case)
    x = torch.randn(case.batch, case.in_width + 8).to(case.dtype)[:, : case.in_width]
    out = poisoned(*sgmv.partials_shape(ops.table, ops.work, case.batch), dtype=torch.float32)
    sgmv.shrink(x, ops.arena, ops.table, ops.work, out)
    expected = poisoned(*out.shape[1:], dtype=torch.float32)
    reference.shrink(x, ops.arena, ops.pairs, ops.segments, expected)
    assert not expected.isnan().all()
    torch.testing.assert_close(out.sum(0), expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert torch.equal(out.isnan().any(0), out.isnan().all(0)), "a split was left unwritten"


def check_expand(case: Case) -> None:
    """Equal to the reference; base rows and the memory beside y keep their bits."""
    ops = operands(case)
    shape = sgmv.partials_shape(ops.table, ops.work, case.batch)
    t = poisoned(*shape, dtype=torch.float32)
    for segment in ops.segments:
        rows = slice(segment.first_row, segment.first_row + segment.rows)
        for s, pair in enumerate(ops.pairs[segment.slot] if segment.slot != BASE else []):
            if pair is not None:
                t[:, s, rows, : pair.rank] = torch.randn(shape[0], segment.rows, pair.rank)
    width = sum(case.out_widths)
    whole = poisoned(case.batch, width + 16, dtype=case.dtype)
    mine = adapter_rows(ops.segments, case.batch)
    whole[mine, :width] = torch.randn(int(mine.sum()), width).to(case.dtype)
    expected = whole.clone()
    reference.expand(t.double().sum(0), ops.arena, ops.pairs, ops.segments, expected[:, :width])
    sgmv.expand(t, ops.arena, ops.table, ops.work, whole[:, :width])
    assert not expected[mine, :width].isnan().any()
    # The interpreter cuts fp32 to bf16 where hardware rounds: one unit in the last place.
    rtol = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}[case.dtype]
    torch.testing.assert_close(whole, expected, rtol=rtol, atol=1e-5, equal_nan=True)


def check_pair_is_lora() -> None:
    """shrink then expand = y + x A^T B^T, per row, with the dense matrices."""
    case = Case(torch.float32, (8, 1, 33), 16, "uniform")
    ops = operands(case)
    x = torch.randn(case.batch, case.in_width)
    y = torch.randn(case.batch, sum(case.out_widths))
    t = poisoned(*sgmv.partials_shape(ops.table, ops.work, case.batch), dtype=torch.float32)
    expected = y.double()
    for segment in ops.segments:
        if segment.slot == BASE:
            continue
        for i in range(segment.first_row, segment.first_row + segment.rows):
            deltas = [
                x[i].double()
                @ reference.block_matrix(ops.arena, p.a).T
                @ reference.block_matrix(ops.arena, p.bt)
                for p in ops.pairs[segment.slot]
                if p is not None
            ]
            expected[i] += torch.cat(deltas)
    before = y.clone()
    sgmv.shrink(x, ops.arena, ops.table, ops.work, t)
    sgmv.expand(t, ops.arena, ops.table, ops.work, y)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    base = ~adapter_rows(ops.segments, case.batch)
    assert torch.equal(y[base], before[base])
    assert not torch.equal(y[~base], before[~base])


def check_absent_modules_and_rank_zero() -> None:
    """An adapter without a module, one of rank 0 and one that has it, in one launch."""
    dtype, in_width, out_widths = torch.float32, 64, (32, 32)
    matrices = [torch.randn(r, w) for r in (4, 0, 4) for w in (in_width, 32)]
    arena, blocks = pack(matrices, dtype, random.Random(1))
    some = [Pair(a, bt) for a, bt in zip(blocks[::2], blocks[1::2], strict=True)]
    pairs: list[list[Pair | None]] = [[some[0], None], [some[1], some[2]], [None, None]]
    segments = [Segment(0, 2, 0), Segment(2, 1, 2), Segment(3, 3, 1), Segment(6, 1, BASE)]
    table = build_table(pairs, in_width, out_widths, dtype, arena.numel())
    work = build_work(segments, table.ranks, out_widths)
    x, y = torch.randn(7, in_width), torch.randn(7, 64)
    before, expected = y.clone(), y.clone()
    t = poisoned(*sgmv.partials_shape(table, work, 7), dtype=torch.float32)
    t_expected = poisoned(*t.shape[1:], dtype=torch.float32)
    reference.shrink(x, arena, pairs, segments, t_expected)
    reference.expand(t_expected, arena, pairs, segments, expected)
    sgmv.shrink(x, arena, table, work, t)
    sgmv.expand(t, arena, table, work, y)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    changed = y != before
    assert changed[:2, :32].all()
    assert changed[3:6, 32:].all()
    assert int(changed.sum()) == 2 * 32 + 3 * 32


def check_layer_of_lower_rank() -> None:
    """One work list serves layers whose ranks are below the ones it was cut for."""
    case = Case(torch.float32, (3, 33), 7, "distinct")
    ops = operands(case)
    wide = build_work(ops.segments, ops.table.ranks + 40, case.out_widths, SMALL)
    x = torch.randn(case.batch, case.in_width)
    out = poisoned(*sgmv.partials_shape(ops.table, wide, case.batch), dtype=torch.float32)
    expected = poisoned(*out.shape[1:], dtype=torch.float32)
    reference.shrink(x, ops.arena, ops.pairs, ops.segments, expected)
    sgmv.shrink(x, ops.arena, ops.table, wide, out)
    torch.testing.assert_close(out.sum(0), expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def check_reused_buffers() -> None:
    """A small step after a large one, in the same buffers, launched over their whole size."""
    large = Case(torch.float32, (16, 33), 16, "uniform")
    small = Case(torch.float32, (16, 33), 2, "identical")
    room = Buffers([Capacity.of(20, 6, 64, large.out_widths, SMALL)])
    for case in (large, small, large):
        ops = operands(case, room)
        assert len(ops.work.expand) == room.capacities[0].expand
        x, y = torch.randn(case.batch, case.in_width), torch.randn(case.batch, 144)
        expected = y.clone()
        t = poisoned(*sgmv.partials_shape(ops.table, ops.work, case.batch), dtype=torch.float32)
        t_expected = poisoned(*t.shape[1:], dtype=torch.float32)
        reference.shrink(x, ops.arena, ops.pairs, ops.segments, t_expected)
        reference.expand(t_expected, ops.arena, ops.pairs, ops.segments, expected)
        sgmv.shrink(x, ops.arena, ops.table, ops.work, t)
        sgmv.expand(t, ops.arena, ops.table, ops.work, y)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


def check_rows_past_two_to_the_31() -> None:
    """Blocks more than 2**31 elements into the arena are found: offsets are 64 bits wide.

    The arena is address space that nothing has touched, 4 GiB of it; only the tensor's first
    page and the far rows exist. (A tensor over all of it would be copied by the interpreter.)
    """
    dtype, width, far = torch.float16, 64, 2**31 + 4096
    arena_bytes = (far + 64 * width) * dtype.itemsize
    no_reserve = 0x4000  # MAP_NORESERVE on Linux; Python 3.11 does not name it
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    memory = mmap.mmap(-1, arena_bytes, flags=flags)
    window = (ctypes.c_char * 4096).from_buffer(memory)
    near = torch.frombuffer(window, dtype=dtype)
    a, bt = torch.randn(4, width).to(dtype), torch.randn(4, width).to(dtype)
    for first, matrix in ((far, a), (far + 4 * width, bt)):
        raw = matrix.numpy().tobytes()
        memory[first * dtype.itemsize : first * dtype.itemsize + len(raw)] = raw
    pair = Pair(
        Block((Span(4, far, width),), width), Block((Span(4, far + 4 * width, width),), width)
    )
    table = build_table([[pair]], width, (width,), dtype, arena_bytes // dtype.itemsize)
    assert int(table.rows.min()) > np.iinfo(np.int32).max
    work = build_work([Segment(0, 2, 0)], table.ranks, (width,))
    x, y = torch.randn(2, width).to(dtype), torch.zeros(2, width, dtype=torch.float32)
    t = poisoned(*sgmv.partials_shape(table, work, 2), dtype=torch.float32)
    sgmv.shrink(x, near, table, work, t)
    sgmv.expand(t, near, table, work, y)

    expected = x.double() @ a.double().T @ bt.double()
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-3)
