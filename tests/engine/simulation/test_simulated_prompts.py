"""Simulated prompts: shared exactly where their blocks say so, however they are read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.simulation.blocks import BLOCK_TOKENS, prompt_of
from engine.simulation.workload import Arrival


def prompt(tokens: int, prefix: tuple[int, ...] | None, number: int = 1):
    return prompt_of(Arrival(0.0, "t", None, tokens, 1, 0, prefix), number)


@given(
    tokens=st.integers(1, 3 * BLOCK_TOKENS),
    blocks=st.lists(st.integers(0, 50), max_size=5),
    start=st.integers(-2000, 2000),
    stop=st.none() | st.integers(-2000, 2000),
)
def test_a_slice_is_what_its_tokens_are_one_by_one(tokens, blocks, start, stop):
    whole = prompt(tokens, tuple(blocks))
    places = range(*slice(start, stop).indices(tokens))
    assert whole[start:stop] == tuple(whole[i] for i in places)
    assert whole[start:stop:3] == tuple(whole[i] for i in places[::3])


def test_two_prompts_share_their_blocks_and_nothing_else():
    a, b = prompt(1200, (7, 8), 1), prompt(1200, (7, 8), 2)
    assert a[: 2 * BLOCK_TOKENS] == b[: 2 * BLOCK_TOKENS]
    assert not set(a[2 * BLOCK_TOKENS :]) & set(b[2 * BLOCK_TOKENS :])
