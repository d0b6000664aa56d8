"""Draws follow the distribution that was asked for, repeat, and do not know their batch mates."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.sampling import Draw, Sampler, likeliest
from engine.scheduling.shaping import Shaping


def drawn(row: torch.Tensor, like: Draw, count: int) -> torch.Tensor:
    """How often each token came, of `count` draws that differ in their index."""
    rows = row.float().expand(count, -1).contiguous()
    draws = [
        Draw.of("r", like.temperature, 11, i, like.top_p, Shaping(like.top_k, like.min_p))
        for i in range(count)
    ]
    return torch.tensor(Sampler().draw(rows, draws)).bincount(minlength=len(row))


def wanted(row: torch.Tensor, like: Draw) -> torch.Tensor:
    """The distribution, the slow way: min_p, then top_k, then top_p, one token after the other."""
    chances = torch.softmax(row.double() / like.temperature, -1).tolist()
    best = max(chances)
    order = sorted(range(len(chances)), key=lambda i: (-chances[i], i))
    order = [i for i in order if chances[i] >= like.min_p * best]
    order = order[: like.top_k] if like.top_k else order
    whole, before, kept = sum(chances[i] for i in order), 0.0, {}
    for i in order:
        if before >= like.top_p * whole:
            break
        kept[i] = chances[i]
        before += chances[i]
    return torch.tensor([kept.get(i, 0.0) / before for i in range(len(chances))])


def worst(seen: torch.Tensor, chances: torch.Tensor) -> float:
    """Chi-square over the tokens that are expected five times at least, in standard deviations."""
    expected = chances.double() * float(seen.sum())
    often = expected > 5
    chi = float((((seen - expected) ** 2) / expected)[often].sum())
    degrees = max(1, int(often.sum()) - 1)
    return (chi - degrees) / math.sqrt(2 * degrees)


@pytest.mark.parametrize(
    "like",
    [
        Draw(1.0, ""),
        Draw(0.7, ""),
        Draw(1.3, "", top_p=0.5),
        Draw(1.0, "", top_p=0.93),
        Draw(1.0, "", top_k=7),
        Draw(0.8, "", top_p=0.9, top_k=20),
        Draw(1.5, "", min_p=0.07),
        Draw(1.5, "", top_p=0.9, top_k=30, min_p=0.02),
    ],
    ids=lambda d: f"t{d.temperature} p{d.top_p} k{d.top_k} m{d.min_p}",
)
def test_draws_follow_the_distribution_and_nothing_outside_it_comes(like: Draw) -> None:
    row = torch.randn(700, generator=torch.Generator().manual_seed(5)) * 2.5
    row[100:104] = row.max() - 1.0  # equally likely ones
    chances = wanted(row, like)
    seen = drawn(row, like, 2500)
    assert int(seen[chances == 0].sum()) == 0
    assert worst(seen, chances) < 4.0


@pytest.mark.parametrize("temperature", [1e-8, 1e-3])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    assert drawn(torch.tensor([1.0, 30.0, 29.0]), Draw(temperature, ""), 50).tolist() == [0, 50, 0]


@pytest.mark.parametrize(("top_p", "kept"), [(0.0, 1), (0.6, 1), (0.7, 2), (0.94, 3), (1.0, 4)])
def test_a_nucleus_holds_the_fewest_likeliest_tokens_that_reach_top_p(
    top_p: float, kept: int
) -> None:
    logits = torch.log(torch.tensor([0.05, 0.65, 0.1, 0.2]))
    seen = drawn(logits, Draw(1.0, "", max(top_p, 1e-9)), 600)
    assert set(seen.nonzero()[:, 0].tolist()) == set([1, 3, 2, 0][:kept])


@pytest.mark.parametrize("most", [1, 3, 40, 300])
@pytest.mark.parametrize("vocab", [300, 513, 4097, 49_152])
def test_the_likeliest_are_those_of_a_whole_sort_equal_ones_by_id(most: int, vocab: int) -> None:
    rows = torch.randn(3, vocab, generator=torch.Generator().manual_seed(vocab))
    rows[0, [5, 200, 299]] = 9.0
    values, ids = likeliest(rows, most)
    sorted_values, sorted_ids = rows.sort(stable=True, dim=-1, descending=True)
    assert torch.equal(values, sorted_values[:, :most])
    assert torch.equal(ids, sorted_ids[:, :most])


one_draw = st.builds(
    Draw,
    st.sampled_from([0.3, 1.0, 1.7]),
    st.text(max_size=3),
    st.sampled_from([1e-9, 0.4, 0.95, 1.0]),
    st.sampled_from([0, 1, 5, 600, 5000]),
    st.sampled_from([0.0, 0.05, 1.0]),
)


@settings(max_examples=30)
@given(st.lists(one_draw, min_size=1, max_size=9), st.integers(0, 99), st.sampled_from([97, 1300]))
def test_batch_mates_never_change_a_draw(draws: list[Draw], seed: int, vocab: int) -> None:
    rows = torch.randn(len(draws), vocab, generator=torch.Generator().manual_seed(seed)) * 3
    alone = [Sampler().draw(r[None].clone(), [d])[0] for r, d in zip(rows, draws, strict=True)]
    sampler = Sampler()  # its buffers are those of the step before
    assert sampler.draw(rows.clone(), draws) == alone
    assert sampler.draw(rows[:1].clone(), draws[:1]) == alone[:1]
    for row, d, token in zip(rows, draws, alone, strict=True):
        assert float(wanted(row, d)[token]) > 0 or near_a_bar(row, d)


def near_a_bar(row: torch.Tensor, d: Draw) -> bool:
    """A cut may fall between two tokens either way, where it is a rounding error from them."""
    return any(
        not torch.equal(
            wanted(row, d) > 0,
            wanted(row, Draw(d.temperature, "", d.top_p * by, d.top_k, d.min_p * by)) > 0,
        )
        for by in (1 - 1e-5, 1 + 1e-5)
    )


def test_a_row_that_is_not_finite_spoils_no_other() -> None:
    rows = torch.randn(3, 1000, generator=torch.Generator().manual_seed(2))
    draws = [Draw(1.0, str(i), 0.9) for i in range(3)]
    whole = Sampler().draw(rows.clone(), draws)
    rows[1, 7] = float("nan")
    spoiled = Sampler().draw(rows, draws)
    assert (spoiled[0], spoiled[2]) == (whole[0], whole[2])


def test_a_key_of_any_text_gives_numbers_in_reach() -> None:
    numbers = [Draw(1.0, "half a pair \ud800").uniform(i) for i in range(100)]
    assert len(set(numbers)) == 100
    assert all(0 <= n < 1 for n in numbers)
