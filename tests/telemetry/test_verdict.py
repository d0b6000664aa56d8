"""Whom the verdict names, and whom it must not."""

from __future__ import annotations

from datetime import UTC

import pytest

from telemetry.findings.finding import Holds, Strength
from telemetry.plain import cells
from telemetry.verdict import Verdict, judge
from telemetry.window import PoolChoice, read_window
from tests.telemetry.synthetic_rows import CAPACITY, OTHERS, POLICY, SELF, Pool


def finding(verdict: Verdict, name: str):
    return next(f for f in verdict.findings if f.name == name)


def test_a_quiet_pool_names_nobody():
    verdict = judge(Pool().calm(0, 20).window(10, 20))
    assert (verdict.kind, verdict.tenant, verdict.culprit) == ("quiet", None, None)
    assert verdict.hurt == ()
    assert verdict.onset is None
    assert verdict.level == "ok"
    assert "nobody is hurt" in verdict.headline
    assert "25%" in verdict.headline


@pytest.mark.parametrize("reason", ["slot", "budget", "kv", "adapter"])
@pytest.mark.parametrize("bucket_s", [10.0, 60.0])
def test_a_flooding_tenant_is_named_with_its_share(reason: str, bucket_s: float):
    pool = Pool(bucket_s).calm(0, 10).flood(10, 16, reason=reason)
    verdict = judge(pool.window(8, 16), zone=UTC)
    assert (verdict.kind, verdict.tenant) == ("tenant", "x")
    assert (verdict.strength, verdict.confidence) == (Strength.CHARGED, "high")
    assert verdict.culprit == "x"
    assert [(n.tenant, n.share) for n in verdict.culprits] == [("x", verdict.share)]
    assert verdict.share == pytest.approx(0.94, abs=0.01)
    assert verdict.capacity_share == pytest.approx(0.06, abs=0.01)
    assert {v.tenant for v in verdict.victims} == {"y", "z", "w"}
    assert verdict.onset == pool.at(10)
    assert verdict.bucket_s == bucket_s
    assert any("CULPRIT x: 94%" in s and "(charged, high)" in s for s in verdict.sentences)


def test_the_flooder_waiting_behind_itself_is_no_victim():
    verdict = judge(Pool().calm(0, 10).flood(10, 16).window(10, 16))
    own = [v for v in verdict.hurt if v.self_inflicted]
    assert [v.tenant for v in own] == ["x"]


def test_a_slow_engine_is_capacity_and_names_nobody():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i, busy_s=9.6, predicted_s=6.0, capacity_s=3.6)
        for t, share in (("x", 0.4), ("y", 0.1), ("z", 0.1)):
            held = {CAPACITY: 0.375 * 20, SELF: 0.1 * 20, "w": share * 20}
            held["heavy"] = 20 - sum(held.values())
            pool.tenant(i, t, missed=4, service=700.0, waits={"budget": held})
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant, verdict.culprit) == ("capacity", None, None)
    assert verdict.level == "hurt"
    assert any("1.60x the model, usual 1.00x" in s for s in verdict.sentences)
    assert not any("CULPRIT" in s or "LIKELY" in s for s in verdict.lines())


def test_a_slow_engine_is_capacity_even_where_a_steady_tenant_holds_most_of_the_rest():
    pool = Pool()
    for i in range(16):
        slow = i >= 10
        pool.engine(i, busy_s=9.6 if slow else 6.0, predicted_s=6.0)
        pool.tenant(i, "heavy", offered=40, service=8000.0, kv=700.0 if slow else 600.0)
        held = {"heavy": 12.0, CAPACITY: 7.5, SELF: 0.5} if slow else {"heavy": 0.5}
        pool.tenant(i, "y", missed=5 if slow else 0, waits={"slot": held})
    verdict = judge(pool.window(10, 16))
    assert verdict.kind == "capacity"
    assert verdict.tenant is None
    assert any("NOT heavy" in s and "no more than usual" in s for s in verdict.sentences)


