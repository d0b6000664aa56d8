"""Quotas at the door: one atomic step, refunds to the token, honest waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import WINDOWS, Limits, PoolSpec, Settings, Tenant
from engine.scheduling.quota import Admitted, QuotaDoor, Refused, TicketSpent, UnknownTenant

every_window = pytest.mark.parametrize("window", WINDOWS)
TIMES = st.floats(0, 1e9, allow_subnormal=True)


def door(queue_per_tenant=100, queue=200, **tenant):
    return QuotaDoor(
        Settings(
            tenants=(Tenant("t", **tenant), Tenant("free")),
            limits=Limits(
                max_context=4000,
                queue_per_tenant=queue_per_tenant,
                queue=queue,
                concurrency_retry_s=3,
            ),
        )
    )


# -- one step


@every_window
def test_a_rejection_charges_nothing_and_says_what_is_used(window):
    d = door(rpm=2, tpm=1000, concurrency=2, window=window)
    assert isinstance(d.admit("t", 100, 100, 0.0), Admitted)
    before = d.view("t", 0.0)
    for _ in range(50):
        refused = d.admit("t", 800, 100, 0.0)
        assert refused.reason == "tpm"
        assert (refused.limit, refused.used) == (1000, 200)
    assert d.view("t", 0.0) == before
    assert isinstance(d.admit("t", 800, 0, 0.0), Admitted)
    assert d.admit("t", 1, 0, 0.0).reason == "rpm"


@given(
    st.sampled_from(WINDOWS),
    st.lists(st.tuples(st.integers(1, 900), st.floats(0, 40), st.booleans()), max_size=40),
)
def test_whatever_is_refused_changes_nothing_and_whatever_is_admitted_fits(window, steps):
    d = door(rpm=7, tpm=2000, concurrency=3, queue_per_tenant=4, window=window)
    now, held = 0.0, []
    for tokens, passed, ends in steps:
        now += passed
        before = d.view("t", now)
        got = d.admit("t", tokens, 0, now)
        after = d.view("t", now)
        if isinstance(got, Refused):
            assert after == before
        else:
            held.append(got)
            assert after.concurrency == before.concurrency + 1 <= 3
            assert after.rpm_level == pytest.approx(before.rpm_level - 1)
            assert after.tpm_level == pytest.approx(before.tpm_level - tokens)
            assert min(after.rpm_level, after.tpm_level) >= -1e-5
        if ends and held:
            d.settle(held.pop(0), 0, now)


def test_the_longest_wait_of_all_dimensions_is_told():
    d = door(rpm=1, tpm=600, concurrency=1)
    d.admit("t", 600, 0, 0.0)
    refused = d.admit("t", 10, 0, 0.0)
    assert (refused.reason, refused.retry_after_s) == ("rpm", 60)
    assert refused.is_estimate, "the concurrency that is full too ends when it ends"
    d = door(tpm=600, concurrency=1)
    d.admit("t", 600, 0, 0.0)
    assert d.admit("t", 10, 0, 0.0).reason == "concurrency"
    assert d.admit("t", 500, 0, 0.0).reason == "tpm"


def test_a_blocked_dimension_outweighs_every_wait():
    d = door(rpm=1, concurrency=0)
    refused = d.admit("t", 1, 0, 0.0)
    assert (refused.reason, refused.retry_after_s, refused.is_estimate) == (
        "concurrency",
        None,
        False,
    )


# -- waits


@given(
    st.sampled_from(WINDOWS),
    st.integers(1, 50),
    st.integers(1, 5000),
    st.integers(1, 5000),
    TIMES,
    st.lists(st.floats(0, 30), max_size=12),
)
def test_a_lone_retry_after_exactly_retry_after_succeeds(window, rpm, tpm, tokens, start, gaps):
    d = QuotaDoor(
        Settings(
            tenants=(Tenant("t", rpm=rpm, tpm=tpm, window=window),),
            limits=Limits(max_context=10_000),
        ),
        start,
    )
    now, gaps = start, iter(gaps)
    while isinstance(got := d.admit("t", tokens, 0, now), Admitted):
        d.settle(got, 0, now)
        now += next(gaps, 0.0)
    if got.reason == "impossible":
        assert tokens > tpm
        return
    assert isinstance(got.retry_after_s, int)
    assert got.retry_after_s >= 1
    assert not got.is_estimate
    assert isinstance(d.admit("t", tokens, 0, now + got.retry_after_s), Admitted)


@given(st.integers(1, 40), st.integers(1, 3000), st.integers(1, 9000), TIMES)
def test_a_lone_retry_succeeds_with_a_burst_of_ones_own(rpm, tpm, burst, start):
    d = QuotaDoor(
        Settings(
            tenants=(Tenant("t", rpm=rpm, rpm_burst=3, tpm=tpm, tpm_burst=burst),),
            limits=Limits(max_context=10_000),
        ),
        start,
    )
    tokens = max(1, burst // 2)
    while isinstance(got := d.admit("t", tokens, 0, start), Admitted):
        d.settle(got, 0, start)
    assert isinstance(d.admit("t", tokens, 0, start + got.retry_after_s), Admitted)


@pytest.mark.parametrize(
    ("limits", "reason"), [({"concurrency": 1}, "concurrency"), ({"queue": 1}, "queue")]
)
def test_what_ends_with_a_running_request_is_a_configured_estimate_and_marked(limits, reason):
    d = door(**limits)
    ticket = d.admit("t", 1, 1, 0.0)
    refused = d.admit("t", 1, 1, 0.0)
    assert (refused.reason, refused.retry_after_s, refused.is_estimate) == (reason, 3, True)
    d.settle(ticket, 1, 0.0)
    assert isinstance(d.admit("t", 1, 1, 0.0), Admitted)


# -- refunds


@every_window
def test_unused_max_tokens_come_back_when_the_request_ends(window):
    d = door(tpm=1000, window=window)
    ticket = d.admit("t", 100, 900, 0.0)
    assert d.levels("t", 0.0).tpm == 0
    d.settle(ticket, 50, 0.0)
    assert d.levels("t", 0.0).tpm == 850
    ticket = d.admit("t", 100, 500, 0.0)
    d.refund(ticket, 0.0)
    assert d.levels("t", 0.0).tpm == 850
    assert d.levels("t", 0.0).concurrency == 0


@pytest.mark.parametrize("window", ["fixed", "sliding"])
def test_a_refund_goes_to_the_window_it_was_reserved_in(window):
    d = door(tpm=1000, window=window)
    old = d.admit("t", 900, 0, 10.0)
    new = d.admit("t", 400, 0, 70.0)
    assert d.levels("t", 70.0).tpm == 600
    d.refund(old, 70.0)
    assert d.levels("t", 70.0).tpm == 600, "its minute is over: nothing to give back"
    d.settle(new, 0, 71.0)
    assert d.levels("t", 71.0).tpm == 600
    third = d.admit("t", 600, 0, 72.0)
    d.refund(third, 80.0)
    assert d.levels("t", 80.0).tpm == 600


def test_a_bucket_never_holds_more_than_its_burst_whatever_comes_back():
    d = door(tpm=1000, tpm_burst=1500)
    ticket = d.admit("t", 1000, 0, 0.0)
    assert d.levels("t", 60.0).tpm == 1500
    d.refund(ticket, 60.0)
    assert d.levels("t", 60.0).tpm == 1500


@given(
    st.sampled_from(WINDOWS),
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(0, 300), st.integers(0, 5), st.floats(0, 30)),
        max_size=40,
    ),
)
def test_reserved_is_the_sum_of_open_tickets_and_every_token_is_accounted_for(window, steps):
    d = door(tpm=5000, concurrency=6, window=window)
    now, ever, cost = 0.0, 0, 0
    for prompt, out, how, passed in steps:
        now += passed
        got = d.admit("t", prompt, out, now)
        ever += got.tokens if isinstance(got, Admitted) else 0
        tickets = d.open_tickets("t")
        if how < len(tickets):
            ended = tickets[how]
            if how % 2:
                d.refund(ended, now)
            else:
                used = (ended.tokens - ended.prompt_tokens) // 2
                d.settle(ended, used, now)
                cost += ended.prompt_tokens + used
        view, tickets = d.view("t", now), d.open_tickets("t")
        assert view.reserved_tokens == sum(t.tokens for t in tickets)
        assert view.settled_tokens == cost
        assert view.reserved_tokens + view.settled_tokens + view.returned_tokens == ever
        assert view.concurrency == len(tickets)
        oldest = min((t.at_s for t in tickets), default=None)
        assert view.oldest_reservation_s == (None if oldest is None else now - oldest)


def test_a_reservation_given_back_twice_is_an_error_and_gives_nothing():
    d = door(tpm=1000)
    ticket = d.admit("t", 600, 0, 0.0)
    d.refund(ticket, 0.0)
    before = d.view("t", 0.0)
    for again in (lambda: d.refund(ticket, 0.0), lambda: d.settle(ticket, 1, 0.0)):
        with pytest.raises(TicketSpent, match="given back already"):
            again()
    assert d.view("t", 0.0) == before


# -- limits


@pytest.mark.parametrize("what", ["rpm", "tpm", "concurrency", "queue"])
def test_zero_is_blocked_with_no_time_to_come_back_at(what):
    refused = door(**{what: 0}).admit("t", 1, 1, 0.0)
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.retry_after_s, refused.is_estimate) == (what, None, False)
    assert "blocked" in refused.sentence


def test_none_is_no_limit():
    d = door()
    assert all(isinstance(d.admit("free", 10, 10, 0.0), Admitted) for _ in range(90))


def test_the_queues_of_tenant_and_pool_are_bounded():
    d = door(queue_per_tenant=2)
    for _ in range(2):
        d.admit("t", 1, 1, 0.0)
    refused = d.admit("t", 1, 1, 0.0)
    assert refused.reason == "queue"
    assert "the tenant has 2" in refused.sentence
    assert isinstance(d.admit("free", 1, 1, 0.0), Admitted)
    d = door(queue_per_tenant=2, queue=3)
    for tenant in ("t", "t", "free"):
        last = d.admit(tenant, 1, 1, 0.0)
    refused = d.admit("free", 1, 1, 0.0)
    assert "the pool has 3" in refused.sentence
    d.settle(last, 1, 0.0)
    assert isinstance(d.admit("free", 1, 1, 0.0), Admitted)


def test_a_tenants_own_queue_goes_before_the_pools():
    d = door(queue_per_tenant=1, queue=200)
    assert isinstance(d.admit("free", 1, 1, 0.0), Admitted)
    assert d.admit("free", 1, 1, 0.0).reason == "queue"
    d = QuotaDoor(Settings(tenants=(Tenant("t", queue=3),), limits=Limits(queue_per_tenant=1)))
    assert [isinstance(d.admit("t", 1, 1, 0.0), Admitted) for _ in range(4)] == [True] * 3 + [False]


def test_every_pool_bounds_its_own_queue_a_replica():
    d = QuotaDoor(
        Settings(
            pools=(PoolSpec("one", 1, Limits(queue=1)), PoolSpec("two", 2, Limits(queue=1))),
            tenants=(Tenant("a"), Tenant("b", pool="two")),
        )
    )
    assert [isinstance(d.admit("a", 1, 1, 0.0), Admitted) for _ in range(2)] == [True, False]
    assert [isinstance(d.admit("b", 1, 1, 0.0), Admitted) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(("prompt", "out"), [(3000, 1001), (600, 500)])
def test_what_could_never_be_served_is_impossible_with_both_numbers(prompt, out):
    refused = door(tpm=1000).admit("t", prompt, out, 0.0)
    assert refused.reason == "impossible"
    assert refused.retry_after_s is None
    assert str(prompt + out) in refused.sentence
    assert f"{refused.limit:g}" in refused.sentence


def test_a_burst_bounds_what_is_possible_up_and_down():
    assert isinstance(door(tpm=100, tpm_burst=2000).admit("t", 2000, 0, 0.0), Admitted)
    refused = door(tpm=1000, tpm_burst=500).admit("t", 501, 0, 0.0)
    assert (refused.reason, refused.limit) == ("impossible", 500)
    assert "bucket holds 500" in refused.sentence


def test_a_tenant_that_is_not_in_the_settings_gets_the_sentence():
    d = door()
    for ask in (
        lambda: d.admit("fre", 1, 1, 0.0),
        lambda: d.view("fre", 0.0),
        lambda: d.levels("fre", 0.0),
    ):
        with pytest.raises(UnknownTenant, match=r"'fre' is not in the settings; did you mean 'f"):
            ask()


def test_a_clock_that_reads_earlier_lends_nothing():
    for window in WINDOWS:
        d = door(rpm=2, window=window)
        d.admit("t", 1, 0, 100.0)
        d.admit("t", 1, 0, 100.0)
        assert d.admit("t", 1, 0, 30.0).reason == "rpm"
        assert math.isclose(d.levels("t", 100.0).rpm, 0.0, abs_tol=1e-9)
