"""Figures, curves, plots and tables of a simulation: right, and fit for any terminal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Tenant
from engine.simulation.curves import MOST_SAMPLES, Curves
from engine.simulation.fairness import MOST_PAIRED, Differences, jain, paper_table
from engine.simulation.simulate import simulate
from engine.simulation.tables import comparison, report
from engine.simulation.terminal_plot import plot
from telemetry.plain import cells
from tests.engine.simulation.setups import poisson, setup

# -- fairness


def test_jain_is_one_for_equal_shares_and_one_over_n_for_a_monopoly():
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain([]) is None
    assert jain([0, 0]) is None


def test_tenants_backlogged_throughout_differ_by_their_accumulated_service():
    d = Differences()
    for served in ([0, 0], [90, 10], [120, 100]):
        d.sample(np.array(served, dtype=float), {0, 1})
    assert (d.most, d.last, d.tenants) == (80, 20, 2)


def test_service_while_one_had_nothing_waiting_is_no_difference():
    d = Differences()
    d.sample(np.array([0.0, 0.0]), {0})
    d.sample(np.array([1000.0, 0.0]), {0, 1})  # from here on both wait
    d.sample(np.array([1010.0, 4.0]), {0, 1})
    assert d.most == 6
    d.sample(np.array([5000.0, 4.0]), {0})
    d.sample(np.array([9000.0, 4.0]), {0, 1})
    assert (d.most, d.last) == (6, 0)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=4, max_size=4), max_size=12
    )
)
def test_differences_equal_those_counted_pair_by_pair(samples):
    d, total = Differences(), [0] * 4
    since: dict[tuple[int, int], int] = {}
    most = 0
    for sample in samples:
        total = [t + more for t, (more, _) in zip(total, sample, strict=True)]
        waiting = {i for i, (_, waits) in enumerate(sample) if waits}
        d.sample(np.array(total, dtype=float), waiting)
        pairs = {(i, j) for i in waiting for j in waiting if i != j}
        since = {p: since.get(p, total[p[0]] - total[p[1]]) for p in pairs}
        most = max([most, *(abs(total[i] - total[j] - since[i, j]) for i, j in pairs)])
    assert d.most == most


def test_more_tenants_than_can_be_paired_are_left_out_and_said():
    d = Differences()
    n = MOST_PAIRED + 40
    d.sample(np.zeros(n), set(range(n)))
    d.sample(np.arange(n, dtype=float), set(range(n)))
    assert d.tenants == MOST_PAIRED
    assert d.most == MOST_PAIRED - 1


def test_the_papers_table_metric_by_hand():
    # Two tenants: one served evenly as it asks, one asks and gets nothing in the first window.
    metric = paper_table(
        [0, 1], [10.0, 10.0], [0.0, math.nan], [600.0, math.nan], [6000, 300], [3000, 150]
    )
    # s_0 = 12,000 / 600 = 20 a second in every window; tenant 1 asks 600 / 60 = 10 in the first.
    assert metric.most == pytest.approx(10)
    assert metric.mean == pytest.approx(10 / 19)
    with pytest.raises(ValueError, match="no requests"):
        paper_table([], [], [], [], [], [])


def test_the_papers_table_metric_equals_a_count_in_small_steps():
    rng = np.random.default_rng(3)
    n = 60
    who = rng.integers(0, 3, n)
    arrived = np.sort(rng.uniform(0, 500, n))
    first = arrived + rng.uniform(0, 30, n)
    ended = first + rng.uniform(1, 90, n)
    prompt, output = rng.integers(1, 500, n), rng.integers(1, 500, n)
    ticks, step = np.linspace(30, 570, 19), 0.05
    diffs = []
    for t in ticks:
        at = np.arange(t - 30 + step / 2, t + 30, step)
        inside = (first[:, None] <= at) & (at < ended[:, None])
        amount = prompt + 2 * output
        got = amount * inside.sum(1) * step / (ended - first) / 60
        asked = amount * ((arrived >= t - 30) & (arrived < t + 30)) / 60
        s, d = (np.bincount(who, weights=v, minlength=3) for v in (got, asked))
        diffs.append(np.minimum(s.max() - s, np.abs(d - s)).sum())
    metric = paper_table(who, arrived, first, ended, prompt, output)
    assert metric.most == pytest.approx(max(diffs), rel=0.01)
    assert metric.mean == pytest.approx(np.mean(diffs), rel=0.01)
    assert metric.variance == pytest.approx(np.var(diffs), rel=0.03)


# -- curves


def test_curves_keep_a_bounded_number_of_samples_over_the_whole_time():
    curves = Curves()
    for second in range(5 * MOST_SAMPLES):
        curves.sample(float(second), np.array([float(second)]), np.ones(1), {0})
    assert MOST_SAMPLES / 4 < len(curves.at_s) <= MOST_SAMPLES
    assert curves.at_s[0] == 0
    apart = np.diff(curves.at_s)
    assert set(apart) == {apart[0]}
    assert [s[0] for s in curves.service] == curves.at_s


def test_many_tenants_are_sampled_less_often():
    few, many = Curves(1.0), Curves(1.0)
    few.sample(0.0, np.zeros(10), np.ones(10), set())
    many.sample(0.0, np.zeros(10_000), np.ones(10_000), set())
    assert few.next_s == 1.0
    assert 60 < many.next_s < 100


# -- plots

AT = [0.0, 1.0, 2.0, 3.0]


def test_a_plot_is_no_wider_than_asked_and_ends_with_its_letters():
    lines = plot(AT, [("up", [0, 1, 2, 3]), ("flat", [0, 0, 0, 0])], width=60, height=8)
    assert max(cells(line) for line in lines) <= 60
    assert lines[1].endswith("A")
    assert lines[8].endswith("B")
    assert lines[0] == "3 tokens"


def test_a_plain_plot_is_ascii_and_colour_is_only_there_when_asked_for():
    curves = [("up", [0, 1, 2, 3])]
    assert "".join(plot(AT, curves, plain=True)).isascii()
    assert "\x1b" not in "".join(plot(AT, curves))
    assert "\x1b[36m" in "".join(plot(AT, curves, colour=True))


def test_there_is_nothing_to_draw_of_nothing():
    assert plot([], []) == []
    assert plot([0.0], [("a", [1.0])]) == []
    assert plot(AT, [("a", [0, 0, 0, 0])]) == []
    assert plot([1.0, 1.0], [("a", [0, 5])]) == []


@given(
    st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=2, max_size=50),
    st.integers(20, 120),
    st.integers(2, 20),
)
def test_any_curve_can_be_drawn(values, width, height):
    at = [float(i) for i in range(len(values))]
    lines = plot(at, [("a", values), ("b", values[::-1])], width=width, height=height)
    assert not lines or len(lines) == height + 5
    assert all(cells(line) <= max(width, 26) for line in lines[1 : height + 2])


# -- tables

ODD = "evil\x1b[31m\nname\u202e"


def test_odd_names_stay_data():
    result = simulate(poisson(60, 10, (ODD, "b")), setup(Tenant(ODD), Tenant("b")))
    for lines in (report(result), comparison([result, result])):
        text = "\n".join(lines)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert all("\n" not in line for line in lines)
        assert "evil\\x1b[31m\\x0aname" in text


def test_a_report_shows_the_largest_and_counts_the_others():
    tenants = tuple(f"t{i}" for i in range(9))
    result = simulate(poisson(200, 25, tenants), setup(*map(Tenant, tenants)))
    text = "\n".join(report(result, top=2))
    largest = sorted(result.tenants, key=lambda t: -t.service)
    shown = [t.tenant for t in result.tenants if f"\n{t.tenant} " in text]
    assert sorted(shown) == sorted(t.tenant for t in largest[:2])
    assert "and 7 others with" in text
    side = "\n".join(comparison([result, result], top=2))
    assert "and 7 other tenants" in side


def test_a_folded_report_keeps_inside_the_width_and_loses_no_column():
    result = simulate(poisson(40, 5.0), setup())
    folded, whole = report(result, width=40, fold=True), report(result, width=40)
    assert max(map(cells, folded)) <= 40 < max(map(cells, whole))
    assert set(" ".join(whole).split()) <= set(" ".join(folded).split())
    side = comparison([result, result, result], width=40)
    assert max(map(cells, side[2:])) <= 40


def test_where_no_two_tenants_waited_no_difference_is_claimed():
    lines = " ".join(report(simulate(poisson(1, 1.0), setup())))
    assert "1 request of 1 tenant" in lines
    assert "no two tenants waited" in lines


def test_a_report_of_nothing_has_no_curves_and_no_errors():
    assert "no request came" in report(simulate([], setup()))[0]
