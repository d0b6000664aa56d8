"""The block table finds rows wherever pages put them, and operands that do not fit are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels import sgmv
from kernels.blocks import Block, Pair, Span, build_table
from kernels.errors import KernelError
from kernels.work import BASE, Segment, build_work

BF16 = torch.bfloat16


def block(rank: int, width: int = 64, offset: int = 0) -> Block:
    return Block((Span(rank, offset, width),), width)


def pair(rank: int = 4) -> Pair:
    return Pair(block(rank), block(rank, offset=64 * rank))


def test_a_block_split_across_pages_keeps_the_order_of_its_rows():
    split = Block((Span(2, 4096, 64), Span(3, 128, 64)), 64)
    table = build_table([[Pair(split, block(5))]], 64, [64], BF16, 8192)
    rank, a, bt = table.index[0, 0].tolist()
    assert table.rows[a : a + rank].tolist() == [4096, 4160, 128, 192, 256]
    assert table.rows[bt : bt + rank].tolist() == [0, 64, 128, 192, 256]


def test_offsets_are_64_bits_wide():
    far = 2**33
    table = build_table([[Pair(block(1, offset=far), block(1))]], 64, [64], BF16, far + 64)
    assert table.rows.dtype == torch.int64
    assert int(table.rows.max()) == far


def test_columns_lie_slice_after_slice():
    wide = Pair(block(2), block(2, width=192))
    table = build_table([[wide, None, pair()]], 64, [192, 32, 64], BF16, 8192)
    assert table.columns.tolist() == [[0, 192], [192, 32], [224, 64]]
    assert table.ranks.tolist() == [[2, 0, 4]]


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([[Pair(block(4), block(3))]], "slot 0, slice 0: A has rank 4 but B\\^T 3"),
        ([[pair()], [Pair(block(4, width=32), block(4))]], "slot 1, slice 0: A is 32 wide"),
        ([[Pair(block(4), block(4, offset=8100))]], "reach from element 8100 to"),
        ([[Pair(block(4, offset=-64), block(4))]], "reach from element -64"),
        ([[Pair(block(4, offset=32), block(4))]], "starts at element 32.*multiple of 64"),
        ([[pair(), pair()]], "slot 0 has 2 slices, the launch 1"),
    ],
)
def test_a_block_that_does_not_fit_is_refused_by_slot_and_value(pairs, says):
    with pytest.raises(KernelError, match=says):
        build_table(pairs, 64, [64], BF16, 8192)


@pytest.fixture
def launch():
    arena = torch.zeros(8192, dtype=BF16)
    table = build_table([[pair()]], 64, [64], BF16, arena.numel())
    work = build_work([Segment(0, 2, 0)], table.ranks, [64])
    out = torch.empty(sgmv.partials_shape(table, work, 2))
    return {"x": torch.zeros(2, 64, dtype=BF16), "arena": arena, "table": table} | {
        "work": work,
        "out": out,
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": torch.zeros(2, 96, dtype=BF16)}, "the table's A is 64 wide"),
        ({"x": torch.zeros(2, 64)}, "x is torch.float32, the arena torch.bfloat16"),
        ({"x": torch.zeros(1, 64, dtype=BF16)}, "has 1 rows, the work list names 2"),
        ({"x": torch.zeros(64, 2, dtype=BF16).T}, "contiguous rows"),
        ({"arena": torch.zeros(8192)}, "the arena is torch.float32, the table was built for"),
        ({"arena": torch.zeros(2, 4096, dtype=BF16)}, "expected one flat tensor"),
        ({"out": torch.empty(1, 1, 1, 16)}, "too small: expected at least \\(1, 1, 2, 16\\)"),
        ({"out": torch.empty(1, 1, 2, 16, dtype=BF16)}, "expected contiguous fp32"),
    ],
)
def test_operands_that_do_not_fit_are_refused_before_a_launch(launch, change, says):
    with pytest.raises(KernelError, match=says):
        sgmv.shrink(**launch | change)


def test_a_rank_above_the_work_lists_is_refused_not_dropped(launch):
    short = build_work([Segment(0, 2, 0)], np.array([[3]]), [64])
    with pytest.raises(KernelError, match=r"slot 0, slice 0 has rank 4, the work list .* for 3"):
        sgmv.shrink(**launch | {"work": short})


def test_a_work_list_for_other_slots_is_refused(launch):
    other = build_work([Segment(0, 2, 0)], np.array([[4], [4]]), [64])
    with pytest.raises(KernelError, match="slots, slices"):
        sgmv.shrink(**launch | {"work": other})


def test_expand_refuses_a_y_of_another_width(launch):
    y = torch.zeros(2, 65, dtype=BF16)
    with pytest.raises(KernelError, match=r"y is \(2, 65\), the slices are \(64,\) wide"):
        sgmv.expand(launch["out"], launch["arena"], launch["table"], launch["work"], y)


def test_a_step_of_base_rows_alone_launches_nothing(launch):
    idle = build_work([Segment(0, 2, BASE)], np.array([[4]]), [64])
    launch["out"].fill_(7.0)
    sgmv.shrink(**launch | {"work": idle})
    assert bool((launch["out"] == 7.0).all())
