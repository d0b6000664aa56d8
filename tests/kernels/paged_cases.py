"""Cases for the Triton ops of a step: the grid, its pairwise cover, an arena of NaN, the checks.

The checks run in a child process under Triton's interpreter (`conftest.interpreter`), so nothing
here may import triton.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from kernels import attention, fused, ops_reference
from kernels.attention import Heads, PagedWork, build_paged
from kernels.backend import HeadNorms, PagedRows
from kernels.gpu_room import StepRoom
from kernels.tuned import AttentionTile, OpsTiles

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HEADS = (Heads(2, 2, 16), Heads(4, 2, 32), Heads(9, 3, 64), Heads(8, 1, 16), Heads(3, 1, 80))
PAGE_TOKENS = (4, 16, 48)
ORDERS = ("forward", "backward", "shuffled")
PREFIXES = (0, 1, 16, 47, 129)
NEW = (1, 2, 16, 21)
LAYERS, LAYER, EPS = 2, 1, 1e-5
# As few programs as the grid allows (the interpreter takes milliseconds each), yet several splits
# of a context, several tiles of a chunk and a ragged end of either.
TILES = OpsTiles(
    decode=AttentionTile(rows=16, keys=64, split=128, warps=4, stages=1),
    prefill=AttentionTile(rows=64, keys=128, split=1 << 30, warps=4, stages=1),
    block=128,
    heads=16,
)
# The interpreter cuts fp32 to bf16 where hardware rounds; weights are rounded before V as well.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2.5e-2}


@dataclass(frozen=True, slots=True)
class Case:
    dtype: torch.dtype
    heads: Heads
    page_tokens: int
    order: str
    prefix: int
    new: int

    def __str__(self) -> str:
        h, name = self.heads, str(self.dtype).removeprefix("torch.")
        return (
            f"{name}-{h.q}x{h.kv}x{h.dim}-page{self.page_tokens}-{self.order}"
            f"-{self.prefix}+{self.new}"
        )

    @property
    def seed(self) -> int:
        return self.prefix * 1000 + self.new * 10 + self.heads.dim


AXES = (DTYPES, HEADS, PAGE_TOKENS, ORDERS, PREFIXES, NEW)


def axes_of(case: Case) -> tuple[object, ...]:
    return case.dtype, case.heads, case.page_tokens, case.order, case.prefix, case.new


def pairs_of(values: tuple[object, ...]) -> set[tuple[int, object, int, object]]:
    named = list(enumerate(values))
    return {(i, a, j, b) for (i, a), (j, b) in itertools.combinations(named, 2)}


def all_pairs() -> set[tuple[int, object, int, object]]:
    return {
        (i, a, j, b)
        for (i, first), (j, second) in itertools.combinations(enumerate(AXES), 2)
        for a, b in itertools.product(first, second)
    }


def full_grid() -> Iterator[Case]:
    for values in itertools.product(*AXES):
        yield Case(*values)


def pairwise() -> list[Case]:
    """A greedy, repeatable cover of all pairs."""
    rng = random.Random(5)
    missing, chosen = all_pairs(), []
    while missing:
        tries = [Case(*(rng.choice(axis) for axis in AXES)) for _ in range(200)]
        best = max(tries, key=lambda c: len(missing & pairs_of(axes_of(c))))
        if gained := missing & pairs_of(axes_of(best)):
            missing -= gained
            chosen.append(best)
    return chosen


@dataclass(frozen=True, slots=True)
class Step:
    """A step's operands. `qkv` before RoPE; keys before the step are in the arena."""

    case: Case
    arena: torch.Tensor
    rows: PagedRows
    qkv: torch.Tensor
    rope: tuple[torch.Tensor, torch.Tensor]
    work: PagedWork

    @property
    def turned(self) -> torch.Tensor:
        """What attention sees: random, not rotated, so that it is proven on its own."""
        ops_reference.store(
            self.qkv, self.arena, LAYER, self.case.page_tokens, self.rows, self.case.heads
        )
        return self.qkv

    def reference(self) -> torch.Tensor:
        c = self.case
        return ops_reference.attend(self.qkv, self.arena, LAYER, c.page_tokens, self.rows, c.heads)


