"""Paged attention in Triton computes what the reference and torch say, over any mix of pages."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import attention
from kernels.attention import Heads, build_paged
from kernels.backend import PagedRows
from kernels.errors import KernelError
from kernels.gpu_room import StepRoom
from tests.kernels import paged_cases as cases

PAIRWISE = cases.pairwise()


@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_attention_equals_the_reference(interpreter, case):
    interpreter(cases.check_attention, case)


def test_the_fast_cases_cover_every_pair_of_the_grid():
    assert len(PAIRWISE) <= 60
    found = set().union(*(cases.pairs_of(cases.axes_of(c)) for c in PAIRWISE))
    assert found == cases.all_pairs()


@pytest.mark.full
@pytest.mark.parametrize("heads", cases.HEADS, ids=str)
@pytest.mark.parametrize("dtype", cases.DTYPES, ids=str)
def test_attention_equals_the_reference_on_the_whole_grid(interpreter, dtype, heads):
    for case in cases.full_grid():
        if case.dtype == dtype and case.heads == heads:
            interpreter(cases.check_attention, case)


@pytest.mark.parametrize("heads", [Heads(4, 2, 32), Heads(9, 3, 64)], ids=str)
def test_attention_equals_torchs_own(interpreter, heads):
    interpreter(cases.check_against_sdpa, heads)


def test_a_decode_rows_bits_do_not_depend_on_its_neighbours(interpreter):
    interpreter(cases.check_neighbours)


def test_the_same_step_gives_the_same_bits(interpreter):
    interpreter(cases.check_same_bits)


def test_padding_items_do_nothing(interpreter):
    interpreter(cases.check_padding_items)


def test_pages_past_two_to_the_31_elements_are_written_and_found(interpreter):
    interpreter(cases.check_pages_past_two_to_the_31)


@given(
    sequences=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 70)), min_size=1, max_size=8),
    page_tokens=st.sampled_from([3, 16, 48]),
    heads=st.sampled_from(cases.HEADS),
)
def test_every_row_meets_every_key_up_to_its_own_once(sequences, page_tokens, heads):
    sequences.sort(key=lambda s: s[1] != 1)
    rows = cases.paged_rows(sequences, page_tokens, list(range(1000)))
    work = build_paged(rows, page_tokens, heads, cases.TILES, StepRoom(torch.device("cpu")))
    met: dict[int, list[int]] = {}
    for row, queries, position, entry, low, high in [*work.decode.tolist(), *work.prefill.tolist()]:
        i = rows.first_page.index(entry)
        assert position == rows.start[i] + row - rows.first_row[i]
        assert queries * heads.group <= work.prefill_tile.rows
        for k in range(queries):
            met.setdefault(row + k, []).extend(range(low, min(high, position + k + 1)))
    for i, (start, count) in enumerate(sequences):
        for k in range(count):
            assert met.pop(rows.first_row[i] + k) == list(range(start + k + 1))
    assert not met
    items = [e for _, first, n in work.spans.tolist() for e in range(first, first + n)]
    assert items == list(range(len(work.decode)))


def refused(**changed: object) -> str:
    step = cases.make_step(cases.Case(torch.float32, Heads(4, 2, 32), 16, "forward", 0, 2))
    operands = {
        "qkv": step.qkv, "arena": step.arena, "layer": 1, "page_tokens": 16,
        "heads": step.case.heads, "work": step.work, "partials": torch.empty(0),
        "out": torch.empty(len(step.qkv), 128),
    } | changed  # fmt: skip
    with pytest.raises(KernelError) as raised:
        attention.attend(**operands)
    return str(raised.value)


def test_what_does_not_fit_is_refused_before_a_launch():
    step = cases.make_step(cases.Case(torch.float32, Heads(4, 2, 32), 16, "forward", 0, 2))
    assert "layer 2 of pages" in refused(layer=2)
    assert "the arena is torch.float16" in refused(arena=step.arena.half())
    assert "an arena of 3" in refused(arena=step.arena[:3])
    assert "qkv has 2 rows" in refused(qkv=step.qkv[:2])
    assert "out is torch.float32 (2, 128)" in refused(out=torch.empty(2, 128))
    split = replace(step.work, decode=step.work.decode.repeat(2, 1))
    assert "partials are" in refused(work=split)


def test_pages_that_do_not_hold_a_sequence_are_refused():
    rows = PagedRows(array("q", (0, 1)), array("q", (16,)), array("q", (0, 1)), array("q", (0,)))
    with pytest.raises(KernelError, match="sequence 0 has 1 pages of 16 tokens for 17"):
        build_paged(rows, 16, Heads(2, 1, 16), cases.TILES, StepRoom(torch.device("cpu")))


def test_heads_that_do_not_share_evenly_are_refused():
    with pytest.raises(KernelError, match="9 query heads over 2 KV heads"):
        Heads(9, 2, 64)
