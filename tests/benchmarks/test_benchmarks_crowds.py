"""Incidents among crowds: what is drawn, and that the largest of them is still found."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.attribution.crowds import (
    ALLIED,
    CROWD_KINDS,
    SIZES,
    crowd_kind_of,
    crowd_policy_of,
    make_crowd,
    size_of,
)
from benchmarks.attribution.methods import RUNG_2, judge
from benchmarks.attribution.run import main
from benchmarks.attribution.scenarios import MOST_REQUESTS, POLICIES
from benchmarks.attribution.told import window
from benchmarks.attribution.truth import play


def test_kinds_sizes_and_policies_go_round_alike_in_both_halves():
    each = len(CROWD_KINDS) * len(SIZES) * len(POLICIES)
    for half in (0, 1):
        seeds = range(half, half + 2 * each, 2)
        assert len({(crowd_kind_of(s), size_of(s), crowd_policy_of(s)) for s in seeds}) == each
    made = make_crowd(5004)
    assert (made.kind, made.policy) == (crowd_kind_of(5004), crowd_policy_of(5004))


@given(st.integers(0, 2000))
@settings(max_examples=8, deadline=None)
def test_a_crowds_incident_is_as_large_as_it_says_and_begins_at_the_onset(seed):
    s = make_crowd(seed)
    assert len(s.setup.tenants) == size_of(seed)
    assert s.requests <= MOST_REQUESTS
    assert 0 < s.asked_s[0] < s.onset_s < s.asked_s[1] <= s.end_s
    for player in s.players:
        assert all(s.onset_s <= a.at_s <= s.over_s + 1 for a in s.excess[player])


def test_a_few_ask_for_most_and_most_for_next_to_nothing():
    asked = Counter(a.tenant for a in make_crowd(5002).calm)
    tenth = sum(n for _, n in asked.most_common(100))
    assert tenth > 0.5 * asked.total()
    assert sum(n > 3 for n in asked.values()) < 500


def test_allies_are_small_and_each_brings_a_part_of_the_flood():
    s = make_crowd(5008)
    assert crowd_kind_of(5008) == "crowd-allied"
    assert len(s.players) == ALLIED
    asked = Counter(a.tenant for a in s.calm)
    larger = sorted(asked.values(), reverse=True)[: len(s.setup.tenants) // 2 - ALLIED]
    assert all(asked[p.tenant] <= larger[-1] for p in s.players)
    assert all(s.excess[p] for p in s.players)


def test_whoever_is_new_has_sent_nothing_before():
    s = make_crowd(5012)
    (player,) = s.players
    assert player.tenant not in {a.tenant for a in s.calm}
    assert s.excess[player]


def test_kinds_of_crowds_are_asked_for_with_crowds(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--kinds", "crowd-flood", "--incidents", "1"])
    assert left.value.code == 2
    assert "--crowds has others" in capsys.readouterr().err


@pytest.mark.full
def test_one_flood_among_a_hundred_tenants_is_found():
    scenario = make_crowd(5004)
    rows, _ = play(scenario)
    judged = judge(window(scenario, rows))
    (player,) = scenario.players
    assert judged.verdict.culprit == player.tenant
    assert judged.of(RUNG_2).shares[player.tenant] > 0.9
    assert len(judged.victims) > 20
