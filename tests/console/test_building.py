"""One picture's verdict and lists are of one attribution, and what they would say by themselves."""

from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.building import Builder
from console.gather import Gathered
from console.judge import LiveJudge
from console.rows import Rows
from console.snapshot import ACCOUNT_S, WINDOW_S, build_snapshot
from telemetry import attribution
from telemetry.held import Held
from telemetry.kept_buckets import KeptBuckets
from tests.console import rows as made


def built(rows: Rows, at: float):
    builder = Builder(tz=UTC, recent_s=60.0, window_s=WINDOW_S, account_s=ACCOUNT_S)
    return builder.built(
        Gathered(rows, (), made.BUCKET_S, 1), at, "main", mode="LIVE", phase=None,
        store_down_s=None, edge=None, stale_after=lambda made: 30.0,
    )  # fmt: skip


def apart(rows: Rows, at: float):
    """The same picture, with a verdict and lists that know nothing of each other."""
    windows = KeptBuckets().window
    verdict = LiveJudge(pool="main", tz=UTC, windows=windows)(rows, at)
    return build_snapshot(rows, at, pool="main", verdict=verdict, accounted=True, windows=windows)


@settings(max_examples=15, deadline=None)
@given(
    calm=st.integers(1, 12) | st.just(45),
    bad=st.integers(0, 7),
    late_s=st.floats(0.0, 25.0),
    cut=st.integers(0, 3),
)
def test_what_is_shared_says_what_each_would_say_alone(calm, bad, late_s, cut):
    rows = made.incident(calm_buckets=calm, bad_buckets=bad)
    gone = made.T0 + made.BUCKET_S * min(cut, calm - 1)  # the record may begin a little later
    rows = Rows(
        tenants=tuple(r for r in rows.tenants if r.bucket_start >= gone),
        engines=tuple(r for r in rows.engines if r.bucket_start >= gone),
        interference=tuple(r for r in rows.interference if r.bucket_start >= gone),
        events=rows.events, policies=rows.policies, runs=rows.runs,
    )  # fmt: skip
    at = made.T0 + made.BUCKET_S * (calm + bad) + late_s
    ours, theirs = built(rows, at), apart(rows, at)
    assert ours.verdict == theirs.verdict
    assert ours.account == theirs.account
    assert ours.tenants == theirs.tenants


@pytest.fixture
def added_up(monkeypatch) -> list[tuple[object, ...]]:
    """Which buckets' matrices were added up, and against which growth."""
    calls: list[tuple[object, ...]] = []
    of = Held.of

    def counting(buckets, baseline, pace, reasons, growth):
        calls.append((*(b.start for b in buckets), *reasons, growth))
        return of(buckets, baseline, pace, reasons, growth)

    monkeypatch.setattr(attribution.Held, "of", counting)
    return calls


def test_no_matrix_is_added_up_twice_for_one_picture(added_up):
    rows, at = made.incident(calm_buckets=60), made.T0 + 660.0
    assert built(rows, at).verdict.named == "acme"
    assert len(added_up) == len(set(added_up))
    added_up.clear()
    assert apart(rows, at).verdict.named == "acme"
    assert len(added_up) > len(set(added_up))
