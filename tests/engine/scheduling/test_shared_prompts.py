"""Several answers to one prompt: its tokens count once, whoever of them computes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from engine.scheduling.endings import Ending
from engine.scheduling.policies.counters import WP, WQ
from tests.engine.worlds import make_pool

PROMPT, OUT = 100, 5


def run(
    choices: int, prefix_cache: bool, abort_at: float | None = None, prompt: int = PROMPT
) -> tuple[dict[str, Ending], object, float]:
    """The first of `choices` is aborted at `abort_at`; returns endings, the row, the counter."""
    p = make_pool(("a",), prefix_cache=prefix_cache)
    ends: dict[str, Ending] = {}
    first = "a-0"
    for i in range(choices):
        p.ask(0.0, "a", prompt, OUT, counted_with=first if i else None)
    if abort_at is not None:
        p.world.at(abort_at, lambda: p.core.abort(first))
    step = p.core.step

    def stepped(until=None):
        result = step(until)
        ends.update({e.request_id: e for e in result.ended})
        return result

    p.core.step = stepped
    p.run()
    (row,) = p.tenants()
    return ends, row, p.core.scheduler.counters.value("a")


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_the_prompt_of_four_answers_is_charged_once_and_the_rest_is_work_done_again(prefix_cache):
    ends, row, counter = run(4, prefix_cache)
    assert row.prompt_tokens + (row.cached_tokens or 0) == PROMPT
    assert row.output_tokens == 4 * OUT
    assert row.service == WP * PROMPT + WQ * 4 * OUT
    assert counter == row.service
    assert sum(e.computed_tokens for e in ends.values()) == PROMPT


@how(max_examples=25, deadline=None)
@given(st.floats(0.0001, 0.2), st.booleans(), st.integers(2, 4))
def test_whenever_the_first_is_given_up_the_others_prompt_is_charged_to_one_of_them(
    at, prefix_cache, choices
):
    ends, row, counter = run(choices, prefix_cache, at)
    assert sum(e.computed_tokens for e in ends.values()) == PROMPT
    made = sum(e.output_tokens for e in ends.values())
    assert counter == pytest.approx(WP * PROMPT + WQ * made)
    assert made == row.output_tokens
    assert row.prompt_tokens + (row.cached_tokens or 0) <= PROMPT


def test_an_answer_whose_first_is_over_counts_its_own_prompt():
    p = make_pool(("a",), prefix_cache=False)
    p.ask(0.0, "a", PROMPT, OUT)
    p.ask(50.0, "a", PROMPT, OUT, counted_with="a-0")
    p.run()
    assert sum(row.prompt_tokens or 0 for row in p.tenants()) == 2 * PROMPT
