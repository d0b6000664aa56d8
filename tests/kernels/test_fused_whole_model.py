"""The decoder that serves runs on the Triton ops as it is, adapters included."""

from __future__ import annotations

import pytest

from tests.kernels import whole_model


def test_a_whole_models_logits_through_triton_equal_torchs(interpreter):
    interpreter(whole_model.check_whole_model)


def test_an_adapters_slot_is_as_new_as_its_generation(interpreter):
    interpreter(whole_model.check_slots_follow_generations)


@pytest.mark.full
def test_replayed_decode_steps_answer_token_for_token_as_launched_ones_through_triton(interpreter):
    interpreter(whole_model.check_replayed_steps)
