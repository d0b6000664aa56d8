"""Norms, RoPE with its KV write, and the gate in Triton compute what the reference says."""

from __future__ import annotations

import pytest
import torch

from kernels import fused
from kernels.attention import Heads
from kernels.errors import KernelError
from tests.kernels import paged_cases as cases

SHAPES = ((1, 16), (2, 100), (5, 576))
FEW = [c for c in cases.pairwise() if c.prefix in (1, 16)][:6]


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_norm_and_the_gate_equal_the_reference(interpreter, dtype, shape):
    interpreter(cases.check_normed, dtype, *shape)
    interpreter(cases.check_gated, dtype, *shape)


def test_a_gate_far_below_zero_is_zero(interpreter):
    interpreter(cases.check_gate_of_large_values)


@pytest.mark.parametrize("case", FEW, ids=str)
def test_rotation_and_the_kv_write_equal_the_reference(interpreter, case):
    interpreter(cases.check_rotation, case, case.new % 2 == 0)


@pytest.mark.full
@pytest.mark.parametrize("heads", cases.HEADS, ids=str)
@pytest.mark.parametrize("normed_heads", [True, False])
def test_rotation_equals_the_reference_on_the_whole_grid(interpreter, heads, normed_heads):
    for case in cases.full_grid():
        if case.heads == heads and case.order == "shuffled":
            interpreter(cases.check_rotation, case, normed_heads)


def test_what_does_not_fit_is_refused_before_a_launch():
    x = torch.zeros(2, 8)
    with pytest.raises(KernelError, match="not alike"):
        fused.normed(x, None, torch.ones(8), 1e-5, torch.empty(2, 9))
    with pytest.raises(KernelError, match="float32"):
        fused.normed(x.half(), None, torch.ones(8), 1e-5, torch.empty(2, 8))
    with pytest.raises(KernelError, match="2 x ff"):
        fused.gated(x, x, 128)
    step = cases.make_step(cases.Case(torch.float32, Heads(4, 2, 32), 16, "forward", 16, 2))
    short = tuple(table[:5] for table in step.rope)
    with pytest.raises(KernelError, match="at least 131"):
        fused.rotate_and_store(
            step.qkv, step.arena, 1, 16, step.case.heads, step.work, short, None, 1e-5, 8
        )
