"""What a picture says of rows: sums close, absent is not zero, the right bucket counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.panels import Level, Mark, TenantRow, fold
from console.rows import Rows
from console.snapshot import build_snapshot
from tests.console import rows as made

END = made.T0 + 180.0


def by_name(snapshot):
    return {t.name: t for t in snapshot.tenants}


def test_the_holder_stands_first_and_its_victims_below_it():
    s = build_snapshot(made.incident(), END, verdict=made.verdict())
    assert [t.name for t in s.tenants] == ["acme", "globex", "initech", "umbrella"]
    assert [t.mark for t in s.tenants] == [Mark.NAMED, Mark.HURT, Mark.HURT, Mark.HURT]


def test_shares_of_service_sum_to_one_and_fair_shares_too():
    s = build_snapshot(made.incident(), END)
    assert sum(t.service_share for t in s.tenants) == pytest.approx(1.0)
    assert sum(t.fair_share for t in s.tenants) == pytest.approx(1.0)
    acme = by_name(s)["acme"]
    assert acme.service_share == pytest.approx(7000 / 8800)
    assert acme.fair_share == pytest.approx(0.25)


def test_fair_share_follows_the_weights_of_those_backlogged_only():
    rows = Rows(
        engines=(made.engine(made.T0),),
        tenants=(
            made.tenant(made.T0, "heavy", weight=3.0, backlogged_s=1.0, service=1.0),
            made.tenant(made.T0, "light", weight=1.0, backlogged_s=1.0, service=1.0),
            made.tenant(made.T0, "served", weight=9.0, backlogged_s=0.0, service=1.0),
        ),
    )
    t = by_name(build_snapshot(rows, made.T0 + 10))
    assert t["heavy"].fair_share == pytest.approx(0.75)
    assert t["light"].fair_share == pytest.approx(0.25)
    assert t["served"].fair_share is None


def test_flows_are_of_the_window_and_levels_of_the_newest_bucket():
    rows = made.incident(calm_buckets=12, bad_buckets=1)
    globex = by_name(build_snapshot(rows, made.T0 + 130))["globex"]
    assert (globex.slo_eligible, globex.slo_missed) == (36, 4)  # five calm buckets and a bad one
    assert globex.waiting == 4.5
    assert globex.oldest_wait_s == 7.0


def test_rates_divide_by_the_time_that_was_observed():
    open_bucket = made.T0 + 20
    rows = Rows(
        engines=(
            made.engine(made.T0 + 10),
            made.engine(open_bucket, observed_seconds=5.0),
        ),
        tenants=(
            made.tenant(made.T0 + 10, "a", output_tokens=100),
            made.tenant(open_bucket, "a", output_tokens=50, observed_seconds=5.0),
        ),
    )
    s = build_snapshot(rows, made.T0 + 26)
    assert s.covered_s == 15.0
    assert by_name(s)["a"].output_tokens_per_s == pytest.approx(10.0)
    assert s.provisional
    assert s.data_age_s == pytest.approx(1.0)


def test_a_tenant_without_a_row_beside_an_engine_row_was_idle():
    rows = made.calm(buckets=3)
    idle_now = replace(rows, engines=(*rows.engines, made.engine(made.T0 + 100)))
    t = by_name(build_snapshot(idle_now, made.T0 + 110))["acme"]
    assert (t.running, t.waiting, t.service) == (0.0, 0.0, 0.0)


def test_without_an_engine_row_nothing_is_known_and_nothing_reads_as_zero():
    rows = Rows(tenants=(made.tenant(made.T0, "a", offered_requests=4),))
    t = by_name(build_snapshot(rows, made.T0 + 10, pool="main"))["a"]
    assert (t.running, t.waiting, t.service, t.offered) == (None, None, None, None)


def test_a_silent_engine_leaves_its_last_picture_with_its_age():
    s = build_snapshot(made.incident(), END + 240)
    assert s.stale
    assert s.data_age_s == pytest.approx(240.0)
    assert by_name(s)["globex"].slo_missed == 24
    assert not build_snapshot(made.incident(), END + 1).stale


def test_waits_by_reason_sum_to_their_total():
    w = build_snapshot(made.incident(), END).wait
    assert w.total_s == pytest.approx(sum(s for _, s in w.by_reason))
    assert w.total_s == pytest.approx(6 * (64 + 3 * 45))
    assert w.by_reason[0][0] == "slot"
    assert w.oldest_s == 9.0


def test_two_engines_add_and_a_restart_is_not_counted_twice():
    other = {"engine": "e2", "run_id": "r9"}
    rows = Rows(
        engines=(
            made.engine(made.T0),
            made.engine(made.T0, **other),
            made.engine(made.T0 + 10, run_id="r2", running_avg=3.0),
            made.engine(made.T0 + 10, **other),
        ),
        tenants=(
            made.tenant(made.T0, "a", output_tokens=100),
            made.tenant(made.T0, "a", output_tokens=100, **other),
            made.tenant(made.T0 + 10, "a", output_tokens=100, run_id="r2", resident_seqs_avg=3.0),
            made.tenant(made.T0 + 10, "a", output_tokens=100, resident_seqs_avg=4.0, **other),
        ),
    )
    s = build_snapshot(rows, made.T0 + 20)
    assert s.engines == 2
    assert s.covered_s == 20.0
    assert by_name(s)["a"].output_tokens_per_s == pytest.approx(20.0)
    assert by_name(s)["a"].running == 7.0
    assert (s.strip.running, s.strip.slots) == (7.0, 16.0)


def test_another_pools_rows_are_left_aside():
    rows = made.calm(buckets=2)
    foreign = replace(
        rows,
        engines=(*rows.engines, made.engine(made.T0, pool="other")),
        tenants=(*rows.tenants, made.tenant(made.T0, "stranger", pool="other", service=9e9)),
    )
    assert "stranger" not in by_name(build_snapshot(foreign, made.T0 + 20, pool="main"))


def test_the_policy_in_force_and_the_phase_come_from_the_rows():
    rows = made.incident()
    rows = replace(rows, policies=(*rows.policies, made.policy(END - 5, "vtc", 2, who="p key")))
    s = build_snapshot(rows, END)
    assert (s.policy, s.policy_version) == ("vtc", 2)
    assert s.phase == "acme fans out long contexts"
    assert s.ticker[-1].text == "p key: vtc (v2)"
    assert build_snapshot(rows, END, phase="by hand").phase == "by hand"


def test_a_policy_change_that_also_came_as_an_event_is_told_once():
    rows = replace(
        made.calm(),
        policies=(made.policy(made.T0, "fcfs", 1), made.policy(made.T0 + 50, "vtc", 2)),
        events=(made.event(made.T0 + 50.2, "policy", "fcfs -> vtc"),),
    )
    told = [t for t in build_snapshot(rows, made.T0 + 120).ticker if t.kind == "policy"]
    assert [t.text for t in told] == ["fcfs -> vtc"]


def test_the_trend_has_a_gap_where_no_engine_was_heard():
    rows = made.calm(buckets=6)
    lost = {made.T0 + 20, made.T0 + 30}
    holed = replace(
        rows,
        engines=tuple(r for r in rows.engines if r.bucket_start not in lost),
        tenants=tuple(r for r in rows.tenants if r.bucket_start not in lost),
    )
    trend = build_snapshot(holed, made.T0 + 60).trend
    assert [v is None for v in trend.share] == [False, False, True, True, False, False]


def test_without_a_verdict_counts_are_stated_and_no_holder_is_named():
    s = build_snapshot(made.incident(), END)
    assert s.verdict.level is Level.WARN
    assert s.verdict.named is None
    assert "misses 24 of 36" in s.verdict.lines[0]
    assert "acme" not in s.verdict.lines[0]
    assert build_snapshot(made.calm(), made.T0 + 120).verdict.level is Level.QUIET
    assert build_snapshot(Rows(), made.T0).verdict.level is Level.UNKNOWN


counts = st.one_of(st.none(), st.integers(0, 1000))
rows_of_tenants = st.lists(
    st.builds(
        TenantRow,
        name=st.text(max_size=5),
        service_share=st.one_of(st.none(), st.floats(0, 1)),
        waiting=st.one_of(st.none(), st.floats(0, 100)),
        slo_eligible=counts,
        slo_missed=counts,
        oldest_wait_s=st.one_of(st.none(), st.floats(0, 100)),
    ),
    max_size=12,
)


@given(rows_of_tenants, st.integers(1, 14))
def test_folding_keeps_the_sums_of_every_column(rows, lines):
    folded = fold(rows, lines)
    assert len(folded) == min(lines, len(rows))
    for column in ("service_share", "waiting", "slo_eligible", "slo_missed"):
        before = [v for r in rows if (v := getattr(r, column)) is not None]
        after = [v for r in folded if (v := getattr(r, column)) is not None]
        assert sum(after) == pytest.approx(sum(before))
        assert bool(before) == bool(after)
    assert sum(r.folded or 1 for r in folded) == len(rows)
    oldest = [r.oldest_wait_s for r in rows if r.oldest_wait_s is not None]
    kept = [r.oldest_wait_s for r in folded if r.oldest_wait_s is not None]
    assert max(oldest, default=None) == max(kept, default=None)
