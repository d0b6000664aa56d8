"""Penalties and biases move exactly the logits they should, however the counts were kept."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.penalties import Bend, Penalties, move
from engine.scheduling.shaping import History, Shaping

VOCAB = 12


def slowly(row: list[float], shaping: Shaping, history: History | None) -> list[float]:
    """One token after the other, by the formulas."""
    out = list(row)
    for token, by in shaping.logit_bias:
        out[token] += by
    if history is None:
        return out
    made = Counter(history.output)
    for token in {*history.prompt, *history.output}:
        r = shaping.repetition_penalty
        out[token] = out[token] / r if out[token] > 0 else out[token] * r
    for token, n in made.items():
        out[token] -= n * shaping.frequency_penalty + shaping.presence_penalty
    return out


tokens = st.lists(st.integers(0, VOCAB - 1), max_size=6)
shapings = st.builds(
    Shaping,
    presence_penalty=st.sampled_from([0.0, -1.5, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 2.0, -0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
    logit_bias=st.sampled_from([(), ((3, 2.0),), ((0, -100.0), (11, 0.5))]),
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(shapings, tokens, tokens, st.sets(st.integers(0, 5))), max_size=4),
    st.integers(0, 99),
)
def test_every_step_moves_logits_by_the_formulas_whoever_missed_steps(
    requests: list[tuple[Shaping, list[int], list[int], set[int]]], seed: int
) -> None:
    """Requests come token by token, miss some steps, and are in any company."""
    dice = torch.Generator().manual_seed(seed)
    penalties = Penalties()
    for step in range(6):
        bends: list[Bend | None] = [None]  # a row that asks for nothing
        for i, (shaping, prompt, output, missed) in enumerate(requests):
            if step in missed or step > len(output):
                continue
            history = History(tuple(prompt), tuple(output[:step])) if shaping.penalises else None
            bends.append(Bend(f"r{i}", step, shaping, history) if shaping.moves_logits else None)
        logits = torch.randn(len(bends), VOCAB, generator=dice)
        expected = [
            row if b is None else slowly(row, b.shaping, b.history)
            for row, b in zip(logits.tolist(), bends, strict=True)
        ]
        move(logits, penalties.counted(bends))
        assert torch.allclose(logits, torch.tensor(expected), atol=1e-5)


def test_counts_are_those_of_the_requests_of_the_last_step_only() -> None:
    penalties = Penalties()
    shaping = Shaping(presence_penalty=1.0)
    names = [f"r{i}" for i in range(50)]
    penalties.counted([Bend(n, 0, shaping, History((1,), ())) for n in names])
    penalties.counted([Bend("r7", 1, shaping, History((1,), (5,)))])
    assert list(penalties._known) == ["r7"]


def test_a_name_used_again_begins_from_nothing() -> None:
    penalties = Penalties()
    shaping = Shaping(frequency_penalty=1.0)
    for step in range(3):
        penalties.counted([Bend("r", step, shaping, History((), (4,) * step))])
    logits = torch.zeros(1, VOCAB)
    move(logits, penalties.counted([Bend("r", 0, shaping, History((), ()))]))
    assert not logits.any()


def test_more_tokens_than_were_made_room_for_are_all_counted() -> None:
    penalties, shaping = Penalties(), Shaping(presence_penalty=1.0)
    output = tuple(range(300))
    for step in range(301):
        moved = penalties.counted([Bend("r", step, shaping, History((), output[:step]))])
    logits = torch.zeros(1, 400)
    move(logits, moved)
    assert logits[0, :300].eq(-1.0).all()
    assert not logits[0, 300:].any()