def test_a_tenant_that_only_waits_behind_itself_is_told_so():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "y")
        pool.tenant(
            i, "x", offered=60, service=6000.0, missed=20,
            waits={"slot": {SELF: 90.0, "y": 5.0, CAPACITY: 2.0}},
        )  # fmt: skip
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("self", "x")
    assert verdict.culprit is None
    assert verdict.victims == ()
    assert verdict.level == "note"
    assert any("behind itself" in s for s in verdict.sentences)


def test_two_culprits_are_no_single_tenant():
    pool = Pool().calm(0, 10, ("a", "b", "y", "z"))
    for i in range(10, 16):
        pool.engine(i, busy_s=9.5, predicted_s=9.4)
        for t in ("a", "b"):
            pool.tenant(i, t, offered=60, service=6000.0, waits={"slot": {SELF: 20.0}})
        for t in ("y", "z"):
            pool.tenant(
                i, t, missed=5, service=500.0, waits={"slot": {"a": 17.0, "b": 15.0, SELF: 2.0}}
            )
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant, verdict.confidence) == ("no_single", None, "medium")
    assert verdict.culprit is None
    assert [n.tenant for n in verdict.culprits] == ["a", "b"]
    assert sum(n.share for n in verdict.culprits) == pytest.approx(1.0)
    text = "\n".join(verdict.sentences)
    assert "a 53%" in text
    assert "b 47%" in text


def test_a_frozen_step_shows_as_capacity():
    pool = Pool().calm(0, 10)
    pool.engine(10, busy_s=9.0, predicted_s=4.0, capacity_s=5.0, last_token_age_max_s=5.2, steps=40)
    for t in ("x", "y"):
        pool.tenant(10, t, missed=3, waits={"slot": {CAPACITY: 10.0, SELF: 0.5}})
    verdict = judge(pool.window(8, 11))
    assert (verdict.kind, verdict.tenant, verdict.confidence) == ("capacity", None, "high")
    assert any("no token for 5.2s" in s for s in verdict.sentences)


def test_a_pool_frozen_now_is_seen_in_the_open_bucket():
    pool = Pool().calm(0, 10)
    pool.engine(
        10, busy_s=4.5, predicted_s=0.1, capacity_s=4.4, last_token_age_s=4.4,
        last_token_age_max_s=4.4, observed_seconds=4.5, steps=1,
    )  # fmt: skip
    pool.tenant(10, "y", observed_seconds=4.5, waits={"slot": {CAPACITY: 4.0}})
    assert judge(pool.window(8, 11)).kind == "capacity"


def test_a_long_silence_with_steps_as_expected_is_not_frozen():
    pool = Pool().calm(0, 10)
    pool.engine(10, busy_s=9.5, predicted_s=9.4, capacity_s=0.1, last_token_age_max_s=6.0)
    pool.tenant(10, "y", missed=3, waits={"budget": {"x": 9.0}})
    pool.tenant(10, "x", offered=60, service=9000.0)
    verdict = judge(pool.window(8, 11))
    assert verdict.tenant == "x"
    assert any("NOT frozen: 6.0s" in s for s in verdict.exclusions)


def test_fewer_than_three_calm_buckets_abstain_and_say_so():
    verdict = judge(Pool().calm(0, 2).flood(2, 8).window(2, 8))
    assert (verdict.kind, verdict.tenant, verdict.onset) == ("unknown", None, None)
    assert "2 calm closed buckets" in verdict.headline
    assert "3 are needed" in verdict.headline


def test_a_window_without_engines_is_unknown():
    verdict = judge(Pool().window(0, 6))
    assert verdict.kind == "unknown"
    assert "no engine was heard" in verdict.headline


def test_a_window_that_begins_calm_brings_its_own_baseline():
    pool = Pool().calm(0, 5).flood(5, 12)
    verdict = judge(pool.window(0, 12))
    assert (verdict.tenant, verdict.onset) == ("x", pool.at(5))


