"""What is concluded from pairs of rounds."""

from __future__ import annotations

import random

import pytest

from benchmarks.paired import ratios


def test_eight_pairs_drop_one_at_either_end_and_stay_above_nine_in_ten():
    found = ratios([(float(i), 1.0) for i in range(1, 9)])
    assert (found.median, found.low, found.high, found.pairs) == (4.5, 2.0, 7.0, 8)
    assert found.sure == pytest.approx(1 - 2 * 9 / 256)


def test_a_single_pair_says_little_and_says_so():
    found = ratios([(3.0, 2.0)])
    assert (found.low, found.median, found.high) == (1.5, 1.5, 1.5)
    assert found.sure == 0.0
    with pytest.raises(ValueError, match="no pair of rounds"):
        ratios([])


def test_the_interval_holds_the_median_as_often_as_it_says():
    pick = random.Random(1)
    held = 0
    for _ in range(2000):
        found = ratios([(pick.lognormvariate(0.0, 0.5), 1.0) for _ in range(9)])
        held += found.low <= 1.0 <= found.high
    assert held / 2000 == pytest.approx(found.sure, abs=0.03)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.99, 1.0, 1.01, 1.02, 1.0, 0.98], "unchanged"),
        ([1.2, 1.3, 1.25, 1.4, 1.22, 1.3], "more"),
        ([0.8, 1.3, 1.0, 1.4, 0.9, 1.3], "undecided"),
    ],
)
def test_a_change_is_told_from_none_and_from_not_knowing(values, verdict):
    assert ratios([(v, 1.0) for v in values]).verdict(0.05) == verdict
