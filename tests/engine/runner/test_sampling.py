"""From hidden states to tokens: greedy choice that rounding does not blur, draws that repeat, and
logits that move as transformers moves them, whoever else is in the step."""

from __future__ import annotations

import random

import pytest
import torch

from engine.model.config import synthetic_config
from engine.model.head import OutputHead
from engine.model.linear import Linear
from engine.model.loaders import synthetic_model
from engine.model.penalties import Bend
from engine.model.sampling import Draw
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan
from engine.scheduling.shaping import History, Shaping


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


def counted(monkeypatch, owner, name) -> list[int]:
    """How many rows each call of the function is given, from now on."""
    was, rows = getattr(owner, name), []

    def call(first, *more):
        rows.append(len(first))
        return was(first, *more)

    monkeypatch.setattr(owner, name, call)
    return rows


def test_many_rows_are_told_and_chosen_a_bounded_number_at_a_time(model, monkeypatch):
    """The same as all at once; no logits of more rows than the bound are ever there, fewer still in
    float64."""
    head = OutputHead(model)
    with torch.inference_mode():
        hidden = torch.randn(21, model.config.hidden, generator=torch.Generator().manual_seed(6))
        tokens = [t for t in head.choose(hidden, [Draw(0.0, "")] * 21) if t is not None]
        whole = head.logprobs(hidden, tokens, [i % 4 for i in range(21)])
        monkeypatch.setattr("engine.model.head._ROWS", 8)
        monkeypatch.setattr("engine.model.head._EXACT_ROWS", 3)
        seen = counted(monkeypatch, head, "logits")
        exact = counted(monkeypatch, torch, "log_softmax")
        told = head.logprobs(hidden, tokens, [i % 4 for i in range(21)])
        head._native = None  # as on a machine without the native kernels
        head._linear = Linear(head._weight)
        assert head.choose(hidden, [Draw(0.0, "")] * 21) == tokens
    assert max(seen) <= 8
    assert exact == [3, 3, 2, 3, 3, 2, 3, 2]
    for one, other in zip(told, whole, strict=True):
        assert one.own == pytest.approx(other.own, abs=1e-5)
        assert [i for i, _ in one.top] == [i for i, _ in other.top]


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


def test_logits_are_those_of_the_heads_weight_in_float32(model, monkeypatch):
    monkeypatch.setattr("engine.model.head._WEIGHT_ROWS", 200)  # several parts, the last smaller
    head = OutputHead(model)
    head._native = None  # as on a machine without the native kernels
    with torch.inference_mode():
        hidden = torch.randn(5, model.config.hidden, generator=torch.Generator().manual_seed(3))
        expected = hidden @ model.weights["lm_head.weight"].float().t()
        assert torch.allclose(head.logits(hidden), expected, atol=1e-4)


def test_penalised_greedy_rows_choose_as_transformers_processors_do(model):
    """Repetition over prompt and output; the others by their formula, after it."""
    from transformers import RepetitionPenaltyLogitsProcessor

    head = OutputHead(model)
    prompt, output = (3, 9, 9, 40), (7, 9, 7)
    shapings = [
        Shaping(repetition_penalty=1.7),
        Shaping(repetition_penalty=0.6),
        Shaping(presence_penalty=1.5, frequency_penalty=0.5, repetition_penalty=1.2),
        Shaping(frequency_penalty=-2.0),
    ]
    with torch.inference_mode():
        hidden = torch.randn(5, model.config.hidden, generator=torch.Generator().manual_seed(6))
        expected = head.logits(hidden)
        for row, shaping in enumerate(shapings):
            repeat = RepetitionPenaltyLogitsProcessor(shaping.repetition_penalty)
            expected[row] = repeat(torch.tensor([[*prompt, *output]]), expected[row : row + 1])[0]
            for token, n in ((7, 2), (9, 1)):
                expected[row, token] -= shaping.frequency_penalty * n + shaping.presence_penalty
        bends = [Bend(f"r{i}", 3, s, History(prompt, output)) for i, s in enumerate(shapings)]
        chosen = head.choose(hidden, [Draw(0.0, "")] * 5, [*bends, None])
        assert chosen == expected.argmax(-1).tolist()