def test_a_steady_heavy_bystander_is_not_named_and_its_part_is_handed_on_to_who_tipped_the_pool():
    """It holds most of every wait, in the baseline too; another's flood tipped the pool."""
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        pool.tenant(i, "heavy", offered=50, service=9000.0, kv=600.0)
        pool.tenant(i, "x", offered=60 if hot else 5, service=3000.0 if hot else 300.0)
        held = {"heavy": 26.0, "x": 14.0} if hot else {"heavy": 2.0, "x": 0.1}
        pool.tenant(i, "y", missed=5 if hot else 0, waits={"slot": held})
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant, verdict.share) == ("tenant", "x", pytest.approx(1.0))
    assert "heavy" not in {f.tenant for f in verdict.findings if f.name == "holder"}
    assert finding(verdict, "holder").value("share charged to it") == pytest.approx(0.36, abs=0.01)
    assert any("37% held by itself" in s for s in verdict.sentences)


def test_who_is_charged_next_to_nothing_is_not_named_for_what_others_hold():
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        pool.tenant(i, "heavy", offered=50, service=9000.0, kv=600.0)
        pool.tenant(i, "x", offered=60 if hot else 5, service=3000.0 if hot else 300.0)
        held = {"heavy": 40.0, "x": 1.0} if hot else {"heavy": 2.0, "x": 0.1}
        pool.tenant(i, "y", missed=5 if hot else 0, waits={"slot": held})
    verdict = judge(pool.window(10, 16))
    assert verdict.tenant is None
    assert any("NOT x" in s and "2% of the excess is charged to it" in s for s in verdict.sentences)


def test_the_word_culprit_asks_for_a_charge_of_its_own():
    """Most of it is handed on: likely, no more."""
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        pool.tenant(i, "heavy", offered=50, service=9000.0, kv=600.0)
        pool.tenant(i, "x", offered=60 if hot else 5, service=3000.0 if hot else 300.0)
        held = {"heavy": 40.0, "x": 4.0} if hot else {"heavy": 2.0, "x": 0.1}
        pool.tenant(i, "y", missed=5 if hot else 0, waits={"slot": held})
    verdict = judge(pool.window(10, 16))
    assert (verdict.tenant, verdict.confidence, verdict.culprit) == ("x", "medium", None)


def test_one_of_all_that_grew_is_not_named_for_holding_most():
    pool = Pool()
    names = ("a", "b", "c", "d")
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        for t in names:
            offered = (40 if t == "a" else 20) if hot else 10
            held = {"a": 11.0, "b": 4.0, "c": 3.0, "d": 2.0} if hot else {}
            pool.tenant(i, t, offered=offered, service=100.0 * offered, missed=4 if hot else 0,
                        waits={"slot": {h: s for h, s in held.items() if h != t}})  # fmt: skip
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("everyone", None)
    assert finding(verdict, "everyone").holds is Holds.YES


def test_whoever_outgrew_everyone_is_named_all_the_same():
    pool = Pool()
    names = ("a", "b", "c", "d")
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        for t in names:
            offered = (90 if t == "a" else 20) if hot else 10
            held = {"a": 16.0, "b": 2.0, "c": 1.0, "d": 1.0} if hot else {}
            pool.tenant(i, t, offered=offered, service=100.0 * offered, missed=4 if hot else 0,
                        waits={"slot": {h: s for h, s in held.items() if h != t}})  # fmt: skip
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("tenant", "a")
    assert finding(verdict, "everyone").holds is Holds.YES


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


def test_equal_waits_before_and_now_are_no_incident():
    pool = Pool()
    for i in range(20):
        pool.engine(i)
        pool.tenant(i, "heavy", offered=50, service=9000.0, kv=600.0)
        pool.tenant(i, "y", missed=2, waits={"slot": {"heavy": 9.0, SELF: 1.0}})
    verdict = judge(pool.window(10, 20))
    assert (verdict.kind, verdict.tenant) == ("quiet", None)


