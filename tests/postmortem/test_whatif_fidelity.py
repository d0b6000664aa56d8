"""When a replay of what happened is true enough to conclude from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postmortem.whatif.fidelity import compare, may_be_chance, unclaimed
from tests.postmortem.whatif_values import numbers, outcome


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_fidelity_holds_within_a_quarter_and_not_beyond(was: float, now: float):
    found = compare(outcome(numbers(p50=was)), outcome(numbers(p50=now)), ("y",))
    off = abs(now - was) / was
    if off < 0.249:
        assert found.holds
    if off > 0.251:
        assert not found.holds


@pytest.mark.parametrize("victims", [2, 40])
def test_one_victim_that_is_off_breaks_fidelity_among_however_many(victims):
    names = [f"v{i}" for i in range(victims)]
    was = outcome(*(numbers(n) for n in names))
    now = outcome(*(numbers(n, p50=0.4 if n == "v1" else 0.2) for n in names))
    assert not compare(was, now, names).holds
    assert compare(was, was, names).holds


NAMES = [f"v{i}" for i in range(40)]
TRUE = outcome(*(numbers(n) for n in NAMES))


def moved(*p99s: float, p50: float = 0.2):
    """The first victims at these p99s, all others as they were."""
    made = [numbers(n, p50=p50, p99=p) for n, p in zip(NAMES, p99s, strict=False)]
    whole = outcome(*made, *(numbers(n) for n in NAMES[len(p99s) :]))
    return replace(whole, hurt=TRUE.hurt)


def test_of_many_as_many_may_be_off_as_chance_makes_and_nothing_is_claimed_of_them():
    found = compare(TRUE, moved(1.5, 0.6, 1.5), NAMES, moved(1.0, 1.0, 1.4, 1.4))
    assert found.holds
    assert found.off == ("v0", "v1", "v2")
    assert found.by_chance == 3
    assert "of 3 of the 40 victims" in (unclaimed(found) or "")


def test_more_than_chance_makes_is_a_false_replay_however_right_those_hurt_are_together():
    found = compare(TRUE, moved(*[1.4] * 12), NAMES, moved(*[1.4] * 9, 1.0, 1.0, 1.0))
    assert not found.holds
    assert found.off == ()
    assert "12 of 40 victims" in (found.problem or "")


def test_most_victims_must_be_as_they_were_whatever_chance_does():
    everybody = moved(*[1.0] * 20, *[1.4] * 20)  # moved between the two replays
    found = compare(TRUE, moved(*[1.4] * 21), NAMES, everybody)
    assert not found.holds
    assert "21 of 40 victims" in (found.problem or "")
    assert compare(TRUE, moved(*[1.4] * 20), NAMES, everybody).holds


def test_where_chance_moves_nobody_nobody_may_be_off():
    assert not compare(TRUE, moved(1.3), NAMES, moved(1.3)).holds


def test_a_median_twice_what_it_was_is_no_chance():
    chance = moved(*[1.4] * 5)
    assert compare(TRUE, moved(1.0, p50=0.3), NAMES, chance).holds
    assert not compare(TRUE, moved(1.0, p50=0.4), NAMES, chance).holds


def test_a_second_replay_is_asked_for_only_where_it_could_tell():
    assert may_be_chance(compare(TRUE, moved(2.0), NAMES))
    assert not may_be_chance(compare(TRUE, moved(2.0), NAMES[:19]))
    together = replace(TRUE, hurt=replace(TRUE.hurt, ttft_p99_s=2.0))
    assert not may_be_chance(compare(TRUE, together, NAMES))


@settings(max_examples=10)
@given(st.lists(st.floats(0.5, 2.0), min_size=20, max_size=40), st.data())
def test_whatever_chance_says_a_replay_that_is_off_together_is_false(p99s, data):
    again = moved(*data.draw(st.lists(st.floats(0.5, 2.0), min_size=20, max_size=40)))
    made = moved(*p99s)
    far = replace(made, hurt=replace(made.hurt, ttft_p50_s=0.26))
    assert not compare(TRUE, far, NAMES, again).holds


def test_those_hurt_together_must_be_right_whoever_else_is():
    names = [f"v{i}" for i in range(40)]
    was = outcome(*(numbers(n) for n in names))
    now = replace(was, hurt=replace(was.hurt, ttft_p99_s=2.0))
    problem = compare(was, now, names).problem
    assert problem is not None
    assert "of those hurt" in problem


def test_made_up_requests_beyond_a_tenth_break_fidelity():
    was = outcome(numbers())
    assert compare(was, outcome(numbers(), imputed=0.10), ("y",)).holds
    assert not compare(was, outcome(numbers(), imputed=0.11), ("y",)).holds


def test_too_few_requests_are_no_proof():
    few = numbers(n=5, p50=None, p99=None)
    found = compare(outcome(few), outcome(few), ("y",))
    assert found.problem is not None
    assert "5 requests" in found.problem