def test_whole_logits_are_made_for_the_rows_that_ask_and_no_others(model, monkeypatch):
    made = []
    logits = OutputHead.logits

    def counting(self, hidden, out=None):
        made.append(len(hidden))
        return logits(self, hidden, out)

    monkeypatch.setattr(OutputHead, "logits", counting)
    head = OutputHead(model)
    with torch.inference_mode():
        hidden = torch.randn(8, model.config.hidden, generator=torch.Generator().manual_seed(7))
        head.choose(hidden, [Draw(0.0, "")] * 8)
        assert made == []
        hot = [Draw(1.0, "k", 0.9) if i in (2, 5) else Draw(0.0, "") for i in range(8)]
        bends: list[Bend | None] = [None] * 8
        bends[7] = Bend("r", 0, Shaping(logit_bias=((1, 1.0),)), None)
        head.choose(hidden, hot, bends)
        assert made == [3]


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-6, 1e-4])
def test_a_temperature_next_to_nothing_is_greedy(temperature):
    runner = TorchRunner(synthetic_model(synthetic_config()), 40, 16)
    plan = [
        Segment(f"r{i}", "t", None, (9 + i,), 0, (i,), True, False, temperature=t, top_p=0.9)
        for i, t in ((0, 0.0), (1, 0.0), (0, temperature), (1, temperature))
    ]
    greedy = runner.execute(StepPlan(1, tuple(plan[:2]))).tokens
    assert runner.execute(StepPlan(2, tuple(plan[2:]))).tokens == greedy


def test_a_bias_can_forbid_and_force_a_greedy_choice_and_moves_nobody_else(model):
    runner = TorchRunner(model, 40, 16)

    def tokens(*shapings):
        segments = [
            Segment(f"r{i}", "t", None, (9,), 0, (i,), True, False, shaping=s)
            for i, s in enumerate(shapings)
        ]
        return list(runner.execute(StepPlan(1, tuple(segments))).tokens.values())

    (usual,) = tokens(Shaping())
    forced, kept, other = tokens(
        Shaping(logit_bias=((42, 100.0),)), Shaping(), Shaping(logit_bias=((usual, -100.0),))
    )
    assert (forced, kept) == (42, usual)
    assert other != usual


def test_batch_mates_of_any_kind_change_no_token_in_float32():
    """Greedy, penalised, biased, narrowed and free rows: each alone, then in random batches."""
    runner = TorchRunner(synthetic_model(synthetic_config()), 64, 16)
    kinds = [
        {},
        {"shaping": Shaping(repetition_penalty=1.4), "history": History((9, 8), (5,))},
        {"temperature": 1.1, "seed": 3},
        {"temperature": 0.9, "shaping": Shaping(top_k=9, logit_bias=((3, 4.0),)), "top_p": 0.8},
        {
            "temperature": 1.4,
            "shaping": Shaping(min_p=0.02, presence_penalty=1.0),
            "history": History((9,), (5, 5)),
        },
        {"temperature": 0.8, "top_p": 0.9},
    ]

    def segment(i):
        kind = kinds[i % len(kinds)]
        sampled = len(kind["history"].output) if "history" in kind else 0
        place = (f"r{i}", "t", None, (9 + i,), 0, (i,))
        return Segment(*place, samples=True, is_prefill=False, sampled=sampled, **kind)

    alone = {}
    for i in range(24):
        alone |= runner.execute(StepPlan(i, (segment(i),))).tokens
    dice = random.Random(3)
    for step in range(12):
        some = dice.sample(range(24), dice.randint(2, 24))
        told = runner.execute(StepPlan(step, tuple(segment(i) for i in some))).tokens
        assert told == {f"r{i}": alone[f"r{i}"] for i in some}