def paged_rows(sequences: list[tuple[int, int]], size: int, numbers: list[int]) -> PagedRows:
    """Sequences of (start, rows), those of one row first; `numbers` are the pages they take."""
    first_row, first_page, pages = array("q", (0,)), array("q", (0,)), array("q")
    free = iter(numbers)
    for start, count in sequences:
        first_row.append(first_row[-1] + count)
        pages.extend(next(free) for _ in range(-(-(start + count) // size)))
        first_page.append(len(pages))
    return PagedRows(first_row, array("q", [s for s, _ in sequences]), first_page, pages)


def make_step(
    case: Case, sequences: list[tuple[int, int]] | None = None, tiles: OpsTiles = TILES
) -> Step:
    """The case's sequence beside one of the other kind, a chunk or a decode row of two splits; NaN
    wherever no sequence has a key."""
    torch.manual_seed(case.seed)
    heads, size = case.heads, case.page_tokens
    if sequences is None:
        sequences = [(case.prefix, case.new), (3, 2) if case.new == 1 else (130, 1)]
    sequences = sorted(sequences, key=lambda s: s[1] != 1)
    needed = sum(-(-(start + count) // size) for start, count in sequences)
    numbers = list(range(needed + 2))
    if case.order == "backward":
        numbers.reverse()
    elif case.order == "shuffled":
        random.Random(case.seed).shuffle(numbers)
    width = LAYERS * size * 2 * heads.kv * heads.dim
    arena = torch.full((needed + 2, width), float("nan"), dtype=case.dtype)
    rows = paged_rows(sequences, size, numbers)
    held = arena.view(needed + 2, LAYERS, size, -1)
    for i, (start, _) in enumerate(sequences):
        for p in range(start):
            page = rows.pages[rows.first_page[i] + p // size]
            held[page, LAYER, p % size] = torch.randn(held.shape[-1]).to(case.dtype)
    count = rows.first_row[-1]
    angle = torch.rand(max(s + n for s, n in sequences), heads.dim // 2) * 6.3
    cos, sin = angle.cos(), angle.sin()
    return Step(
        case,
        arena,
        rows,
        torch.randn(count, heads.qkv_width).to(case.dtype),
        (torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)),
        build_paged(rows, size, heads, tiles, StepRoom(torch.device("cpu"))),
    )


def attended(step: Step) -> torch.Tensor:
    """The kernels' answer, every buffer poisoned before."""
    c = step.case
    size = 1
    for n in step.work.partials_shape(c.heads):
        size *= n
    partials = torch.full((size,), float("nan"))
    out = torch.full((len(step.qkv), c.heads.q_width), float("nan"), dtype=c.dtype)
    attention.attend(
        step.turned, step.arena, LAYER, c.page_tokens, c.heads, step.work, partials, out
    )
    return out


def close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    limit = TOLERANCE[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=limit, atol=limit)


def check_attention(case: Case) -> None:
    step = make_step(case)
    close(attended(step), step.reference(), case.dtype)


def check_against_sdpa(heads: Heads) -> None:
    """torch's own attention over one sequence's keys, laid side by side."""
    case = Case(torch.float32, heads, 16, "shuffled", 37, 9)
    step = make_step(case, [(37, 9)])
    found = attended(step)
    used = step.arena[torch.tensor(list(step.rows.pages))]
    held = used.view(len(used), LAYERS, 16, 2, heads.kv, heads.dim)[:, LAYER]
    keys = held.reshape(-1, 2, heads.kv, heads.dim)[:46].permute(1, 2, 0, 3)
    q = step.qkv[:, : heads.q_width].view(9, heads.q, heads.dim).transpose(0, 1)
    mask = torch.arange(46)[None, :] <= torch.arange(37, 46)[:, None]
    expected = F.scaled_dot_product_attention(
        q[None], keys[:1], keys[1:], attn_mask=mask, enable_gqa=True
    )
    close(found, expected[0].transpose(0, 1).flatten(1).double(), torch.float32)


def check_neighbours() -> None:
    """A decode row's bits with a short context, alone and beside one of many splits."""
    case = Case(torch.float32, Heads(4, 2, 32), 16, "forward", 0, 1)
    alone = make_step(case, [(20, 1)])
    mine = attended(alone)
    for other in (5, 300):
        beside = make_step(case, [(20, 1), (other, 1)])
        pages = len(alone.rows.pages)
        beside.arena[:pages].copy_(alone.arena[:pages])
        beside.qkv[:1].copy_(alone.qkv)
        assert beside.work.splits == (other > 128)
        assert torch.equal(attended(beside)[:1], mine)


def check_same_bits() -> None:
    """Twice the same step, twice the same bits, whatever lay in the room for partial sums."""
    step = make_step(Case(torch.float32, Heads(8, 1, 16), 16, "shuffled", 129, 1))
    assert step.work.splits
    assert torch.equal(attended(step), attended(step))


def check_padding_items() -> None:
    """Items of no queries and spans of no items, as a captured graph's tail has, do nothing."""
    step = make_step(Case(torch.float32, Heads(8, 1, 16), 16, "shuffled", 0, 2))
    padded = replace(
        step.work,
        decode=F.pad(step.work.decode, (0, 0, 0, 3)),
        prefill=F.pad(step.work.prefill, (0, 0, 0, 2)),
        spans=F.pad(step.work.spans, (0, 0, 0, 2)),
    )
    assert torch.equal(attended(replace(step, work=padded)), attended(step))


def check_pages_past_two_to_the_31() -> None:
    """Keys more than 2**31 elements into the arena are written and found: offsets have 64 bits.

    The arena is address space that nothing has touched, 4 GiB of it; only its first page and the
    far ones exist. (A tensor over all of it would be copied by the interpreter.)
    """
    step = make_step(Case(torch.float16, Heads(2, 1, 16), 16, "shuffled", 20, 2), [(20, 2)])
    near_pages, width = step.arena.shape
    first = 2**31 // width + 1
    size = width * 2
    no_reserve = 0x4000  # MAP_NORESERVE on Linux; Python 3.11 does not name it
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    memory = mmap.mmap(-1, (first + near_pages) * size, flags=flags)
    start, stop = first * size, (first + near_pages) * size
    memory[start:stop] = step.arena.numpy().tobytes()
    window = (ctypes.c_char * size).from_buffer(memory)
    page = torch.frombuffer(window, dtype=torch.float16).view(1, width)
    rows = replace(step.rows, pages=array("q", [first + p for p in step.rows.pages]))
    work = build_paged(rows, 16, step.case.heads, TILES, StepRoom(torch.device("cpu")))
    assert (work.most_pages - 1) * width >= 2**31
    far = replace(step, arena=page, work=replace(work, most_pages=1))

    answers = []
    for s in (step, far):
        qkv, out = s.qkv.clone(), torch.full((2, 32), float("nan"), dtype=torch.float16)
        fused.rotate_and_store(qkv, s.arena, LAYER, 16, s.case.heads, s.work, s.rope, None, EPS, 16)
        attention.attend(qkv, s.arena, LAYER, 16, s.case.heads, s.work, torch.empty(0), out)
        answers.append(out)
    assert torch.isfinite(answers[0]).all()
    assert torch.equal(*answers)


def check_rotation(case: Case, normed_heads: bool) -> None:
    """q, k and v as the reference has them, and not one other slot of the arena written."""
    step = make_step(case)
    c, before = step.case, step.arena.clone()
    norms = HeadNorms(torch.rand(c.heads.dim), torch.rand(c.heads.dim)) if normed_heads else None
    expected = ops_reference.rotate(step.qkv, step.rows, c.heads, step.rope, norms, EPS)
    ops_reference.store(expected, before, LAYER, c.page_tokens, step.rows, c.heads)
    qkv = step.qkv.clone()
    fused.rotate_and_store(
        qkv, step.arena, LAYER, c.page_tokens, c.heads, step.work, step.rope, norms, EPS, 16
    )
    close(qkv[:, : c.heads.q_width], expected[:, : c.heads.q_width], c.dtype)
    assert torch.equal(qkv[:, c.heads.q_width :], step.qkv[:, c.heads.q_width :])
    limit = TOLERANCE[c.dtype]
    torch.testing.assert_close(step.arena, before, rtol=limit, atol=limit, equal_nan=True)


def check_normed(dtype: torch.dtype, rows: int, width: int) -> None:
    torch.manual_seed(rows * width)
    x, weight = torch.randn(rows, width) * 5, torch.rand(width)
    for added in (None, torch.randn(rows, width).to(dtype)):
        total, expected = ops_reference.normed(x, added, weight, EPS)
        mine, out = x.clone(), torch.full((rows, width), float("nan"), dtype=dtype)
        fused.normed(mine, added, weight, EPS, out)
        close(out, expected, dtype)
        close(mine, total, torch.float32)


def check_gated(dtype: torch.dtype, rows: int, width: int) -> None:
    torch.manual_seed(rows * width)
    gate_up = (torch.randn(rows, 2 * width) * 4).to(dtype)
    out = torch.full((rows, width), float("nan"), dtype=dtype)
    fused.gated(gate_up, out, 128)
    close(out, ops_reference.gated(gate_up), dtype)


def check_gate_of_large_values() -> None:
    """e^-gate overflows below -88: the gate is then 0, not NaN."""
    gate_up = torch.tensor([[-1000.0, -90.0, 0.0, 1000.0, 1.0, 1.0, 1.0, 1.0]])
    out = torch.empty(1, 4)
    fused.gated(gate_up, out, 128)
    assert out.tolist() == [[0.0, 0.0, 0.0, 1000.0]]
