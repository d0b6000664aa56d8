"""Which traces are kept: who was hurt always, of the others a part that all stores agree on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.outbound.tail import Rates, Tail, chosen
from tests.telemetry.delivered import T0, request


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"slo_met": False}, "slo"),
        ({"missed_ttft": True}, "slo"),
        ({"missed_tpot": True}, "slo"),
        ({"missed_gap": True}, "slo"),
        ({"outcome": "rejected"}, "outcome"),
        ({"outcome": "failed"}, "outcome"),
        ({"outcome": "timed_out"}, "outcome"),
        ({"preemptions": 1}, "preempted"),
        ({"trace_sampled": True}, "client"),
    ],
)
def test_who_was_hurt_refused_or_marked_is_kept_at_any_ratio(columns: dict[str, Any], why: str):
    assert Tail(Rates(ratio=0.0)).keep(request(1, **columns), "t", T0) == why


def test_an_ordinary_request_is_left_out_and_counted():
    tail = Tail(Rates(ratio=0.0))
    for columns in ({"slo_met": True}, {"outcome": "aborted"}, {"preemptions": 0}):
        assert tail.keep(request(1, **columns), "t", T0) is None
    assert tail.left_out() == {"ratio": 3, "rate": 0, "always_rate": 0}


def test_about_as_many_are_chosen_as_the_ratio_says():
    found = sum(chosen(f"{n:032x}", 0.05) for n in range(20_000))
    assert 850 < found < 1150


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_who_is_chosen_at_a_ratio_is_chosen_at_every_higher_one(trace: str, a: float, b: float):
    low, high = sorted((a, b))
    assert not chosen(trace, low) or chosen(trace, high)
    assert chosen(trace, 1.0)
    assert not chosen(trace, 0.0)


def test_beyond_their_rates_both_kinds_are_left_out_apart():
    tail = Tail(Rates(ratio=1.0, most_per_s=5.0, always_most_per_s=20.0))
    ordinary = [tail.keep(request(n), "t", T0) for n in range(100)]
    hurt = [tail.keep(request(n, slo_met=False), "t", T0) for n in range(100)]
    assert ordinary.count("ratio") == 10  # two seconds' worth at once
    assert hurt.count("slo") == 40
    assert tail.left_out() == {"ratio": 0, "rate": 90, "always_rate": 60}
    assert [tail.keep(request(n), "t", T0 + 1) for n in range(9)].count("ratio") == 5


@given(st.lists(st.floats(0, 100), max_size=300))
def test_over_any_time_no_more_are_kept_than_the_rate_and_what_may_come_at_once(at: list[float]):
    tail = Tail(Rates(ratio=1.0, most_per_s=2.0))
    kept = sum(tail.keep(request(1), "t", T0 + t) is not None for t in at)
    assert kept <= 2.0 * (max(at, default=0.0)) + 4.0 + 1e-6
