"""The work list computes each row's columns exactly once, in CTAs that grow with tokens."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import KernelError
from kernels.work import (
    BASE,
    DECODE,
    PREFILL,
    Buffers,
    Capacity,
    Segment,
    build_work,
    pick_tile,
)


@st.composite
def steps(draw):
    """(segments with gaps between them, ranks, widths, tile)."""
    slots = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 300), min_size=1, max_size=3))
    ranks = np.array(
        draw(
            st.lists(
                st.lists(st.integers(0, 70), min_size=len(widths), max_size=len(widths)),
                min_size=slots,
                max_size=slots,
            )
        )
    )
    runs = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 90)), max_size=10))
    segments, first = [], 0
    for gap, rows in runs:
        first += gap
        segments.append(Segment(first, rows, draw(st.integers(BASE, slots - 1))))
        first += rows
    segments = draw(st.permutations(segments))
    m, r, n = (2 ** draw(st.integers(4, 6)) for _ in range(3))
    return segments, ranks, widths, replace(DECODE, m=m, r=r, n=n)


def cells(items, order):
    """How often each (row, slot, slice, tile) is computed."""
    return Counter(
        (int(row), int(slot), int(piece), int(tile))
        for position, count, slot, piece, tile in items.tolist()
        for row in order[position : position + count]
    )


@given(steps())
def test_each_row_and_column_tile_is_computed_exactly_once(step):
    segments, ranks, widths, tile = step
    work = build_work(segments, ranks, widths, tile)
    owners = [
        (row, s.slot)
        for s in segments
        if s.slot != BASE
        for row in range(s.first_row, s.first_row + s.rows)
    ]
    order = work.order.tolist()
    for items, tiles in (
        (work.shrink, lambda slot, p: -(-int(ranks[slot, p]) // tile.r)),
        (work.expand, lambda slot, p: -(-widths[p] // tile.n) if ranks[slot, p] else 0),
    ):
        expected = Counter(
            (row, slot, p, i)
            for row, slot in owners
            for p in range(len(widths))
            for i in range(tiles(slot, p))
        )
        assert cells(items, order) == expected
        assert all(1 <= count <= tile.m for count in items[:, 1].tolist())


@given(steps())
def test_ctas_stay_within_tokens_over_chunk_plus_adapters(step):
    segments, ranks, widths, tile = step
    work = build_work(segments, ranks, widths, tile)
    active = {s.slot for s in segments if s.slot != BASE and s.rows}
    rows = sum(s.rows for s in segments if s.slot != BASE)
    room = Capacity.of(rows, len(active), int(ranks.max()), widths, tile)
    assert len(work.shrink) <= room.shrink
    assert len(work.expand) <= room.expand


def test_one_row_an_adapter_is_one_chunk_an_adapter_whatever_the_others_are():
    ranks = np.array([[128], [8], [8], [8]])
    segments = [Segment(i, 1, i) for i in range(4)]
    work = build_work(segments, ranks, [128])
    assert Counter(work.shrink[:, 2].tolist()) == {0: 8, 1: 1, 2: 1, 3: 1}


def test_base_rows_cost_nothing():
    work = build_work([Segment(0, 500, BASE)], np.array([[16]]), [128])
    assert len(work.order) == len(work.shrink) == len(work.expand) == 0


def test_decode_rows_get_the_decode_tile_and_a_prompt_the_prefill_tile():
    assert pick_tile([Segment(i, 1, i) for i in range(32)]) is DECODE
    assert pick_tile([Segment(0, 512, 0), Segment(512, 400, BASE)]) is PREFILL
    assert pick_tile([Segment(0, 100, BASE)]) is DECODE


def test_the_split_of_k_does_not_depend_on_the_batch():
    assert DECODE.splits(4096) == 4
    assert DECODE.splits(576) == 1
    assert PREFILL.splits(4096) == 1


@pytest.mark.parametrize(
    ("segments", "says"),
    [
        ([Segment(0, 2, 0), Segment(1, 2, 1)], "share row 1"),
        ([Segment(0, 2, 2)], "slots go from -1"),
        ([Segment(0, 2, -2)], "slots go from -1"),
        ([Segment(-1, 2, 0)], "rows from 0"),
    ],
)
def test_a_segment_that_cannot_be_is_refused_by_value(segments, says):
    with pytest.raises(KernelError, match=says):
        build_work(segments, np.array([[4], [4]]), [16])


def test_more_work_than_the_buffers_hold_is_refused_not_cut():
    room = Buffers([Capacity.of(8, 2, 16, [64], DECODE)])
    with pytest.raises(KernelError, match="9 rows, the buffers hold 8"):
        build_work([Segment(0, 9, 0)], np.array([[16]]), [64], DECODE, room)


def test_the_tail_of_the_buffers_is_zero_rows():
    room = Buffers([Capacity.of(40, 4, 64, [300], DECODE)])
    build_work([Segment(0, 40, 0)], np.array([[64]]), [300], DECODE, room)
    work = build_work([Segment(0, 1, 0)], np.array([[16]]), [16], DECODE, room)
    assert len(work.expand) == room.capacities[0].expand
    assert work.expand[:, 1].tolist() == [1] + [0] * (room.capacities[0].expand - 1)
    assert work.shrink[:, 1].tolist() == [1] + [0] * (room.capacities[0].shrink - 1)
