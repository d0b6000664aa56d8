"""Replays in this process or in a few others: order, what is run next, and processes that die."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from engine.config import PoolSpec, Tenant
from engine.simulation.hardware import PRESETS
from engine.simulation.setup import Setup, machine_of
from postmortem.whatif.arrivals import Offered
from postmortem.whatif.model import Outcome
from postmortem.whatif.replay import Job, Stretch
from postmortem.whatif.run import Refused, Replays

OFFERED = tuple(Offered(float(i), "a", None, 50, 5) for i in range(3))
STRETCHES = {"window": Stretch(OFFERED, 0.0, 3.0)}
SETUP = Setup("w", machine_of(PRESETS["a10g-llama2-7b"]), (PoolSpec("main"),), (Tenant("a"),))


class Bomb(str):
    """A name that ends whoever unpickles it."""

    def __reduce__(self):
        return os._exit, (9,)


def job(name: str = "any") -> Job:
    return Job(name, "window", SETUP, frozenset({"a"}), frozenset({"a"}))


def test_what_the_first_answer_asks_for_comes_next_and_its_answers_last():
    order: list[str] = []
    with Replays(STRETCHES, 1e12, hear=lambda t: order.append(t.under_way[0][0])) as replays:
        answers = replays.run([job("first"), job("last")], lambda first: (job("next"),))
    assert list(dict.fromkeys(order)) == ["first", "next", "last"]
    assert len(answers) == 3
    assert all(isinstance(a, Outcome) for a in answers)


def test_nothing_more_is_run_where_the_first_answer_proves_nothing():
    with Replays(STRETCHES, 1e12) as replays:
        first, second = replays.run([job(), job()], lambda first: None)
    assert isinstance(first, Outcome)
    assert second is None


@pytest.mark.full
def test_a_process_that_dies_costs_its_own_replay_and_no_other():
    before = set(multiprocessing.active_children())
    with Replays(STRETCHES, 1e12, processes=2) as replays:
        fine, dead, other = replays.run([job(), job(Bomb("dies")), job()])
        assert isinstance(fine, Outcome)
        assert isinstance(other, Outcome)
        assert isinstance(dead, Refused)
        assert "ended with code 9" in dead.why
        lost, never = replays.run([job(Bomb("dies too")), job()])
    assert isinstance(lost, Refused)
    assert never == Refused("no process is left to replay it")
    assert set(multiprocessing.active_children()) <= before
