"""The same model in 16 bits answers nearly as in 32: whole steps, by whatever computes here."""

from __future__ import annotations

import pytest
import torch

from engine.model.loaders import synthetic_config, synthetic_model
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

TOKENS = tuple(range(5, 45))


def logits(head_norms: bool, dtype: torch.dtype) -> torch.Tensor:
    """Of a prefill of 40 tokens, then of a decode step over it: [2, vocab]."""
    config = synthetic_config(layers=2, head_norms=head_norms)
    runner = TorchRunner(synthetic_model(config, dtype), 4, 16)
    found = []
    for start, tokens in ((0, TOKENS), (len(TOKENS), (7,))):
        segment = Segment("a", "t", None, tokens, start, (0, 1, 2), True, start == 0)
        found.append(runner.logits(StepPlan(0, (segment,)))["a"])
    return torch.stack(found)


@pytest.mark.parametrize("head_norms", [False, True])
@pytest.mark.parametrize(("dtype", "within"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_sixteen_bits_are_close_to_thirty_two(dtype, within, head_norms):
    whole = logits(head_norms, torch.float32)
    assert whole.std() > 0.3
    assert (logits(head_norms, dtype) - whole).abs().max() < within
