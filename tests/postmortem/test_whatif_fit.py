"""The cost model of a window, and what its run says of itself."""

from __future__ import annotations

import pytest

from engine.config import Tenant
from engine.costs import CostModel, StepFeatures
from postmortem.whatif.fit import fit_costs
from postmortem.whatif.model import (
    NoConclusion,
)
from postmortem.whatif.rebuild import settings_of
from telemetry.records import EngineRun, StepSample
from tests.postmortem.whatif_values import T0, TRUE


def samples(costs: CostModel, slow: dict[int, float] | None = None):
    out = []
    for i in range(200):
        f = StepFeatures(17 * (i % 5), 1 + i % 7, 40 * (1 + i % 11), i % 3)
        at = T0 + 3.0 * i
        factor = (slow or {}).get(int((at - T0) // 60), 1.0)
        p = costs.predict(f)
        out.append(
            StepSample(
                engine="e", run_id="r", pool="main", step=i, at=at, duration_s=p * factor,
                predicted_s=p, prefill_tokens=f.prefill_tokens, decode_rows=f.decode_rows,
                context_tokens=f.context_tokens, adapters=f.adapters, cost_version=1,
            )
        )  # fmt: skip
    return out


def test_the_fit_on_odd_buckets_is_right_on_the_even_ones():
    fitted = fit_costs(samples(TRUE), [], 60.0)
    assert fitted.error.p95 < 1e-6
    assert fitted.costs.prefill_token_s == pytest.approx(TRUE.prefill_token_s)
    assert fitted.paces == ()


def test_a_slow_bucket_is_replayed_as_slow_as_it_was_and_the_error_says_so():
    fitted = fit_costs(samples(TRUE, {4: 2.0}), [], 60.0)  # an even one: it was not fitted to
    assert fitted.paces == ((T0 + 240, 60.0, pytest.approx(2.0)),)
    assert fitted.error.p95 > 0.4


def test_a_machine_that_was_slow_for_half_the_time_does_not_bend_the_model():
    fitted = fit_costs(samples(TRUE, dict.fromkeys(range(4, 9), 1.5)), [], 60.0)
    paces = {round((at - T0) / 60): f for at, _, f in fitted.paces}
    step = StepFeatures(68, 7, 400, 2)
    for b in range(10):
        is_ = TRUE.predict(step) * (1.5 if 4 <= b < 9 else 1.0)
        assert fitted.costs.predict(step) * paces.get(b, 1.0) == pytest.approx(is_, rel=0.02)


def test_a_bucket_in_one_half_alone_is_too_little_to_fit_and_test():
    with pytest.raises(NoConclusion, match="0 step samples to fit"):
        fit_costs([s for s in samples(TRUE) if s.at < T0 + 60], [], 60.0)


def run(config: str | None) -> EngineRun:
    values = {
        "engine": "e", "run_id": "r", "pool": "main", "started": T0, "model": "m", "config": config,
    }  # fmt: skip
    return EngineRun(**{n: values.get(n) for n in EngineRun.__dataclass_fields__})


def test_settings_of_an_older_or_newer_run_are_read_as_far_as_they_are_known():
    found = settings_of(
        run('{"policy": "fcfs", "limits": {"slots": 3, "new": 1}, "tenants": [{"name": "a"}]}')
    )
    assert (found.policy, found.limits.slots, found.tenants) == ("fcfs", 3, (Tenant("a"),))


@pytest.mark.parametrize("config", ["", "{}", "[]", '{"policy": "fcfs", "limits": 3}', None])
def test_settings_that_cannot_be_read_are_no_conclusion(config):
    with pytest.raises(NoConclusion):
        settings_of(run(config))
