"""Where a request goes: to the least loaded, or to its adapter's home unless far busier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.placement import AFFINITY_SLACK, AFFINITY_TOKENS, Load, place

LOADS = st.lists(st.builds(Load, st.integers(0, 10**6), st.booleans()), max_size=8)


def loads(*tokens: int) -> list[Load]:
    return [Load(t) for t in tokens]


def test_the_least_loaded_is_taken_and_ties_go_to_the_smaller_number():
    assert place(loads(5, 3, 9)) == 1
    assert place(loads(4, 4, 4)) == 0


def test_the_adapters_home_is_kept_while_it_is_little_busier():
    assert place(loads(0, AFFINITY_TOKENS), home=1) == 1
    assert place(loads(0, AFFINITY_TOKENS + 1), home=1) == 0


def test_the_slack_grows_with_the_load():
    mean = 10**6
    assert place(loads(mean, mean + int(AFFINITY_SLACK * mean)), home=1) == 1
    assert place(loads(0, 2 * mean), home=1) == 0


@pytest.mark.parametrize("home", [None, 0, 1, 7])
def test_a_replica_that_is_away_is_not_taken(home):
    assert place([Load(0, up=False), Load(50)], home) == 1
    assert place([Load(0, up=False)], home) is None
    assert place([], home) is None


@given(LOADS, st.none() | st.integers(0, 9))
def test_whoever_is_taken_answers_and_is_never_far_busier_than_the_least(some, home):
    taken = place(some, home)
    up = [load.tokens for load in some if load.up]
    if not up:
        assert taken is None
        return
    assert some[taken].up
    slack = max(AFFINITY_TOKENS, AFFINITY_SLACK * sum(up) / len(up))
    assert some[taken].tokens <= min(up) + (slack if taken == home else 0)
