"""The attribution benchmark: its scenarios, its truth and its figures hang together."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from statistics import correlation, fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import lead_time
from benchmarks.attribution.methods import (
    CHARGED,
    CPI2,
    KV_OVER,
    METHODS,
    PEARSON,
    RIVALS,
    RUNG_2,
    TOKEN_SHARE,
    judge,
    scores,
)
from benchmarks.attribution.run import main, one, read
from benchmarks.attribution.scenarios import (
    CAPACITY,
    KINDS,
    MOST_REQUESTS,
    POLICIES,
    Player,
    kind_of,
    make,
    policy_of,
)
from benchmarks.attribution.score import Row, distance, is_false, row, summarise, wilson
from benchmarks.attribution.told import window
from benchmarks.attribution.truth import (
    CULPRIT,
    LATENCY,
    NONE,
    SELF,
    UNCLEAR,
    WAIT,
    Lived,
    facts,
    leaders,
    parts,
    play,
    truth_for,
)
from engine.simulation.workload import read_workload
from sample_incidents import incident_path
from telemetry.case import open_case
from telemetry.window import tenants_of, value_in, wait_s

A, B = Player("tenant", "a"), Player("tenant", "b")
ENGINE = Player(CAPACITY)


def lived(wait_s: float, missed: int = 0) -> Lived:
    return Lived(wait_s, 2 * wait_s, missed)


@pytest.fixture(scope="module")
def flood():
    """The smallest flood: one culprit under FCFS."""
    scenario = make(0)
    rows, runs = play(scenario)
    return scenario, rows, runs


# -- scenarios


def test_a_seed_is_one_incident_and_the_halves_hold_the_same_kinds():
    assert make(5) == make(5)
    assert make(5) != make(7)
    for half in (0, 1):
        seeds = range(half, half + 2 * len(KINDS) * len(POLICIES), 2)
        assert {(kind_of(s), policy_of(s)) for s in seeds} == {*product(KINDS, POLICIES)}
    assert (make(5).kind, make(5).policy) == (kind_of(5), policy_of(5))


@given(st.integers(0, 5000))
@settings(max_examples=40, deadline=None)
def test_every_incident_is_small_and_what_is_added_begins_at_the_onset(seed):
    s = make(seed)
    assert s.requests <= MOST_REQUESTS == 5000
    assert 0 < s.asked_s[0] < s.onset_s < s.asked_s[1] <= s.end_s
    for player in s.players:
        assert all(s.onset_s <= a.at_s <= s.over_s + 1 for a in s.excess[player])
    times = [a.at_s for a in s.arrivals(s.players)]
    assert times == sorted(times)
    assert len(times) == s.requests
    assert list(s.arrivals(())) == list(s.calm)
    assert not s.setup_of(()).faults
    assert not s.setup_of(()).changes


# -- truth


def test_one_players_part_is_the_run_minus_the_run_without_it():
    runs = {frozenset({A}): {"v": lived(50.0)}, frozenset(): {"v": lived(20.0)}}
    assert parts(runs, ["v"], WAIT) == {A: {"v": 30.0}}
    assert truth_for(runs, ["v"]).shares == {"a": 1.0}
    assert truth_for(runs, ["v"], LATENCY).excess_s == 60.0


def test_two_that_hurt_only_together_share_alike_and_ones_own_waiting_is_self():
    runs = {
        frozenset({A, B}): {"v": lived(100.0), "a": lived(40.0)},
        frozenset({A}): {"v": lived(0.0), "a": lived(40.0)},
        frozenset({B}): {"v": lived(0.0), "a": lived(0.0)},
        frozenset(): {"v": lived(0.0), "a": lived(0.0)},
    }
    assert truth_for(runs, ["v"]).shares == {"a": 0.5, "b": 0.5}
    assert truth_for(runs, ["a"]).shares == {SELF: 1.0}


@given(st.lists(st.floats(0, 1000), min_size=8, max_size=8))
@settings(max_examples=50, deadline=None)
def test_the_parts_of_all_players_add_up_to_the_run_minus_the_run_without_any(values):
    players = (A, B, ENGINE)
    runs = {
        frozenset(p for i, p in enumerate(players) if n >> i & 1): {"v": lived(values[n])}
        for n in range(8)
    }
    whole = sum(p["v"] for p in parts(runs, ["v"], WAIT).values())
    assert whole == pytest.approx(values[7] - values[0], abs=1e-6)


def test_an_incident_has_a_culprit_where_a_tenant_made_most_of_what_others_missed():
    def made(with_all, without_a):
        return {
            frozenset({A, ENGINE}): {"v": lived(100.0, 9), "a": lived(500.0, 50)},
            frozenset({A}): {"v": lived(with_all, 9), "a": lived(500.0, 50)},
            frozenset({ENGINE}): {"v": lived(without_a, 1), "a": lived(0.0)},
            frozenset(): {"v": lived(0.0), "a": lived(0.0)},
        }

    guilty = facts(made(90.0, 10.0))
    assert (guilty.kind, guilty.victims, guilty.first) == (CULPRIT, ("v",), ("a",))
    assert facts(made(5.0, 90.0)).kind == NONE
    assert facts(made(20.0, 60.0)).kind == UNCLEAR


def test_who_misses_nothing_is_no_victim():
    runs = {frozenset({A}): {"v": lived(50.0, 2)}, frozenset(): {"v": lived(0.0)}}
    assert facts(runs).kind == NONE


def test_two_so_close_are_both_first():
    assert leaders({"a": 0.5, "b": 0.45, "c": 0.05, CAPACITY: 0.9}) == ("a", "b")


def test_without_the_flood_nobody_waits_and_with_it_they_do(flood):
    scenario, _, runs = flood
    found = facts(runs)
    assert found.kind == CULPRIT
    assert found.first == (scenario.players[0].tenant,)
    assert found.shares[scenario.players[0].tenant] > 0.99


# -- methods and figures


def test_the_flood_is_found_by_every_rung_and_the_shares_close(flood):
    scenario, rows, _ = flood
    judged = judge(window(scenario, rows))
    assert [a.method for a in judged.answers] == list(METHODS)
    for answer in judged.answers:
        assert sum(answer.shares.values()) == pytest.approx(1.0)
    assert judged.of(RUNG_2).first == scenario.players[0].tenant
    assert not {SELF, CAPACITY} & {k for m in RIVALS for k in judged.of(m).shares}


def test_what_is_handed_on_reaches_those_whose_demand_rose(flood):
    scenario, rows, _ = flood
    case = open_case(window(scenario, rows))
    culprit = scenario.players[0].tenant
    assert set(case.risen) == {culprit}
    judged = judge(window(scenario, rows))
    assert judged.of(RUNG_2).shares == {culprit: pytest.approx(1.0)}
    assert judged.of(CHARGED).shares[culprit] < 0.99


def test_the_rivals_scores_are_what_one_would_work_out_by_hand(flood):
    scenario, rows, _ = flood
    case = open_case(window(scenario, rows))
    victim, tenant = case.victims[0].tenant, scenario.players[0].tenant
    calm, minutes = case.baseline.buckets, [*case.baseline.buckets, *case.buckets]

    def of(buckets, who, column):
        return [value_in(b, who, column) or 0.0 for b in buckets]

    def waits(buckets):
        return [wait_s(b, victim) or 0.0 for b in buckets]

    rates = [w / b.observed_s for w, b in zip(waits(minutes), minutes, strict=True)]
    assert score_of(case, PEARSON, victim, tenant) == pytest.approx(
        correlation(rates, of(minutes, tenant, "kv_bytes_avg"))
    )
    asked = [max(1.0, n) for n in of(minutes, victim, "admitted_requests")]
    hurt = [w / n for w, n in zip(waits(minutes), asked, strict=True)]
    bound = fmean(hurt[: len(calm)]) + 2 * pstdev(hurt[: len(calm)]) + 1e-3
    used = of(minutes, tenant, "service")
    over = [1 - bound / h if h > bound else h / bound - 1 for h in hurt]
    cpi2 = sum(u * o for u, o in zip(used, over, strict=True)) / sum(used)
    assert score_of(case, CPI2, victim, tenant) == pytest.approx(cpi2)
    whole = 0.0
    others = [t for t in tenants_of(case.buckets) if t != victim]
    for b, waited in zip(case.buckets, waits(case.buckets), strict=True):
        more = {
            t: max(0.0, of([b], t, "kv_bytes_avg")[0] - fmean(of(calm, t, "kv_bytes_avg")))
            for t in others
        }
        beyond = max(0.0, waited - case.baseline.waits[victim] * b.observed_s)
        whole += beyond * more[tenant] / sum(more.values()) if any(more.values()) else 0.0
    assert score_of(case, KV_OVER, victim, tenant) == pytest.approx(whole)
    served = sum(of(case.buckets, tenant, "service"))
    assert score_of(case, TOKEN_SHARE, victim, tenant) == pytest.approx(served)


def score_of(case, method, victim, tenant):
    names = tenants_of(case.buckets)
    return scores(case, [victim], method)[0][names.index(tenant)]


def test_what_the_benchmark_judges_is_what_the_verdict_says(flood):
    scenario, rows, _ = flood
    judged = judge(window(scenario, rows))
    ours = judged.of(RUNG_2)
    assert ours.named == judged.verdict.tenant == scenario.players[0].tenant
    assert ours.score == judged.verdict.share


def test_lost_minutes_and_a_clock_that_jumped_show_in_what_is_told(flood):
    scenario, rows, _ = flood
    whole = window(replace(scenario, step=None), rows)
    gone = scenario.onset_s // 60 * 60
    told = window(replace(scenario, dropped_s=(gone,), step=None), rows)
    base = scenario.setup.start_unix_s
    assert {b.start for b in whole.buckets} - {b.start for b in told.buckets} == {base + gone}
    jumped = window(replace(scenario, step=(gone, 37.0)), rows)
    starts = [b.start for b in jumped.buckets]
    assert base + gone not in starts
    assert base + gone + 37.0 in starts


def test_distance_is_half_of_what_differs():
    assert distance({"a": 1.0}, {"a": 1.0}) == 0.0
    assert distance({"a": 1.0}, {"b": 1.0}) == 1.0
    assert distance({"a": 0.6, "b": 0.4}, {"a": 1.0}) == pytest.approx(0.4)


def test_a_part_seen_in_few_incidents_may_be_far_from_it():
    assert wilson(3, 274) == pytest.approx((0.0037, 0.0317), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_only_who_made_next_to_nothing_is_accused_falsely(flood):
    scenario, rows, runs = flood
    made = row(scenario, runs, judge(window(scenario, rows)))
    assert not is_false(made, RUNG_2)
    said = {m: replace(s, guilt=0.2) for m, s in made.said.items()}
    wronged = replace(made, said=said)
    assert is_false(wronged, RUNG_2)
    summary = summarise([made, wronged])
    assert summary.culprits == 2
    assert summary.false_accusations == 0.5
    assert not summary.met["false accusations <= 0.01"]


def test_a_run_goes_on_where_it_was_broken_off(tmp_path, capsys):
    out, keep = tmp_path / "rows.jsonl", tmp_path / "played"
    asked = ["--incidents", "1", "--seed", "28", "--processes", "1", "--out", str(out)]
    out.write_text('{"seed": 28, "kind"')  # a line that a kill has cut short
    assert main([*asked, "--keep", str(keep), "--json"]) in (0, 1)
    figures = json.loads(capsys.readouterr().out)
    assert figures["incidents"] == 1
    first = read(out)
    assert first == [Row.read(first[0].dump())]
    assert main([*asked, "--keep", str(keep)]) in (0, 1)
    assert "method" in capsys.readouterr().out
    assert read(out) == first
    assert one(28, keep) == first[0]  # judged anew from what was played


# -- lead time


def test_alarms_come_once_and_misses_at_the_instant_the_target_passes():
    workload = read_workload(incident_path("five-pm-contexts") / "workload.toml")
    found, columns = lead_time.played(lead_time.preceded(workload, -720.0), 480.0)
    missed = lead_time.misses(workload, columns)
    assert missed == sorted(missed)
    assert all(at > 240 for at, _ in missed)
    alarms = list(lead_time.alarms(found))
    assert len({(a.alert, a.severity) for a in alarms}) == len(alarms) > 0
    assert min(a.at_s for a in alarms) > 240


def test_a_calm_workload_has_no_incident_left_and_is_as_long_as_asked():
    workload = read_workload(incident_path("steady-heavy-bystander") / "workload.toml")
    still = lead_time.calm(workload, 0.5, 7)
    assert {t.end_s for t in still.traffic} == {1800.0}
    assert len(still.traffic) == len(workload.traffic) - 1
    assert not still.incidents
