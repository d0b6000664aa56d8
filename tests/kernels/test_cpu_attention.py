"""Native paged attention equals float64 with every instruction set here, reads nothing that its
sequence has not written, and gives a row the same bits whoever is beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.backend import HeadNorms
from kernels.cpu import Absent, Isa, kind_of
from tests.kernels.paged import FOUND, LAYER, TOLERANCE, Arena, Shape

pytestmark = pytest.mark.skipif(isinstance(FOUND, Absent), reason=str(FOUND))
BEST = Isa.PLAIN if isinstance(FOUND, Absent) else FOUND.isa
SMOL = Shape(9, 3, 64)
DTYPES = list(TOLERANCE)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def here(isa: Isa) -> Isa:
    if isa > BEST:
        pytest.skip(f"this CPU, or its kernel, has no {isa.name}")
    return isa


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("isa", kind_of(BEST))
def test_every_instruction_set_equals_float64(isa, dtype):
    arena = Arena(SMOL, dtype, 100, here(isa))
    lengths = ((0, 1), (300, 1), (15, 1), (16, 1), (0, 5), (0, 70), (33, 17), (150, 66))
    arena.check([arena.sequence(*n) for n in lengths])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(4, 4, 32), Shape(4, 2, 128, 1), Shape(6, 2, 34, 3), Shape(8, 2, 80, 4),
        Shape(7, 1, 256, 64), Shape(8, 1, 96, 48), Shape(14, 2, 36, 7),
    ],
    ids=lambda s: f"{s.heads}/{s.kv_heads}x{s.dim}p{s.page_tokens}",
)  # fmt: skip
def test_every_sharing_of_heads_width_and_page_size_equals_float64(shape, dtype):
    arena = Arena(shape, dtype, 200 // shape.page_tokens + 8, BEST)
    arena.check([arena.sequence(*n) for n in ((0, 1), (60, 1), (0, 3), (20, 40))])


@settings(max_examples=25)
@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 9),
    half=st.integers(16, 40),
    page_tokens=st.integers(1, 64),
    lengths=st.lists(st.tuples(st.integers(0, 90), st.integers(2, 40)), max_size=3),
    decode=st.lists(st.integers(0, 300), min_size=1, max_size=3),
    dtype=st.sampled_from(DTYPES),
    isa=st.sampled_from([i for i in kind_of(BEST) if i <= BEST]),
    seed=st.integers(0, 99),
)
def test_any_shape_equals_float64(
    kv_heads, group, half, page_tokens, lengths, decode, dtype, isa, seed
):
    shape = Shape(kv_heads * group, kv_heads, 2 * half, page_tokens)
    every = [*((n, 1) for n in decode), *lengths]
    pages = sum(-(-(a + b) // page_tokens) for a, b in every)
    arena = Arena(shape, dtype, pages + 1, isa, seed)
    arena.check([arena.sequence(*n) for n in every])


@pytest.mark.parametrize("isa", kind_of(BEST))
def test_heads_are_normed_before_they_are_turned(isa):
    for dtype in (torch.float32, torch.bfloat16):
        arena = Arena(Shape(4, 2, 34), dtype, 20, here(isa))
        norms = HeadNorms(arena.random(34).float(), arena.random(34).float())
        arena.check([arena.sequence(9, 1), arena.sequence(5, 20)], norms)


def test_a_long_row_is_cut_into_chunks_and_merged_to_the_same_answer():
    for dtype in DTYPES:
        arena = Arena(SMOL, dtype, 110, BEST)
        arena.check([arena.sequence(n, 1) for n in (1100, 255, 256)])


@pytest.mark.parametrize("isa", kind_of(BEST))
def test_a_rows_bits_do_not_depend_on_its_mates_or_threads(isa):
    arena = Arena(SMOL, torch.float32, 200, here(isa))
    lengths = ((700, 1), (3, 1), (40, 1), (0, 90), (31, 18))
    alone = [arena.attend([arena.sequence(*n)]) for n in lengths]
    arena = Arena(SMOL, torch.float32, 200, isa)
    sequences = [arena.sequence(*n) for n in lengths]
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        for mine, found in zip(alone, arena.attend(sequences), strict=True):
            assert torch.equal(mine[0], found)


@pytest.mark.parametrize("isa", kind_of(BEST))
def test_where_a_prompt_is_cut_changes_no_bit(isa):
    def answers(*cuts):
        arena = Arena(SMOL, torch.float32, 20, here(isa))
        whole = arena.sequence(0, 150)
        parts, start = [], 0
        for stop in (*cuts, 150):
            rows = whole.qkv[start:stop]
            part = type(whole)(start, stop - start, whole.pages, whole.k, whole.v, rows)
            parts += arena.attend([part])
            start = stop
        return torch.cat(parts)

    assert torch.equal(answers(), answers(2, 66, 68, 131))


def test_the_steps_own_slots_are_written_and_no_other_byte():
    arena = Arena(SMOL, torch.bfloat16, 30, BEST)
    sequences = [arena.sequence(20, 1), arena.sequence(17, 30)]
    before = arena.kv.clone()
    arena.attend(sequences)
    for s in sequences:
        at = torch.arange(s.start, s.start + s.count)
        pages = torch.tensor(s.pages)[at // 16]
        found = arena.kv[pages, LAYER, at % 16]
        assert torch.equal(found[:, 1], s.qkv[:, 12:])
        cos, sin = (table[at][:, None] for table in arena.rope)
        k = s.qkv[:, 9:12].float()
        torch.testing.assert_close(
            found[:, 0], (k * cos + k.roll(32, -1) * sin).bfloat16(), atol=1e-2, rtol=1e-2
        )
        before[pages, LAYER, at % 16] = found
    assert torch.equal(before.view(torch.int16), arena.kv.view(torch.int16))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_in_a_sequence_reaches_its_own_rows_and_nobody_elses(dtype):
    arena = Arena(SMOL, dtype, 120, BEST)
    sequences = [arena.sequence(*n) for n in ((600, 1), (40, 1), (40, 20), (9, 30))]
    clean = arena.attend(sequences)
    for broken in (0, 2):
        arena.kv[sequences[broken].pages[0], LAYER, 3, 0] = float("nan")
    arena.kv[sequences[2].pages[0], LAYER, 3] = float("nan")
    found = arena.attend(sequences)
    assert found[0].isnan().all()
    assert found[2].isnan().all()
    assert torch.equal(found[1], clean[1])
    assert torch.equal(found[3], clean[3])


def test_scores_far_apart_do_not_overflow():
    arena = Arena(SMOL, torch.float32, 30, BEST)
    sequences = [arena.sequence(40, 1), arena.sequence(40, 9)]
    for s in sequences:
        s.qkv[:, : SMOL.heads + SMOL.kv_heads] *= 300
    arena.check(sequences)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_pages_past_two_to_the_31_elements_are_found(dtype):
    shape = Shape(16, 8, 128, 64)
    elements = 16 * shape.page_tokens * 2 * shape.kv_width  # of 16 layers
    pages = 2**31 // elements + 3
    try:
        memory = torch.empty(pages, elements, dtype=dtype)  # committed only where touched
    except RuntimeError:
        pytest.skip("no address space for an arena past 2**31 elements")
    arena = Arena(shape, dtype, 1, BEST)
    from kernels.cpu_ops import NativeOps

    arena.elements, arena.free = memory, [pages - 1, pages - 2]
    arena.kv = memory.view(pages, 16, shape.page_tokens, 2, shape.kv_heads, shape.dim)
    arena.ops = NativeOps(FOUND, arena.ops.shape, memory, shape.page_tokens, arena.rope)
    arena.check([arena.sequence(5, 1), arena.sequence(3, 7)])


def test_what_the_kernels_cannot_take_is_refused_by_name():
    for dim in (33, 258):
        with pytest.raises(ValueError, match=f"even heads of 2 to 256, not {dim}"):
            Arena(Shape(2, 1, dim), torch.float32, 2, BEST)
    with pytest.raises(ValueError, match=r"not torch\.float64"):
        Arena(Shape(2, 1, 32), torch.float64, 2, BEST)
    arena = Arena(SMOL, torch.float32, 2, BEST)
    s = arena.sequence(0, 2)
    s.qkv = s.qkv[:1]
    with pytest.raises(ValueError, match="where 1920 contiguous elements are needed"):
        arena.attend([s])
