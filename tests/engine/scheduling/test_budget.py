"""A step's budget: tokens, adapters and, while somebody decodes, seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.costs import CostModel
from engine.scheduling.budget import StepBudget

COSTS = CostModel(0.01, 2e-4, 5e-4, 1e-8, 1e-3)
LEAST = 16


def spent(costs: CostModel, chunks: list[tuple[int, int]], new: int) -> float:
    tokens = sum(n for n, _ in chunks)
    context = sum(n * start + n * (n + 1) // 2 for n, start in chunks)
    return costs.totals(tokens, 0, context, new) - costs.base_s


@given(
    st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 120_000)), min_size=1, max_size=8),
    st.floats(-0.05, 0.5),
    st.sampled_from([COSTS, CostModel(0.01, 0.0, 0.0, 1e-7, 0.0), CostModel(0.0, 1e-3, 0, 0, 0)]),
)
def test_the_seconds_of_a_step_hold_against_any_number_of_deep_prompts(prompts, seconds, costs):
    budget = StepBudget(8192, 16, {}, seconds, costs, LEAST)
    chunks, adapters = [], set()
    for i, (left, start) in enumerate(prompts):
        adapter = f"a{i % 3}"
        if not budget.allows(adapter):
            continue
        count = budget.chunk(left, start, adapter)
        if count:
            chunks.append((count, start))
            adapters.add(adapter)
    assert chunks, "prefill goes on whatever the batch takes"
    took = spent(costs, chunks, len(adapters))
    least = spent(costs, [(min(LEAST, chunks[0][0]), chunks[0][1])], 1)
    assert took <= max(seconds, least) * (1 + 1e-9)


@given(st.integers(1, 4000), st.integers(0, 100_000), st.floats(0.01, 0.5))
def test_no_token_is_left_that_would_still_have_fitted(left, start, seconds):
    budget = StepBudget(2048, 16, {}, seconds, COSTS, LEAST)
    count = budget.chunk(left, start, None)
    if count < min(left, 2048):
        assert spent(COSTS, [(count + 1, start)], 0) > seconds


def test_without_a_bound_in_seconds_only_tokens_and_adapters_count():
    budget = StepBudget(100, 1, {"there": 1}, None, COSTS, LEAST)
    assert budget.chunk(60, 0, "new") == 60
    assert not budget.allows("another")
    assert budget.allows("new")
    assert budget.allows("there")
    assert budget.allows(None)
    assert budget.chunk(60, 0, "there") == 40
    assert not budget.allows(None)
