"""Where the verdict names nobody: the engine, everyone, oneself, or too little is known."""

from __future__ import annotations

from datetime import UTC

from telemetry.case import open_case
from telemetry.findings.finding import Holds
from telemetry.rising import rises
from telemetry.verdict import judge
from tests.telemetry.synthetic_rows import CAPACITY, OTHERS, POLICY, SELF, Pool
from tests.telemetry.verdict_bench import all_grew, finding, tipped


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


def test_one_of_all_that_grew_is_not_named_for_holding_most():
    pool = all_grew(40, {"a": 11.0, "b": 4.0, "c": 3.0, "d": 2.0})
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("everyone", None)
    assert finding(verdict, "everyone").holds is Holds.YES


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


def test_equal_waits_before_and_now_are_no_incident():
    pool = Pool()
    for i in range(20):
        pool.engine(i)
        pool.tenant(i, "heavy", offered=50, service=9000.0, kv=600.0)
        pool.tenant(i, "y", missed=2, waits={"slot": {"heavy": 9.0, SELF: 1.0}})
    verdict = judge(pool.window(10, 20))
    assert (verdict.kind, verdict.tenant) == ("quiet", None)


def test_misses_without_waits_or_a_slow_engine_accuse_nobody():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "x", offered=60, service=6000.0)
        pool.tenant(i, "y", missed=5)
    verdict = judge(pool.window(10, 16))
    assert (verdict.kind, verdict.tenant) == ("unknown", None)


def test_policy_pins_and_others_are_no_tenants():
    pool = Pool().calm(0, 10)
    for i in range(10, 16):
        pool.engine(i)
        pool.tenant(i, "y", missed=5, waits={"kv": {POLICY: 15.0, OTHERS: 5.0}})
    verdict = judge(pool.window(10, 16))
    assert verdict.tenant is None
    assert any("(policy) 75%" in s for s in verdict.sentences)


def test_fewer_than_three_calm_buckets_abstain_and_say_so():
    verdict = judge(Pool().calm(0, 2).flood(2, 8).window(2, 8))
    assert (verdict.kind, verdict.tenant, verdict.onset) == ("unknown", None, None)
    assert "2 calm closed buckets" in verdict.headline
    assert "3 are needed" in verdict.headline


def test_a_window_without_engines_is_unknown():
    verdict = judge(Pool().window(0, 6))
    assert verdict.kind == "unknown"
    assert "no engine was heard" in verdict.headline


def test_who_is_charged_too_little_is_not_named_for_what_others_hold():
    """It asks for twelve times its usual, and one second in forty is waited behind it."""
    verdict = judge(tipped({"heavy": 40.0, "x": 1.0}).window(10, 16))
    assert verdict.tenant is None
    assert finding(verdict, "holder").tenant == "heavy"
    assert any("NOT heavy: it holds" in s and "no more than usual" in s for s in verdict.sentences)


def test_a_flood_that_hardly_touches_others_is_its_own_harm():
    """In its first minute one other request is late: nobody is named for it."""
    pool = Pool(60.0).calm(0, 10)
    pool.engine(10)
    pool.tenant(10, "x", offered=160, service=16000.0, missed=90, waits={"slot": {SELF: 700.0}})
    pool.tenant(10, "y", missed=1, waits={"slot": {"x": 6.0}})
    verdict = judge(pool.window(8, 11), zone=UTC)
    assert (verdict.kind, verdict.tenant, verdict.culprits) == ("self", "x", ())
    assert [v.tenant for v in verdict.victims] == ["y"]
    assert any(s.startswith("SELF-INFLICTED: x missed 90") for s in verdict.sentences)
    assert any("1 HURT" in s for s in verdict.sentences)


def touched(waits: dict[str, float]) -> Pool:
    """One request of `y` waits a little while `x` asks for several times its usual."""
    pool = Pool().calm(0, 10)
    pool.engine(10)
    pool.tenant(10, "x", offered=60, service=6000.0)
    pool.tenant(10, "z", offered=10, service=1000.0)
    pool.tenant(10, "y", offered=1, missed=1, waits={"slot": waits})
    return pool


def test_of_a_request_that_waited_behind_many_nobody_is_named_for_what_others_hold():
    verdict = judge(touched({"x": 3.0, "z": 4.0, "w": 2.0}).window(8, 11))
    assert (verdict.kind, verdict.tenant, verdict.culprit) == ("no_single", None, None)
    assert any(s.startswith("TOO LITTLE to name anybody") for s in verdict.sentences)
    assert any("33% of it behind x" in s for s in verdict.sentences)


def test_of_a_request_that_waited_behind_one_that_one_is_likely():
    verdict = judge(touched({"x": 7.0, "z": 2.0}).window(8, 11))
    assert (verdict.kind, verdict.tenant, verdict.confidence) == ("tenant", "x", "medium")


def test_a_tenant_whose_busy_minutes_were_no_calm_ones_has_not_risen_in_the_next_busy_one():
    """Every sixth bucket it asks for twice as much and somebody waits: of those buckets none is
    calm, and all are usual."""
    pool = Pool()
    for i in range(25):
        busy = i % 6 == 0
        pool.engine(i)
        pool.tenant(i, "heavy", offered=22 if busy else 10, service=2200.0 if busy else 1000.0)
        pool.tenant(i, "y", missed=4 if busy else 0, waits={"slot": {"heavy": 8.0 * busy}})
    window = pool.window(24, 25)
    case = open_case(window)
    assert {b.start for b in case.baseline.buckets} <= {pool.at(i) for i in range(25) if i % 6}
    calm_alone = rises(case.buckets, case.baseline, case.accounts.growth)
    assert {r.tenant for r in calm_alone if r.rose} == {"heavy"}
    assert not case.rose("heavy")
    assert judge(window).tenant is None
