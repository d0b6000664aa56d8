"""Quotas at the door."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Limits, Settings, Tenant
from engine.scheduling.quota import Admitted, QuotaDoor, Refused


def door(queue_per_tenant=100, **tenant):
    return QuotaDoor(
        Settings(
            tenants=(Tenant("t", **tenant), Tenant("free")),
            limits=Limits(max_context=4000, queue_per_tenant=queue_per_tenant, queue=200),
        )
    )


def test_a_rejection_charges_nothing_and_says_what_is_used():
    d = door(rpm=2, tpm=1000)
    assert isinstance(d.admit("t", 100, 100, 0.0), Admitted)
    refused = d.admit("t", 800, 100, 0.0)
    assert refused.reason == "tpm"
    assert (refused.limit, refused.used) == (1000, 200)
    assert d.levels("t", 0.0).rpm == 1
    assert isinstance(d.admit("t", 800, 0, 0.0), Admitted)


@given(st.integers(1, 50), st.integers(1, 500), st.floats(0, 100))
def test_a_lone_retry_after_exactly_retry_after_succeeds(rpm, tokens, start):
    d = door(rpm=rpm, tpm=600)
    now = start
    while isinstance(got := d.admit("t", tokens, 0, now), Admitted):
        d.settle(got, 0, now)
    assert got.retry_after_s >= 1
    assert isinstance(d.admit("t", tokens, 0, now + got.retry_after_s), Admitted)


def test_the_longest_wait_of_all_dimensions_is_told():
    d = door(rpm=1, tpm=10_000)
    d.admit("t", 10, 0, 0.0)
    assert d.admit("t", 10, 0, 0.0).retry_after_s == 60


def test_unused_max_tokens_come_back_when_the_request_ends():
    d = door(tpm=1000)
    ticket = d.admit("t", 100, 900, 0.0)
    assert d.levels("t", 0.0).tpm == 0
    d.settle(ticket, 50, 0.0)
    assert d.levels("t", 0.0).tpm == 850
    ticket = d.admit("t", 100, 500, 0.0)
    d.refund(ticket, 0.0)
    assert d.levels("t", 0.0) == d.levels("t", 0.0)
    assert d.levels("t", 0.0).tpm == 850
    assert d.levels("t", 0.0).concurrency == 0


def test_zero_is_blocked_and_none_is_no_limit():
    refused = door(rpm=0).admit("t", 1, 1, 0.0)
    assert isinstance(refused, Refused)
    assert refused.retry_after_s is None
    assert "blocked" in refused.sentence
    d = door()
    assert all(isinstance(d.admit("free", 10, 10, 0.0), Admitted) for _ in range(90))


def test_concurrency_and_queues_are_bounded():
    d = door(concurrency=1)
    ticket = d.admit("t", 1, 1, 0.0)
    assert d.admit("t", 1, 1, 0.0).reason == "concurrency"
    d.settle(ticket, 1, 0.0)
    assert isinstance(d.admit("t", 1, 1, 0.0), Admitted)
    d = door(queue_per_tenant=2)
    for _ in range(2):
        d.admit("t", 1, 1, 0.0)
    assert d.admit("t", 1, 1, 0.0).reason == "queue"


@pytest.mark.parametrize(("prompt", "out"), [(3000, 1001), (600, 500)])
def test_what_could_never_be_served_is_impossible_with_both_numbers(prompt, out):
    refused = door(tpm=1000).admit("t", prompt, out, 0.0)
    assert refused.reason == "impossible"
    assert refused.retry_after_s is None
    assert str(prompt + out) in refused.sentence
    assert f"{refused.limit:g}" in refused.sentence


def test_evenly_spaced_use_below_the_limit_is_never_rejected():
    d = door(tpm=60_000)
    for i in range(600):
        got = d.admit("t", 750, 100, float(i))
        assert isinstance(got, Admitted)
        d.settle(got, 100, i + 0.5)
