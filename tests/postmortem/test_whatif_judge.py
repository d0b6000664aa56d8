"""Who is restored, and which remedy is the cheapest."""

from __future__ import annotations

from postmortem.whatif.judge import Bar, cheapest, restores, spread_of
from postmortem.whatif.model import (
    POOL,
    REVERT,
    SETTING,
    Remedy,
    Tried,
)
from tests.postmortem.whatif_values import numbers, outcome

BARS = (Bar("y", 0.05, None),)


def test_a_victim_is_restored_by_being_served_not_by_being_refused():
    base = outcome(numbers(missed=40))
    assert restores(outcome(numbers(missed=5)), BARS, base, ("x",))
    assert not restores(outcome(numbers(missed=6)), BARS, base, ("x",))
    assert not restores(outcome(numbers(missed=0, refused=1)), BARS, base, ("x",))


def test_a_remedy_that_moves_the_pain_to_others_restores_nobody():
    base = outcome(numbers(missed=40))
    assert not restores(outcome(numbers(), others_missed=20), BARS, base, ("x",))


def test_where_no_victim_can_be_judged_nothing_is_restored():
    assert not restores(outcome(numbers()), (Bar("y", None, None),), outcome(numbers()), ())


def tried(name: str, rank: int, refused: int = 0, restored: bool = True, problem=None) -> Tried:
    out = outcome(numbers(refused=refused))
    remedy = Remedy(name, rank, "", ())
    spread = spread_of([out], ("y",))
    return Tried(remedy, "kept", out, spread, restored, None, problem, "", None)


def test_the_cheapest_is_by_rank_then_by_whom_it_refuses():
    best = cheapest(
        [
            tried("pool", POOL),
            tried("cap", SETTING, refused=9),
            tried("vtc", SETTING),
            tried("revert", REVERT, restored=False),
            tried("rpm", REVERT, problem="made up"),
        ]
    )
    assert best is not None
    assert best.remedy.name == "vtc"
    assert cheapest([tried("a", SETTING, restored=False)]) is None
