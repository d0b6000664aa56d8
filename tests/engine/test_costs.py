"""The cost model."""

from __future__ import annotations

import random

import pytest

from engine.config import Limits
from engine.costs import CostModel, StepFeatures, Trim, fit
from engine.scheduling.plan import Segment, StepPlan
from engine.warmup import calibrate, plan_of, shapes

TRUE = CostModel(0.012, 0.0003, 0.0008, 2e-7, 0.0015)


def samples(model, noise=0.0, seed=0):
    rng = random.Random(seed)
    out = []
    for _ in range(60):
        f = StepFeatures(
            rng.choice([0, 32, 128, 256]), rng.randrange(33), rng.randrange(20000), rng.randrange(9)
        )
        out.append((f, model.predict(f) * (1 + rng.uniform(-noise, noise))))
    return out


def test_a_fit_finds_the_coefficients_it_was_made_from():
    got = fit(samples(TRUE))
    for name in ("base_s", "prefill_token_s", "decode_row_s", "context_token_s", "adapter_s"):
        assert getattr(got, name) == pytest.approx(getattr(TRUE, name), rel=1e-6)


def test_no_coefficient_is_ever_negative():
    got = fit(samples(CostModel(0.02, 1e-6, 0.0, 0.0, 0.0), noise=0.5))
    assert min(
        got.base_s, got.prefill_token_s, got.decode_row_s, got.context_token_s, got.adapter_s
    ) >= 0  # fmt: skip


def test_the_parts_of_a_step_sum_to_its_prediction():
    def seg(name, tenant, adapter, n, start, prefill):
        return Segment(name, tenant, adapter, (1,) * n, start, (0,), True, prefill)

    plan = StepPlan(
        1,
        (
            seg("1", "a", "x", 1, 50, False),
            seg("2", "b", "x", 1, 70, False),
            seg("3", "b", "y", 30, 10, True),
        ),
    )
    cost = TRUE.of(plan)
    parts = sum(cost.prefill_s.values()) + sum(cost.decode_s.values())
    assert cost.predicted_s == pytest.approx(cost.base_s + parts)
    features = StepFeatures(plan.prefill_tokens, plan.decode_rows, plan.context_tokens, 2)
    assert cost.predicted_s == pytest.approx(TRUE.predict(features))
    assert cost.own_prefill_s == {"3": pytest.approx(cost.prefill_s["b"])}


@pytest.mark.parametrize("pages", [2, 40, 4000])
def test_warm_up_shapes_fit_the_pool_and_give_a_model(pages):
    limits = Limits(slots=8, step_tokens=128, max_context=2048)
    for number, shape in enumerate(shapes(limits, 3, pages)):
        plan = plan_of(shape, number, limits, ["x", "y", "z"], pages)
        pages_used = [p for s in plan.segments for p in s.pages]
        assert len(set(pages_used)) == len(pages_used)
        assert all(len(s.pages) * 16 >= s.start + len(s.tokens) for s in plan.segments)


def test_calibration_runs_the_shapes_and_returns_a_model():
    class Runner:
        def __init__(self):
            self.plans = []

        def execute(self, plan):
            self.plans.append(plan)

    runner, said = Runner(), []
    model = calibrate(runner, Limits(slots=4, step_tokens=64), [], 1000, said.append)
    assert model.predict(StepFeatures(10, 1, 100, 0)) > 0
    assert len(said) * 4 == len(runner.plans)


def test_the_scale_is_fitted_to_the_first_served_steps_and_one_hang_does_not_set_it():
    trim, model, factors = Trim(), TRUE, []
    features = StepFeatures(10, 3, 500, 2)
    for i in range(Trim.ROUNDS[-1] + 50):
        true = (1.4 if i < 64 else 1.8) * TRUE.predict(features)
        factor = trim.offer(30.0 if i == 7 else true, model.predict(features))
        if factor is not None:
            factors.append((i + 1, factor))
            model = model.scaled(factor)
    assert [i for i, _ in factors] == list(Trim.ROUNDS)
    assert factors[0][1] == pytest.approx(1.4)
    assert factors[0][1] * factors[1][1] == pytest.approx(1.8)
    assert model.predict(features) == pytest.approx(1.8 * TRUE.predict(features))
    assert model.version == TRUE.version + 2
