"""The Triton pair computes what the reference says, at every rank, batch and popularity."""

from __future__ import annotations

import pytest

from tests.kernels import sgmv_cases as cases

PAIRWISE = cases.pairwise()


@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_shrink_equals_the_reference(interpreter, case):
    interpreter(cases.check_shrink, case)


@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_expand_equals_the_reference(interpreter, case):
    interpreter(cases.check_expand, case)


def test_the_fast_cases_cover_every_pair_of_the_grid():
    assert len(PAIRWISE) <= 60
    assert set().union(*(cases.pairs_of(c) for c in PAIRWISE)) >= cases.all_pairs()


def test_every_batched_case_has_base_rows_and_adapter_rows():
    for case in PAIRWISE:
        segments, adapters = cases.segments_of(case)
        assert adapters >= 1
        assert any(s.slot == cases.BASE for s in segments) == (case.batch > 1)
        assert sum(s.rows for s in segments) == case.batch


@pytest.mark.full
@pytest.mark.parametrize("case", list(cases.full_grid()), ids=str)
def test_both_ops_equal_the_reference_on_the_whole_grid(interpreter, case):
    interpreter(cases.check_shrink, case)
    interpreter(cases.check_expand, case)


def test_shrink_then_expand_is_lora(interpreter):
    interpreter(cases.check_pair_is_lora)


def test_absent_modules_and_rank_zero_change_nothing(interpreter):
    interpreter(cases.check_absent_modules_and_rank_zero)


def test_a_layer_of_lower_rank_runs_on_the_steps_work_list(interpreter):
    interpreter(cases.check_layer_of_lower_rank)


def test_reused_buffers_replay_no_stale_items(interpreter):
    interpreter(cases.check_reused_buffers)


def test_blocks_past_two_to_the_31_elements_are_found(interpreter):
    interpreter(cases.check_rows_past_two_to_the_31)
