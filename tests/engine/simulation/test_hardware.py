"""Presets: arithmetic that can be checked by hand, and an honest word on the linear model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulation.fit import MeasuredStep, errors
from engine.simulation.hardware import (
    A10G,
    A100_80,
    H100,
    LLAMA2_7B,
    LLAMA2_13B,
    LLAMA2_70B,
    LLAMA3_70B,
    PCIE_GEN4_X16,
    PCIE_GEN5_X16,
    PRESETS,
)
from engine.simulation.roofline import Efficiency, Mix, Roofline, StepShape

STEPS = st.builds(
    StepShape,
    prefill_tokens=st.integers(0, 4096),
    prefill_keys=st.integers(0, 10**7),
    decode_rows=st.integers(0, 1024),
    decode_keys=st.integers(0, 10**7),
    adapters=st.integers(0, 64),
)


@pytest.mark.parametrize(
    ("model", "billions", "kv_bytes"),
    [
        (LLAMA2_7B, 6.738, 524_288),
        (LLAMA2_13B, 13.016, 819_200),
        (LLAMA2_70B, 68.977, 327_680),
        (LLAMA3_70B, 70.554, 327_680),
    ],
)
def test_shapes_have_the_parameters_of_their_cards(model, billions, kv_bytes):
    assert model.parameters / 1e9 == pytest.approx(billions, abs=0.001)
    assert model.kv_token_bytes == kv_bytes


def test_an_adapter_has_two_thin_matrices_for_each_projection():
    # 7 projections of 32 layers: q, k, v, o 4096+4096 each; gate, up, down 4096+11008 each.
    assert LLAMA2_7B.adapter_bytes(16) == 32 * 16 * 2 * (4 * 8192 + 3 * 15104)


def test_an_adapter_on_attention_alone_is_smaller_and_fills_its_own_pages():
    # q and o 8192+8192, k and v 8192+1024, 80 layers, rank 8.
    assert LLAMA3_70B.adapter_bytes(8, "attention") == 80 * 8 * 2 * (2 * 16384 + 2 * 9216)
    preset = PRESETS["4xh100-llama3-70b"]
    assert preset.adapter_pages(8, "attention") == 13
    assert preset.adapter_pages(8) == 40


@pytest.mark.parametrize(("link", "milliseconds"), [(PCIE_GEN4_X16, 6.4), (PCIE_GEN5_X16, 2.5)])
def test_160_mb_take_as_long_as_the_link_allows(link, milliseconds):
    assert 160e6 / link * 1000 == pytest.approx(milliseconds)


def test_one_row_takes_the_time_of_reading_the_weights():
    exact = Roofline(A10G, LLAMA2_7B, efficiency=Efficiency(1.0, 1.0, 1.0, 0.0, 0.0))
    weights = (LLAMA2_7B.parameters - 32000 * 4096) * 2
    assert exact.step_s(StepShape(decode_rows=1)) == pytest.approx(weights / 600e9, rel=1e-4)


def test_a_long_prompt_takes_the_time_of_its_multiplications():
    exact = Roofline(H100, LLAMA3_70B, 4, Efficiency(1.0, 1.0, 1.0, 0.0, 0.0))
    linear = 2 * (LLAMA3_70B.parameters - 128256 * 8192) * 4096
    attention = 4 * 80 * 64 * 128 * (4096 * 4097 // 2)
    shape = StepShape(prefill_tokens=4096, prefill_keys=4096 * 4097 // 2)
    assert exact.compute_s(shape) == pytest.approx((linear + attention) / (4 * 989e12))
    assert exact.step_s(shape) > exact.compute_s(shape), "all-reduces come on top"


@given(STEPS)
def test_a_sum_where_the_step_has_a_maximum_is_at_most_twice_too_long(shape):
    for preset in PRESETS.values():
        r = preset.roofline
        rest = r.step_s(shape) - max(r.compute_s(shape), r.memory_s(shape))
        summed = r.compute_s(shape) + r.memory_s(shape) + rest
        assert r.step_s(shape) <= summed <= 2 * r.step_s(shape) + 1e-12


@given(STEPS)
def test_more_accelerators_are_faster_but_not_by_their_number(shape):
    one, four = Roofline(A100_80, LLAMA2_13B, 1), Roofline(A100_80, LLAMA2_13B, 4)
    assert four.step_s(shape) >= one.step_s(shape) / 4
    assert four.network_s(shape) > one.network_s(shape) == 0


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_fits_its_memory_and_says_how_linear_it_is(name):
    preset = PRESETS[name]
    r = preset.roofline
    held = r.model.weight_bytes + preset.limits.pool_bytes
    assert held <= r.gpus * r.accelerator.memory_bytes
    assert preset.limits.pool_bytes == preset.pages * preset.page_bytes
    assert preset.limits.page_tokens * r.model.kv_token_bytes == preset.page_bytes
    assert preset.adapter_pages(16) * preset.page_bytes >= preset.adapter_bytes(16)
    assert preset.report.median < 0.08
    assert preset.report.worst < 0.35
    costs = preset.costs
    assert min(costs.base_s, costs.prefill_token_s, costs.decode_row_s) > 0
    assert costs.context_token_s > 0


def test_the_published_pool_holds_ten_thousand_tokens():
    preset = PRESETS["a10g-llama2-7b"]
    assert preset.pages * preset.limits.page_tokens == 10_000


def test_another_mix_needs_another_line():
    preset = PRESETS["a100-80-llama2-13b"]
    long = Mix(8192, 512, 1024, 8)
    steps = [MeasuredStep(s.features, preset.roofline.step_s(s)) for s in long.steps()]
    _, own = preset.costs_for(long)
    assert own.median < errors(preset.costs, steps).median / 2


def test_a_decode_key_costs_many_prefill_keys_so_one_coefficient_is_a_compromise():
    for preset in PRESETS.values():
        r = preset.roofline
        keys = 10**6
        decode = r.memory_s(StepShape(decode_keys=keys)) - r.memory_s(StepShape())
        prefill = r.compute_s(StepShape(prefill_keys=keys))
        assert 20 < decode / prefill < 100
        assert prefill / keys * 0.9 < preset.costs.context_token_s < decode / keys
