"""Whom the verdict names, and how surely."""

from __future__ import annotations

from datetime import UTC

import pytest

from telemetry.case import open_case
from telemetry.findings.finding import Holds, Strength
from telemetry.verdict import judge
from tests.telemetry.synthetic_rows import CAPACITY, SELF, Pool
from tests.telemetry.verdict_bench import all_grew, finding, tipped


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


def test_a_window_that_begins_calm_brings_its_own_baseline():
    pool = Pool().calm(0, 5).flood(5, 12)
    verdict = judge(pool.window(0, 12))
    assert (verdict.tenant, verdict.onset) == ("x", pool.at(5))


def test_a_steady_heavy_bystander_is_not_named_and_its_part_is_handed_on_to_who_tipped_the_pool():
    """It holds most of every wait, in the baseline too; another's flood tipped the pool."""
    verdict = judge(tipped({"heavy": 26.0, "x": 14.0}).window(10, 16))
    assert (verdict.kind, verdict.tenant, verdict.share) == ("tenant", "x", pytest.approx(1.0))
    assert "heavy" not in {f.tenant for f in verdict.findings if f.name == "holder"}
    assert finding(verdict, "holder").value("share charged to it") == pytest.approx(0.36, abs=0.01)
    assert any("37% held by itself" in s for s in verdict.sentences)


def test_the_word_culprit_asks_for_a_charge_of_its_own():
    """Most of it is handed on: likely, no more."""
    verdict = judge(tipped({"heavy": 40.0, "x": 8.5}).window(10, 16))
    assert (verdict.tenant, verdict.confidence, verdict.culprit) == ("x", "medium", None)
    assert verdict.share == pytest.approx(1.0)


def test_whoever_outgrew_everyone_is_named_all_the_same():
    pool = all_grew(90, {"a": 16.0, "b": 2.0, "c": 1.0, "d": 1.0})
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("tenant", "a")
    assert finding(verdict, "everyone").holds is Holds.YES


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


def test_a_first_miss_is_likely_and_not_yet_a_culprit():
    """One bucket with one miss: the flood is told at once, the word waits for more."""
    pool = Pool().calm(0, 10)
    pool.engine(10)
    pool.tenant(10, "x", offered=60, service=6000.0)
    pool.tenant(10, "y", missed=1, waits={"slot": {"x": 12.0}})
    first = judge(pool.window(8, 11))
    assert (first.tenant, first.confidence, first.culprit) == ("x", "medium", None)
    pool.engine(11)
    pool.tenant(11, "x", offered=60, service=6000.0)
    pool.tenant(11, "y", missed=3, waits={"slot": {"x": 40.0}})
    assert judge(pool.window(8, 12)).culprit == "x"


def test_a_newcomer_that_asks_for_what_it_asked_for_since_it_came_did_not_rise():
    """Its usual is counted from its first request on, not from the hour before."""
    pool = Pool()
    for i in range(40):
        hot = i >= 34
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        if i >= 28:
            pool.tenant(i, "new", offered=30, service=3000.0)
        pool.tenant(i, "x", offered=60 if hot else 5, service=6000.0 if hot else 500.0)
        held = {"new": 8.0, "x": 12.0} if hot else {"new": 0.2}
        pool.tenant(i, "y", missed=5 if hot else 0, waits={"slot": held})
    verdict = judge(pool.window(34, 40))
    assert (verdict.tenant, verdict.share) == ("x", pytest.approx(1.0))


@pytest.mark.parametrize(("bystanders", "named"), [(6, False), (60, True)])
def test_in_a_crowd_a_flood_is_named_though_little_of_the_wait_is_charged_to_it(
    bystanders: int, named: bool
) -> None:
    # An eighth of y's wait is behind x, the rest behind others that ask for what they always did:
    # more than two equal parts among sixty, less than one among six.
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.0, predicted_s=9.0)
        pool.tenant(i, "x", offered=60 if hot else 5, service=3000.0 if hot else 300.0)
        others = {f"b{n}": (70.0 if hot else 0.7) / bystanders for n in range(bystanders)}
        for name in others:
            pool.tenant(i, name, offered=50, service=900.0)
        waits = others | {"x": 10.0 if hot else 0.1}
        pool.tenant(i, "y", missed=5 if hot else 0, waits={"slot": waits})
    case = open_case(pool.window(10, 16))
    assert ("x" in case.makers) is named
    assert (case.lines[0].share > 0.9) is named
