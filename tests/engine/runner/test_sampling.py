"""Draws repeat, follow the distribution, and bfloat16 greedy choice is not blurred by rounding."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from engine.model.config import synthetic_config
from engine.model.loaders import synthetic_model
from engine.model.sampling import Draw, OutputHead, sample
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def model(request):
    return synthetic_model(synthetic_config(), request.param)


def test_greedy_is_the_argmax_of_the_float32_logits(model):
    head = OutputHead(model)
    with torch.inference_mode():
        hidden = torch.randn(64, model.config.hidden, generator=torch.Generator().manual_seed(1))
        chosen = head.choose(hidden, [Draw(0.0, "")] * 64)
        assert chosen == head.logits(hidden).argmax(-1).tolist()


def test_greedy_survives_logits_that_are_all_alike(model):
    head = OutputHead(model)
    with torch.inference_mode():
        hidden = torch.randn(3, model.config.hidden) * 1e-4
        chosen = head.choose(hidden, [Draw(0.0, "")] * 3)
        assert chosen == head.logits(hidden).argmax(-1).tolist()


def test_a_row_that_is_not_finite_yields_no_token_and_its_neighbours_theirs(model):
    head = OutputHead(model)
    with torch.inference_mode():
        hidden = torch.randn(3, model.config.hidden)
        whole = head.choose(hidden, [Draw(0.0, "")] * 3)
        hidden[1, 0] = float("nan")
        assert head.choose(hidden, [Draw(0.0, "")] * 3) == [whole[0], None, whole[2]]


def test_draws_follow_the_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0, -40.0])
    n = 4000
    seen = Counter(sample(logits, Draw.of("r", 0.7, 11, i)) for i in range(n))
    expected = torch.softmax(logits / 0.7, -1)
    for token in range(3):
        assert abs(seen[token] / n - float(expected[token])) < 0.03
    assert seen[3] == 0


@pytest.mark.parametrize("temperature", [1e-8, 1e-3])
def test_a_tiny_temperature_is_greedy(temperature):
    logits = torch.tensor([1.0, 30.0, 29.0])
    assert {sample(logits, Draw.of("r", temperature, None, i)) for i in range(50)} == {1}


def test_a_draw_depends_on_seed_and_index_and_not_on_batch_mates(model):
    runner = TorchRunner(model, 40, 16)

    def token(name, seed, sampled, mates):
        mine = Segment(name, "t", None, (9,), 0, (0,), True, False, 1.5, seed, sampled)
        others = [
            Segment(f"m{i}", "t", None, (i + 20,), 0, (i + 1,), True, False, 1.0, i)
            for i in range(mates)
        ]
        return runner.execute(StepPlan(1, (*others, mine))).tokens[name]

    assert token("a", 7, 3, 0) == token("b", 7, 3, 5)
    assert token("a", None, 3, 0) == token("a", None, 3, 5)
    assert len({token("a", 7, i, 0) for i in range(20)}) > 3
    assert len({token(f"r{i}", None, 0, 0) for i in range(20)}) > 3


@pytest.mark.parametrize(("top_p", "kept"), [(0.0, 1), (0.6, 1), (0.7, 2), (0.95, 3), (1.0, 4)])
def test_a_nucleus_holds_the_fewest_likeliest_tokens_that_reach_top_p(top_p, kept):
    logits = torch.log(torch.tensor([0.05, 0.65, 0.1, 0.2]))
    seen = {sample(logits, Draw.of("r", 1.0, 3, i, top_p)) for i in range(600)}
    assert seen == set([1, 3, 2, 0][:kept])


def test_draws_from_a_nucleus_keep_the_proportions_inside_it():
    logits = torch.log(torch.tensor([0.05, 0.60, 0.05, 0.30]))
    n = 4000
    seen = Counter(sample(logits, Draw.of("r", 1.0, 11, i, 0.9)) for i in range(n))
    assert set(seen) == {1, 3}
    assert abs(seen[1] / n - 2 / 3) < 0.03


def test_logprobs_are_the_models_own_whatever_the_temperature(model):
    head = OutputHead(model)
    with torch.inference_mode():
        hidden = torch.randn(3, model.config.hidden, generator=torch.Generator().manual_seed(4))
        expected = torch.log_softmax(head.logits(hidden).double(), -1)
        tokens = [t for t in head.choose(hidden, [Draw(0.0, "")] * 3) if t is not None]
        told = head.logprobs(hidden, tokens, [2, 0, 5])
    assert [len(t.top) for t in told] == [2, 0, 5]
    for row, token, t in zip(expected, tokens, told, strict=True):
        assert t.own == pytest.approx(float(row[token]))
        assert [v for _, v in t.top] == sorted((float(row[i]) for i, _ in t.top), reverse=True)
    assert told[2].top[0][0] == tokens[2]


def test_only_rows_that_ask_are_told_logprobs(model):
    runner = TorchRunner(model, 40, 16)
    plan = StepPlan(
        1,
        (
            Segment("told", "t", None, (9,), 0, (0,), True, False, logprobs=1),
            Segment("untold", "t", None, (9,), 0, (1,), True, False),
        ),
    )
    outcome = runner.execute(plan)
    assert set(outcome.tokens) == {"told", "untold"}
    assert set(outcome.logprobs) == {"told"}
    assert outcome.logprobs["told"].top[0][0] == outcome.tokens["told"]
    again = StepPlan(2, (Segment("untold", "t", None, (9,), 0, (1,), True, False),))
    assert runner.execute(again).logprobs is None
