"""The ledger against one that loops over everything: random lives of a pool, every bucket."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.conventions import WAIT_REASONS
from telemetry.ledger import fold, interference
from telemetry.records import EngineMinute, InterferenceMinute, TenantMinute
from tests.telemetry.brute_ledger import BruteBucket
from tests.telemetry.ledger_worlds import BUCKET_S, GROUPS, Twins

NAMES = ["a", "b", "c", "self", "capacity"]

tenant = st.sampled_from(NAMES)
nth = st.integers(0, 5)
size = st.sampled_from([1.0, 7.0, 4096.0])
parts = st.dictionaries(tenant, st.sampled_from([1.0, 2.0, 5.0]), max_size=4)
blames = st.dictionaries(
    st.sampled_from(["k1", "k2"]),
    st.sampled_from([{None: 1.0}, {"a": 0.25, "b": 0.75}, {"self": 0.5, None: 0.5}]),
)
passing = st.tuples(st.just("passes"), st.sampled_from([0.0, 0.03, 0.3, 1.7, 4.0, 11.0]))
happening = st.one_of(
    passing,
    passing,
    st.tuples(st.just("joins"), tenant),
    st.tuples(st.just("joins"), tenant),
    st.tuples(st.just("moves"), nth, st.sampled_from(GROUPS)),
    st.tuples(st.just("starts"), nth, size),
    st.tuples(st.just("grows"), nth, size),
    st.tuples(st.just("preempted"), nth, st.sampled_from(GROUPS)),
    st.tuples(st.just("finishes"), nth),
    st.tuples(st.just("aborts"), nth),
    st.tuples(
        st.just("begins"),
        st.sampled_from([None, 0.05, 1.0, 3.0]),
        st.sampled_from(["slot", "budget", "kv"]),
        parts,
        parts,
        blames,
        st.sampled_from([0.0, 100.0]),
        st.sampled_from([0.0, 30.0, 1000.0]),
    ),
    st.tuples(st.just("settles"), parts, st.dictionaries(tenant, st.integers(1, 3), max_size=2)),
    st.tuples(st.just("takes")),
)


def near(value: float):
    return pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.fixture(params=[(512, 64 << 20), (3, 0)], ids=["long stretches", "short ones, folded"])
def stretches(request, monkeypatch):
    """How often notes are closed into stretches and these multiplied out: it must not matter."""
    monkeypatch.setattr(interference, "_MOST_ROWS", request.param[0])
    monkeypatch.setattr(fold, "_PENDING_BYTES", request.param[1])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=st.lists(happening, min_size=25, max_size=90))
def test_every_bucket_equals_one_that_loops_over_everything(stretches, life):
    twins = Twins(NAMES)
    for what, *how in life:
        getattr(twins, what)(*how)
    twins.passes(2.5)
    twins.batches += twins.ledger.collect(twins.now)
    twins.brute.look()
    sealed = [b for b in twins.batches if b.sealed]
    assert len(sealed) == len(twins.brute.sealed) == int(twins.now // BUCKET_S)
    for batch, brute in zip(
        [*sealed, twins.batches[-1]], [*twins.brute.sealed, twins.brute.open], strict=True
    ):
        compare(batch.minutes, brute)


def compare(rows, brute: BruteBucket) -> None:
    charged = {
        (r.victim, r.reason, r.holder_kind, r.holder): r.charged_s
        for r in rows
        if isinstance(r, InterferenceMinute)
    }
    assert all(s > 0 for s in charged.values())
    for key in {*charged, *brute.charges}:
        assert charged.get(key, 0.0) == near(brute.charges.get(key, 0.0)), key
    minutes = {r.tenant: r for r in rows if isinstance(r, TenantMinute)}
    engine = next(r for r in rows if isinstance(r, EngineMinute))
    span = engine.observed_seconds
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for (victim, reason, _, _), seconds in charged.items():
        sums[victim, reason] += seconds
    for name in NAMES:
        if name not in minutes:
            # (shares in equal parts leave dust in the twin)
            assert not any(v > 1e-9 for (t, _), v in brute.levels.items() if t == name)
            assert not any(v for (t, _), v in brute.sums.items() if t == name)
            continue
        row = minutes[name]
        for reason in WAIT_REASONS:
            waited = getattr(row, f"wait_{reason}_s")
            assert waited == near(brute.waits.get((name, reason), 0.0))
            assert waited == near(sums[name, reason])  # the rows close
        assert row.stall_s == near(sums[name, "stall"])
        assert row.oldest_wait_s == near(brute.oldest.get(name, 0.0))
        assert row.backlogged_s == near(brute.levels.get((name, "backlogged"), 0.0))
        for column, level in (
            ("waiting_avg", "waiting"),
            ("resident_seqs_avg", "running"),
            ("kv_bytes_avg", "kv"),
            ("adapter_bytes_avg", "adapters"),
        ):
            area = brute.levels.get((name, level), 0.0)
            assert getattr(row, column) * span == pytest.approx(area, rel=1e-9, abs=1e-6)
        for column in ("output_tokens", "engine_seconds", "finished", "aborted"):
            assert getattr(row, column) == near(brute.sums.get((name, column), 0.0))
        assert row.service == near(2 * row.output_tokens)
    for column in ("busy_s", "idle_s", "capacity_s", "predicted_s", "base_cost_s", "steps"):
        assert getattr(engine, column) == near(brute.engine.get(column, 0.0)), column
