"""benchmarks/tensor_parallel.py: what it prints and when it is not content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from together import PAGE_TOKENS, small_config, together

from benchmarks.tensor_parallel import Asked, Seen, claims, play, text, told
from engine.model.loaders import synthetic_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.parallel.runner import RankLoad
from engine.runner.torch_runner import TorchRunner

PROMPTS = (tuple(range(5, 40)), (3, 4), (9,))


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    """Of threads in place of processes."""
    model = synthetic_model(small_config())
    folder = make_adapter(tmp_path_factory.mktemp("a") / "a0", model.config, 8)
    asked = Asked(PROMPTS, (Path(folder),), steps=3, pages=64)
    one = TorchRunner(model, 64, PAGE_TOKENS)
    size = one.page_bytes
    whole = play(one, lambda f: read_adapter(f, model.config, model.dtype, size), asked, size)
    with together(model, 3) as ranks:
        cut = play(ranks.runner, ranks.read, asked, size // 3)
    assert cut.tokens == whole.tokens
    difference = float((cut.logits - whole.logits).abs().max())
    each = asked.pages_each * len(PROMPTS)
    return {
        "model": "made", "dtype": "float32", "tp": 3, "streams": 3, "adapters": 1, "lora_rank": 8,
        "tokens": 9, "tokens_equal": 9, "largest_logit_difference": difference,
        "one": told(whole, each), "cut": told(cut, each),
    }  # fmt: skip


def test_ranks_that_answer_as_one_and_page_their_share_are_what_it_asks_for(found) -> None:
    assert [ok for ok, _ in claims(found)] == [True, True, True]
    printed = "\n".join(text(found))
    assert "9 of 9 greedy tokens equal" in printed
    for rank in range(3):
        assert f"load      rank {rank}: " in printed


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens_equal": 8},
        {"largest_logit_difference": 0.01},
        {"cut": {"kv_bytes_a_rank": 1}},
        {"cut": {"adapter_bytes": 1 << 40}},
    ],
)
def test_another_answer_or_more_than_its_share_is_a_miss(found, wrong) -> None:
    changed = {
        key: {**found[key], **value} if isinstance(value, dict) else value
        for key, value in wrong.items()
    }
    assert [ok for ok, _ in claims({**found, **changed})].count(False) == 1


def test_the_last_load_is_told_rank_by_rank() -> None:
    seen = Seen(((1,),), torch.zeros(1), 100, 2, 150, (), 0.5)
    with_loads = replace(seen, loads=(RankLoad(0, 200, 0.25), RankLoad(1, 200, 0.5)))
    assert told(seen, 4)["kv_bytes_a_rank"] == 400
    assert told(with_loads, 4)["loads"] == [
        {"rank": 0, "bytes": 200, "seconds": 0.25},
        {"rank": 1, "bytes": 200, "seconds": 0.5},
    ]
