"""What was added up for one face of a picture serves the others: the same figures, made once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry import attribution
from telemetry.attribution import reckon
from telemetry.baseline import choose_baseline
from telemetry.case import open_case
from telemetry.held import Held
from telemetry.kept_buckets import KeptBuckets
from telemetry.verdict import judge
from telemetry.window import Window
from tests.console import rows as made
from tests.telemetry.synthetic_rows import CAPACITY, SELF, Pool

charges = st.dictionaries(
    st.sampled_from(["slot", "kv"]),
    st.dictionaries(
        st.sampled_from(["x", "y", SELF, CAPACITY]), st.floats(0, 60), min_size=1, max_size=3
    ),
    max_size=2,
)


def told(verdict) -> tuple:
    """All that a verdict says; of its figures every digit."""
    return (verdict.sentences, verdict.exclusions, verdict.hurt, verdict.culprits, verdict.share,
            verdict.onset, verdict.end, verdict.findings, verdict.causes)  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(
    before=st.lists(charges, min_size=2, max_size=6),
    now=st.lists(st.tuples(charges, st.integers(0, 5)), min_size=1, max_size=4),
)
def test_a_verdict_by_what_was_added_up_before_is_the_verdict(before, now):
    pool = Pool()
    for i, (held, missed) in enumerate([*((b, 0) for b in before), *now]):
        pool.engine(i)
        for tenant in ("x", "y", "v"):
            pool.tenant(i, tenant, missed=missed if tenant == "v" else 0, waits=held)
    window = pool.window(len(before), len(before) + len(now))
    reckoned = reckon(window)
    assert told(judge(window, zone=UTC, reckoned=reckoned)) == told(judge(window, zone=UTC))
    case, alone = open_case(window, None, reckoned), open_case(window)
    for ours, theirs in ((case.accounts, alone.accounts), (case.basis, alone.basis)):
        mine, its = (
            {t: (a.waited_s, a.excess_s, a.lines) for t, a in x.accounts.items()}
            for x in (ours, theirs)
        )
        assert mine == its
    assert (case.lines, case.charged, case.makers) == (alone.lines, alone.charged, alone.makers)


@pytest.fixture
def counted(monkeypatch) -> list[int]:
    """How many buckets were added up, each time."""
    calls: list[int] = []
    of = Held.of

    def counting(buckets, *rest):
        calls.append(len(buckets))
        return of(buckets, *rest)

    monkeypatch.setattr(attribution.Held, "of", counting)
    return calls


def flood() -> Window:
    return Pool().calm(0, 10).flood(10, 16).window(10, 16)


def test_what_is_known_is_not_added_up_again(counted):
    window = flood()
    reckoned = reckon(window)
    made_once = len(counted)
    counted.clear()
    assert judge(window, zone=UTC, reckoned=reckoned).culprit == "x"
    assert counted == []
    assert judge(window, zone=UTC).culprit == "x"
    assert len(counted) == made_once  # the incident's buckets are those of the window: once


def test_bounds_that_differ_inside_a_bucket_are_the_same_window():
    kept = KeptBuckets()
    rows = {"engine_rows": made.incident().engines, "tenant_rows": made.incident().tenants,
            "matrix_rows": made.incident().interference}  # fmt: skip
    reckoned = reckon(kept.window("main", made.T0 + 61.0, made.T0 + 175.0, **rows))
    assert reckoned.is_of(kept.window("main", made.T0 + 68.0, made.T0 + 180.0, **rows))
    assert not reckoned.is_of(kept.window("main", made.T0 + 71.0, made.T0 + 180.0, **rows))
    assert not reckoned.is_of(kept.window("main", made.T0 + 61.0, made.T0 + 170.0, **rows))
    fewer = {**rows, "engine_rows": rows["engine_rows"][1:]}
    assert not reckoned.is_of(kept.window("main", made.T0 + 61.0, made.T0 + 175.0, **fewer))


def test_of_another_window_or_baseline_it_is_not_used(counted):
    window = flood()
    other = reckon(Pool().calm(0, 10).flood(10, 16).window(10, 16))  # alike, and other rows
    counted.clear()
    assert told(judge(window, zone=UTC, reckoned=other)) == told(judge(window, zone=UTC))
    assert counted
    own, mine = reckon(window), replace(choose_baseline(window), left_out=7)
    assert open_case(window, mine, own).baseline is mine
