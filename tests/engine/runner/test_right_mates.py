"""Whoever computes beside a greedy float32 request never changes its answer."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_engine import TENANTS, Engine, Wanted, check_mode, kernels
from oracle_grid import prompts
from oracle_judge import MARGIN

pytestmark = pytest.mark.xdist_group("right")

PAGE_TOKENS = 8
NAMES = ("rank-1", "rank-8", "rank-33", "rank-64")
PROBES = [
    Wanted("probe", "a", adapter, prompt, 12)
    for adapter, prompt in zip(
        (None, "rank-1", "rank-33", "rank-64"), prompts(4, 7, PAGE_TOKENS), strict=True
    )
]

mates = st.lists(
    st.builds(
        Wanted,
        name=st.just(""),
        tenant=st.sampled_from(TENANTS),
        adapter=st.sampled_from((None, *NAMES)),
        prompt=st.lists(st.integers(1, 511), min_size=1, max_size=70).map(tuple),
        tokens=st.integers(1, 16),
        told=st.just(False),
    ),
    max_size=9,
)


def named(wanted: Wanted, number: int) -> Wanted:
    return Wanted(f"r{number}", *[getattr(wanted, f) for f in Wanted.__slots__[1:]])


@pytest.fixture(scope="module", params=["torch", "native"])
def served(request, tied):
    """An engine, and what each probe gets when it is alone on another one."""
    adapters = {name: tied.adapters[int(name.removeprefix("rank-"))] for name in NAMES}
    options = {"pages": 260, "page_tokens": PAGE_TOKENS, "by_steps": True}
    with kernels(request.param):
        with Engine(tied.loaded, adapters, **options) as quiet:
            alone = {p.adapter: quiet.serve([p])[0] for p in PROBES}
        with Engine(tied.loaded, adapters, **options) as busy:
            check_mode(busy, request.param)
            yield busy, alone, itertools.count()


def test_a_probe_alone_is_nowhere_tied(served):
    """Else what follows would ask for more than rounding allows."""
    _, alone, _ = served
    for answer in alone.values():
        best, second = torch.stack([*answer.logits.values()]).topk(2).values.T
        assert float((best - second).min()) > MARGIN


def answers_stay(served, probe: Wanted, beside: list[Wanted], place: int) -> None:
    engine, alone, numbers = served
    mine = named(probe, next(numbers))
    wanted = [named(m, next(numbers)) for m in beside]
    wanted.insert(min(place, len(wanted)), mine)
    found = {a.name: a for a in engine.serve(wanted)}[mine.name]
    assert found.output == alone[probe.adapter].output
    for i, own in found.logits.items():
        assert torch.allclose(own, alone[probe.adapter].logits[i], rtol=0, atol=1e-4)


@settings(max_examples=6)
@given(st.sampled_from(PROBES), mates, st.integers(0, 9))
def test_random_mates_never_change_a_greedy_answer(served, probe, beside, place):
    answers_stay(served, probe, beside, place)


@pytest.mark.full
@settings(max_examples=250)
@given(st.sampled_from(PROBES), mates, st.integers(0, 9))
def test_many_random_mates_never_change_a_greedy_answer(served, probe, beside, place):
    answers_stay(served, probe, beside, place)