def test_the_drain_after_the_flood_belongs_to_the_incident():
    """A live window that sees only the drain still names who caused it, not those draining."""
    pool = Pool().calm(0, 10).flood(10, 14)
    for i in range(14, 17):
        pool.engine(i, busy_s=9.5, predicted_s=9.4)
        for t, o in (("y", "z"), ("z", "w"), ("w", "y")):
            pool.tenant(i, t, missed=2, service=3000.0, waits={"slot": {o: 8.0, SELF: 2.0}})
    verdict = judge(pool.window(14, 17))
    assert verdict.onset == pool.at(10)
    assert verdict.end == pool.at(17)
    assert verdict.tenant == "x"


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


def test_a_matrix_that_lost_rows_costs_the_high_confidence():
    pool = Pool().calm(0, 10).flood(10, 16)
    kept = pool.rows["interference_minute"]
    pool.rows["interference_minute"] = [
        r for r in kept if r.bucket_start not in (pool.at(11), pool.at(12))
    ]
    verdict = judge(pool.window(10, 16))
    assert (verdict.tenant, verdict.confidence, verdict.culprit) == ("x", "medium", None)
    assert any("the matrix accounts for 67% of the waits" in s for s in verdict.sentences)
    assert not any("CULPRIT" in s for s in verdict.sentences)


def test_charges_without_a_number_count_as_missing():
    pool = Pool().calm(0, 10).flood(10, 16)
    pool.charge(12, "y", "kv", "tenant", "x", None)
    verdict = judge(pool.window(10, 16))
    assert (verdict.tenant, verdict.confidence) == ("x", "medium")
    assert any("1 charges carry no number" in s for s in verdict.sentences)


def test_much_lost_capacity_costs_the_high_confidence():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i, busy_s=9.5, predicted_s=8.5)
        pool.tenant(i, "x", offered=60, service=6000.0)
        pool.tenant(i, "y", missed=5, waits={"kv": {"x": 14.0, CAPACITY: 5.0, SELF: 1.0}})
    verdict = judge(pool.window(10, 16))
    assert (verdict.tenant, verdict.confidence, verdict.culprit) == ("x", "medium", None)
    assert any(s.startswith("LIKELY x: 74%") for s in verdict.sentences)


def test_stalls_are_judged_where_those_who_missed_did_not_wait():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, service=6000.0)
        pool.tenant(i, "y", missed=5, waits={"stall": {"x": 5.0}})
    verdict = judge(pool.window(10, 16))
    assert verdict.tenant == "x"
    assert any("excess stall" in s for s in verdict.sentences)


def test_misses_without_waits_or_a_slow_engine_accuse_nobody():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, service=6000.0)
        pool.tenant(i, "y", missed=5)
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("unknown", None)


def test_everyone_growing_names_nobody():
    names = ("a", "b", "c", "d", "e")
    pool = Pool().calm(0, 10, names)
    for i in range(10, 16):
        pool.engine(i, busy_s=9.5, predicted_s=9.4)
        for t in names:
            held = {o: 4.0 for o in names if o != t} | {SELF: 4.0}
            pool.tenant(i, t, offered=30, service=3000.0, missed=8, waits={"slot": held})
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("everyone", None)
    assert any("3.00x the usual" in s for s in verdict.sentences)


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


def test_policy_pins_and_others_are_no_tenants():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "y", missed=5, waits={"kv": {POLICY: 15.0, OTHERS: 5.0}})
    verdict = judge(pool.window(10, 16))
    assert verdict.tenant is None
    assert any("(policy) 75%" in s for s in verdict.sentences)


def test_several_pools_must_be_told_apart():
    pool = Pool().calm(0, 10)
    for table, rows in Pool(name="second").calm(0, 10).rows.items():
        pool.rows[table] = [*pool.rows[table], *rows]
    with pytest.raises(PoolChoice, match="'main', 'second'"):
        pool.window(5, 10)
    assert read_window(pool, pool.at(5), pool.at(10), pool="second").pool == "second"
    with pytest.raises(PoolChoice, match="no pool 'third'"):
        pool.window(5, 10, pool="third")
