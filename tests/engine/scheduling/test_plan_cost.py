"""What a plan says of itself against what its segments say, in a pool where everything happens."""

from __future__ import annotations

import random

import pytest

from engine.costs import CostModel
from engine.scheduling.plan import StepOutcome, StepPlan
from engine.simulation.world import CostRunner
from tests.engine.worlds import COSTS, make_pool


class Checking(CostRunner):
    """Takes every plan apart before it executes it."""

    def look(self, scheduler) -> None:
        self.scheduler = scheduler
        self.seen = {"mixed": 0, "shared": 0, "recompute": 0}

    def execute(self, plan):
        again = StepPlan(plan.step, plan.segments)
        for total in ("prefill_tokens", "decode_rows", "context_tokens", "adapter_count"):
            assert getattr(plan, total) == getattr(again, total), total
        told, cost = self.scheduler._step_cost, COSTS.of(again)
        assert told.predicted_s == pytest.approx(cost.predicted_s, rel=1e-12)
        assert told.prefill_s == pytest.approx(cost.prefill_s, rel=1e-12)
        index = {}
        for request in self.scheduler._running.sequences.values():
            index[request.tenant] = request.index
        decode = {t: told.decode_s[i] for t, i in index.items() if told.decode_s[i] > 1e-15}
        assert decode == pytest.approx(cost.decode_s, rel=1e-9)
        assert told.decode_s.sum() == pytest.approx(sum(cost.decode_s.values()), rel=1e-9)
        for s in again.segments:
            assert len(s.pages) * 16 >= s.start + len(s.tokens)
        self.seen["mixed"] += bool(plan.prefill_tokens and plan.decode_rows)
        users: dict[str, set[str]] = {}
        for s in again.segments:
            users.setdefault(s.adapter or "", set()).add(s.tenant)
        self.seen["shared"] += any(len(t) > 1 for a, t in users.items() if a)
        self.seen["recompute"] += any(s.is_prefill and s.sampled for s in again.segments)
        super().execute(plan)
        return StepOutcome({s.request_id: 7 for s in again.segments if s.samples}, {})


@pytest.mark.parametrize("policy", ["vtc", "fcfs"])
@pytest.mark.parametrize("limits", [{}, {"slots": 12, "step_tokens": 8, "adapters_per_step": 2}])
def test_totals_and_costs_of_a_plan_are_those_of_its_segments(policy, limits):
    runner = Checking.__new__(Checking)
    pool = make_pool(
        ("a", "b", "c"),
        policy=policy,
        pages=26,
        adapters={"x": 3, "y": 2, "z": 4},
        runner=runner,
        **limits,
    )
    Checking.__init__(runner, pool.world, COSTS)
    runner.look(pool.core.scheduler)
    rng = random.Random(7)
    for _ in range(120):
        pool.ask(
            rng.uniform(0, 6),
            rng.choice("abc"),
            rng.randint(1, 150),
            rng.randint(1, 40),
            rng.choice([None, "x", "y", "z"]),
        )
    pool.world.every(0.01, 200.0, pool.core.scheduler.check_integrity)
    pool.run(until=190)
    assert not pool.core.scheduler.running
    assert not pool.core.scheduler.waiting
    assert runner.seen["mixed"]
    assert runner.seen["shared"]
    if not limits:
        assert runner.seen["recompute"]


def test_the_two_ways_to_predict_a_step_are_one():
    costs = CostModel(1.0, 2.0, 3.0, 4.0, 5.0)
    assert costs.totals(1, 1, 1, 1) == 15.0
