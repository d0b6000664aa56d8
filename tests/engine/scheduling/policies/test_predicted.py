"""VTC with predicted lengths: when output is charged. Its counters against a twin that counts
token by token are in the conformance suite."""

from __future__ import annotations

import pytest

from engine.scheduling.policies.predictors import MovingAverage, NoisyOracle
from tests.engine.scheduling.policies.rig import Rig, make_request


def running(rig, prompt, out, tenant="a"):
    request = rig.arrive(tenant, prompt, out)
    rig.admit(request)
    return request


def expecting(tokens, **kw):
    return Rig("vtc-predicted", predictor=NoisyOracle(lambda r: tokens), **kw)


def test_the_expected_output_is_charged_at_admission_and_tokens_only_beyond_it():
    rig = expecting(10)
    request = running(rig, 20, 15)
    assert rig.policy.measure("a") == 20 + 2 * 10
    assert rig.counters.value("a") == 20, "the shadow counters know of no prediction"
    rig.first_token(request)
    rig.step(9)
    assert rig.policy.measure("a") == 40
    rig.step(3)
    assert rig.policy.measure("a") == 40 + 2 * 3
    assert rig.counters.value("a") == 20 + 2 * 13


def test_what_was_expected_and_never_came_is_given_back_at_the_end():
    rig = expecting(10)
    request = running(rig, 20, 4)
    rig.first_token(request)
    rig.step(3)
    assert request.sequence not in rig.running
    assert rig.policy.measure("a") == rig.counters.value("a") == 20 + 2 * 4


def test_an_abort_gives_back_what_is_ahead():
    rig = expecting(10)
    request = running(rig, 20, 15)
    rig.first_token(request)
    rig.step(2)
    rig.abort(request)
    assert rig.policy.measure("a") == 20 + 2 * 3


def test_many_steps_at_once_are_charged_like_one_by_one():
    at_once, singly = expecting(6, weights={"a": 2.0}), expecting(6, weights={"a": 2.0})
    for rig in (at_once, singly):
        for out in (40, 50):
            rig.first_token(running(rig, 20, out))
    at_once.step(30)
    for _ in range(30):
        singly.step(1)
    assert at_once.policy.measure("a") == singly.policy.measure("a")


def test_preemption_keeps_the_prediction_and_charges_nothing_again():
    rig = expecting(10)
    request = running(rig, 20, 30)
    rig.first_token(request)
    rig.step(4)
    rig.preempt(request)
    assert rig.policy.measure("a") == 40
    rig.admit(request)
    rig.first_token(request)
    rig.step(4)
    assert rig.policy.measure("a") == 40, "ten tokens, as expected"
    rig.step(1)
    assert rig.policy.measure("a") == 42


def test_rows_admitted_under_another_policy_pay_token_by_token():
    rig = Rig("vtc")
    request = running(rig, 20, 30)
    rig.first_token(request)
    rig.step(3)
    rig.switch("vtc-predicted")
    assert rig.policy.measure("a") == 20 + 2 * 4
    rig.step(5)
    assert rig.policy.measure("a") == 20 + 2 * 9


def test_the_moving_average_is_the_tenants_own_and_at_most_what_is_allowed():
    predictor = MovingAverage(100)
    request = make_request(0, "a", 5, 1000)
    assert predictor.predict(request) == 100
    request.produced = 50
    predictor.learn(request)
    assert predictor.predict(request) == 90
    assert predictor.predict(make_request(1, "b", 5, 1000)) == 100
    assert predictor.predict(make_request(2, "b", 5, 7)) == 7


def test_only_requests_that_came_to_their_own_end_teach_the_predictor():
    rig = Rig("vtc-predicted")
    before = rig.policy._predictor.predict(make_request(9, "a", 5, 1000))
    aborted = running(rig, 5, 500)
    rig.first_token(aborted)
    rig.step(90)
    rig.abort(aborted)
    assert rig.policy._predictor.predict(make_request(9, "a", 5, 1000)) == before
    finished = running(rig, 5, 40)
    rig.first_token(finished)
    rig.step(39)
    assert rig.policy._predictor.predict(make_request(9, "a", 5, 1000)) == round((4 * 6 + 40) / 5)


def test_the_oracles_noise_is_bounded_and_the_same_each_time():
    oracle = NoisyOracle(lambda r: r.ask.max_tokens, 0.5, seed=1)
    asked = [make_request(i, "a", 5, 100) for i in range(200)]
    first = [oracle.predict(r) for r in asked]
    assert first == [oracle.predict(r) for r in asked]
    assert 50 <= min(first) < 65
    assert 135 < max(first) <= 150
    assert NoisyOracle(lambda r: r.ask.max_tokens).predict(asked[0]) == 100
    with pytest.raises(ValueError, match=r"noise 1\.5: expected a part of the length"):
        NoisyOracle(lambda r: 1, 1.5)
