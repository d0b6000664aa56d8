"""What the verdict says beside the name: exclusions with numbers, doubts, changes, odd names."""

from __future__ import annotations

from datetime import UTC

import pytest

from telemetry.findings.finding import Holds
from telemetry.plain import cells
from telemetry.verdict import judge
from telemetry.window import PoolChoice, read_window
from tests.telemetry.synthetic_rows import Pool
from tests.telemetry.verdict_bench import finding


def test_every_cause_that_is_excluded_is_excluded_with_a_number():
    windows = (
        Pool().calm(0, 10).flood(10, 16).window(10, 16),
        Pool().calm(0, 20).window(10, 20),
    )
    excluded = [f for w in windows for f in judge(w).findings if f.holds is Holds.NO]
    assert len(excluded) > 20
    for f in excluded:
        assert f.evidence, f.name
        assert any(c.isdigit() for c in f.sentence), f.sentence


def test_missing_buckets_are_said():
    pool = Pool().calm(0, 10).flood(10, 12).flood(15, 17)
    verdict = judge(pool.window(10, 17), zone=UTC)
    assert verdict.tenant == "x"
    assert any("MISSING: 3 buckets not observed" in s for s in verdict.sentences)


def test_a_silent_engine_is_said():
    pool = Pool().calm(0, 10).flood(10, 16)
    other = Pool(engine_name="e2").calm(0, 8)
    for table, rows in other.rows.items():
        pool.rows[table] = [*pool.rows[table], *rows]
    verdict = judge(pool.window(10, 16))
    assert (verdict.heard, verdict.engines) == (1, 2)
    assert any("only 1 of 2 engines" in s for s in verdict.sentences)


def test_a_change_before_the_onset_is_tested_first_and_said():
    pool = Pool().calm(0, 10).flood(10, 16)
    pool.policy(pool.at(0), 1, "vtc")
    pool.policy(pool.at(8), 2, "fcfs", "vtc")
    pool.event(pool.at(8), "policy", "vtc to fcfs")
    verdict = judge(pool.window(10, 16))
    assert verdict.findings[0].name == "change"
    assert finding(verdict, "change").holds is Holds.YES
    said = next(s for s in verdict.sentences if s.startswith("CHANGE"))
    assert "20.0s before the onset: policy vtc to fcfs by bob (v2)" in said
    assert "associated" in said
    assert "more" not in said


def test_no_change_is_an_exclusion_with_its_reason():
    verdict = judge(Pool().calm(0, 10).flood(10, 16).window(10, 16))
    assert any("NOT a change: none in the 10 min" in s for s in verdict.exclusions)
    assert any("NOT the engine: steps 1.03x the model" in s for s in verdict.exclusions)
    assert any("NOT adapters: 0.00 loads/s" in s for s in verdict.exclusions)


@pytest.mark.parametrize("name", ["capacity", "self", "others", "[red]x[/]", "a|b`c", "\x1b[31m"])
def test_names_that_look_like_something_else_stay_names(name: str):
    pool = Pool().calm(0, 10, (name, "y", "z", "w")).flood(10, 16, by=name)
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("tenant", name)
    assert verdict.share == pytest.approx(0.94, abs=0.01)
    assert verdict.capacity_share == pytest.approx(0.06, abs=0.01)
    assert all("\x1b" not in s for s in verdict.lines())


def test_sentences_fit_eighty_columns_whatever_the_names():
    long = "n" * 200
    pool = Pool().calm(0, 10, (long, "y", "z", "w")).flood(10, 16, by=long)
    verdict = judge(pool.window(8, 16))
    assert max(cells(s) for s in verdict.lines()) <= 80
    assert verdict.tenant == long


def test_several_pools_must_be_told_apart():
    pool = Pool().calm(0, 10)
    for table, rows in Pool(name="second").calm(0, 10).rows.items():
        pool.rows[table] = [*pool.rows[table], *rows]
    with pytest.raises(PoolChoice, match="'main', 'second'"):
        pool.window(5, 10)
    assert read_window(pool, pool.at(5), pool.at(10), pool="second").pool == "second"
    with pytest.raises(PoolChoice, match="no pool 'third'"):
        pool.window(5, 10, pool="third")
