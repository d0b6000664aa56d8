"""What a replay's arrivals are made of, what is made up, and where a replay begins."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Tenant
from postmortem.whatif.arrivals import Offered, apart, shaken, thinned, without_retries
from postmortem.whatif.model import (
    NoConclusion,
)
from postmortem.whatif.prepare import LEAD, cut
from postmortem.whatif.start import plan_start
from tests.postmortem.whatif_values import T0, arrivals, bucket, minute, row


def test_a_finished_request_comes_again_as_it_was():
    [o] = arrivals([row(3.0, adapter="x", cached_tokens=40)], adapters={"x": "hash"})
    assert o == Offered(3.0, "a", "hash", 60, 10)


@pytest.mark.parametrize("outcome", ["aborted", "timed_out", "failed", "rejected"])
def test_a_request_that_made_nothing_to_the_end_is_imputed_from_the_tenants_own(outcome: str):
    known = [row(float(i), output_tokens=7) for i in range(5)]
    other = [row(float(i) + 0.5, tenant="b", output_tokens=1000) for i in range(5)]
    cut = row(50.0, outcome=outcome, output_tokens=3, reject_reason=None)
    last = arrivals([*known, *other, cut])[-1]
    assert last.imputed
    assert last.output_tokens == 7


def test_what_was_refused_as_impossible_is_refused_again_and_nothing_is_made_up():
    o = arrivals([row(1.0), row(2.0, outcome="rejected", reject_reason="impossible")])[-1]
    assert (o.output_tokens, o.imputed) == (20, False)


def test_requests_that_minutes_count_and_no_row_tells_of_are_imputed_and_counted():
    rows = [row(10.0), row(20.0)]
    made = arrivals(rows, [bucket(0.0, minute("a", 0.0, offered_requests=5))])
    assert [o.imputed for o in made].count(True) == 3
    assert all(0 <= o.at_s < 60 for o in made)


def test_without_any_finished_request_nothing_can_be_made_up():
    with pytest.raises(NoConclusion, match="nothing to replay"):
        arrivals([row(1.0, outcome="aborted")])


def test_who_was_running_at_the_start_is_there_with_what_was_left_to_do():
    running = row(-3.0, first_token=T0 - 2, last_token=T0 + 2, ended=T0 + 2, output_tokens=10)
    waiting = row(-1.0, first_token=T0 + 1, last_token=T0 + 2, ended=T0 + 2)
    gone = row(-9.0, ended=T0 - 5)
    made = arrivals([gone, running, waiting, row(5.0)])
    # Five of ten tokens were made: they are context now, and five are left.
    assert sorted((o.prompt_tokens, o.output_tokens) for o in made[:2]) == [(100, 10), (105, 5)]
    assert [o.judged for o in made] == [False, False, True]


def test_retries_can_be_dropped():
    made = arrivals([row(1.0), row(2.0, is_retry=True)])
    assert [o.at_s for o in without_retries(made)] == [1.0]


offers = st.lists(
    st.tuples(st.floats(0, 100), st.sampled_from("abc"), st.integers(1, 500)), max_size=60
).map(lambda items: apart(Offered(at, t, None, n, 5) for at, t, n in items))


@given(offers)
def test_no_two_arrivals_share_an_instant(offered):
    at = [o.at_s for o in offered]
    assert all(x < y for x, y in itertools.pairwise(at))


@given(offers, st.integers(1, 9))
def test_shaking_keeps_every_tenants_requests_and_their_order(offered, seed):
    moved = shaken(offered, seed)
    assert moved == shaken(offered, seed)
    for tenant in "abc":
        was = [o.prompt_tokens for o in offered if o.tenant == tenant]
        assert [o.prompt_tokens for o in moved if o.tenant == tenant] == was
    assert shaken(offered, 0) == offered


@given(offers, st.floats(0, 3), st.floats(0, 300))
def test_thinning_keeps_a_tenant_to_its_rate_and_leaves_the_others_alone(offered, rate, tokens):
    left, out = thinned(offered, "a", rate, tokens, 505)
    assert [o for o in left if o.tenant != "a"] == [o for o in offered if o.tenant != "a"]
    mine = [o for o in left if o.tenant == "a"]
    assert len(mine) + out == sum(o.tenant == "a" for o in offered)
    if mine:
        span = mine[-1].at_s
        assert len(mine) <= max(1.0, 30 * rate) + rate * span + 1e-6
        sent = sum(o.prompt_tokens + o.output_tokens for o in mine)
        assert sent <= max(505.0, 30 * tokens) + tokens * span + 1e-3


def start_of(tenants, buckets=(), started=-9e9, since=-9e9):
    rows = [row(float(i)) for i in range(600, 700)]
    return plan_start(T0 + 600, T0 + 900, rows, buckets, tenants, T0 + started, T0 + since)


def test_a_replay_begins_one_requests_life_early():
    plan = start_of([Tenant("a")])
    assert plan.begin == T0 + 598
    assert plan.until == T0 + 902
    assert plan.quotas == "none"


def test_with_limits_it_begins_where_every_bucket_stood_full():
    full = bucket(360.0, minute("a", 360.0, quota_rpm_level=60.0))
    low = bucket(480.0, minute("a", 480.0, quota_rpm_level=3.0))
    plan = start_of([Tenant("a", rpm=60)], [full, low])
    assert (plan.begin, plan.quotas) == (T0 + 420, "full")


def test_a_limit_that_is_never_full_is_forgotten_in_a_refill():
    low = [bucket(60.0 * i, minute("a", 60.0 * i, quota_rpm_level=3.0)) for i in range(9)]
    plan = start_of([Tenant("a", rpm=60, rpm_burst=120)], low)
    assert (plan.begin, plan.quotas) == (T0 + 480, "forgotten")


def test_it_begins_with_the_engine_where_that_started_later():
    plan = start_of([Tenant("a", rpm=60)], started=599.0)
    assert (plan.begin, plan.quotas) == (T0 + 599, "full")


def test_it_begins_no_earlier_than_the_settings_it_is_about():
    plan = start_of([Tenant("a", rpm=60)], since=599.0)
    assert (plan.begin, plan.quotas) == (T0 + 599, "forgotten")


@given(
    st.lists(st.integers(0, 999), min_size=1, max_size=80, unique=True).map(sorted),
    st.integers(1, 80),
    st.integers(0, 999),
)
def test_a_stretch_too_large_is_cut_to_what_there_is_time_for_and_holds_the_onset(at, most, onset):
    notes: list[str] = []
    rows = [row(float(i)) for i in at]
    first, last = cut(rows, T0, T0 + 1000.0, T0 + onset, most, notes)
    assert sum(first <= r.arrived < last for r in rows) <= most
    assert len(notes) == (len(at) > most)
    after = [r for r in rows if r.arrived >= T0 + onset]
    if after:
        assert first <= after[0].arrived < last
    if len(after) <= most - int(LEAD * most):
        assert last == T0 + 1000.0  # there is room for the end
