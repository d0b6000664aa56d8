"""When requests come, how long they are, whose they are: claims about what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from engine.simulation.arrivals import (
    LARGEST_BLOCK,
    OnOff,
    Process,
    Ramp,
    Recorded,
    Spacing,
    Steady,
)
from engine.simulation.lengths import Even, Lognormal, RecordedLengths
from engine.simulation.popularity import Zipf, fingerprint, generator


def instants(process, start_s=0.0, end_s=10_000.0, pace=1.0):
    blocks = list(process.draw(generator("test"), start_s, end_s, pace))
    assert max(map(len, blocks), default=0) <= LARGEST_BLOCK
    return np.concatenate(blocks) if blocks else np.empty(0)


@pytest.mark.parametrize("cv", [0.0, 0.3, 1.0, 3.0])
def test_gaps_have_the_rate_and_the_spread_that_was_asked_for(cv):
    at = instants(Process(Spacing(cv), Steady(5.0)))
    gaps = np.diff(at)
    assert (gaps >= 0).all()
    assert len(at) == pytest.approx(50_000, rel=0.05)
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1, abs=1e-6)


def test_even_arrivals_are_a_gap_apart_from_the_start_and_stop_before_the_end():
    at = instants(Process(Spacing(0.0), Steady(4.0)), 10.0, 20.0)
    assert at.tolist() == [10 + k / 4 for k in range(1, 40)]


@pytest.mark.parametrize("cv", [0.0, 1.0, 2.0])
def test_nothing_comes_while_off_and_the_rate_holds_while_on(cv):
    at = instants(Process(Spacing(cv), OnOff(2.0, 60.0, 30.0)), 90.0, 9090.0)
    phase = (at - 90.0) % 90.0
    assert (phase <= 60.0 + 1e-6).all()
    assert len(at) == pytest.approx(2.0 * 60 * 100, rel=0.08)


def test_a_ramp_brings_the_area_under_its_line():
    at = instants(Process(Spacing(0.0), Ramp(0.2, 2.0, 600.0)), 0.0, 600.0)
    assert len(at) == pytest.approx(660, abs=1)
    assert np.count_nonzero(at < 300) == pytest.approx(0.2 * 300 + 1.8 / 600 * 300**2 / 2, abs=1)
    falling = instants(Process(Spacing(0.0), Ramp(2.0, 0.0, 600.0)), 0.0, 600.0)
    assert len(falling) == pytest.approx(600, abs=1)
    assert (np.diff(falling) > 0).all()


def test_a_rate_that_falls_to_nothing_brings_no_more():
    at = instants(Process(Spacing(1.0), Ramp(1.0, 0.0, 100.0)), 0.0, 1000.0)
    assert len(at) == pytest.approx(50, abs=25)
    assert at.max() <= 100.0


def test_recorded_instants_come_as_they_were_and_are_thinned_by_the_pace():
    recorded = Recorded(tuple(k / 10 for k in range(100)))
    assert instants(recorded, 5.0, 10.0).tolist() == [5.0 + k / 10 for k in range(50)]
    assert len(instants(recorded, pace=0.5)) == 50
    assert len(instants(recorded, pace=3.0)) == 300


def test_twice_the_pace_is_twice_the_rate():
    slow = instants(Process(Spacing(1.0), Steady(1.0)))
    fast = instants(Process(Spacing(1.0), Steady(1.0)), pace=2.0)
    assert len(fast) == pytest.approx(2 * len(slow), rel=0.03)


def test_a_lognormal_has_the_mean_and_cv_that_were_asked_for():
    drawn = Lognormal.of_mean(128, 0.8).draw(generator(1), 200_000, 0)
    assert drawn.mean() == pytest.approx(128, rel=0.01)
    assert drawn.std() / drawn.mean() == pytest.approx(0.8, rel=0.03)
    assert drawn.min() >= 1


def test_a_lognormal_has_the_median_and_p95_that_were_asked_for():
    drawn = Lognormal.of_median(100, 900).draw(generator(1), 200_000, 0)
    assert np.median(drawn) == pytest.approx(100, rel=0.02)
    assert np.quantile(drawn, 0.95) == pytest.approx(900, rel=0.03)


def test_bounds_hold_for_the_wildest_distribution():
    drawn = Lognormal.of_mean(1000, 50.0, least=8, most=4096).draw(generator(1), 50_000, 0)
    assert drawn.min() == 8
    assert drawn.max() == 4096


def test_even_lengths_reach_both_ends_and_fixed_ones_do_not_move():
    drawn = Even(3, 6).draw(generator(1), 4000, 0)
    assert sorted(set(drawn.tolist())) == [3, 4, 5, 6]
    assert set(Even(7, 7).draw(generator(1), 9, 0).tolist()) == {7}


def test_recorded_lengths_go_round_in_their_order():
    lengths = RecordedLengths((5, 6, 7))
    assert lengths.draw(generator(1), 4, 2).tolist() == [7, 5, 6, 7]


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0, 1.4])
def test_zipf_shares_are_what_the_exponent_says(exponent):
    zipf = Zipf(50, exponent)
    assert zipf.shares.sum() == pytest.approx(1.0)
    assert zipf.shares[0] / zipf.shares[9] == pytest.approx(10**exponent)
    counts = np.bincount(zipf.draw(generator(1), 200_000), minlength=50) / 200_000
    assert np.abs(counts - zipf.shares).max() < 0.004
    assert zipf.at(0.0) == 0
    assert zipf.at(1 - 2**-53) == 49


def test_what_a_generator_draws_hangs_on_its_name_alone():
    assert fingerprint("tenant") == 0x296312BD09B320AF, "else recorded seeds mean nothing"
    assert generator(1, "a").random(3).tolist() == generator(1, "a").random(3).tolist()
    assert generator(1, "a").random() != generator(1, "b").random()
