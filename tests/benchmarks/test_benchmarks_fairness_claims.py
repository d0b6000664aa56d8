"""The benchmarks that print fairness claims, at sizes that take a second or two each."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import long_prefill, published, round_robin


def served(*requests: tuple[int, float, float, float, float]) -> published.Served:
    """(tenant, arrived, first token, end, service) of each."""
    tenant, arrived, first, ended, amount = zip(*requests, strict=True)
    return published.Served(
        np.array(tenant), *(np.array(c, dtype=float) for c in (arrived, first, ended, amount))
    )


def test_the_difference_is_what_one_was_served_while_both_waited():
    # Tenant 0 gets 600 from 1 s to 3 s; a request of each waits until 4 s.
    run = served((0, 0, 1, 3, 600), (0, 0, 4, 5, 600), (1, 0, 4, 5, 600))
    assert run.difference(10.0) == (600.0, 600.0)


def test_a_lead_won_alone_is_no_difference_until_the_other_waits_and_then_it_counts():
    alone = served((0, 0, 1, 3, 600), (1, 8, 8, 9, 600))
    assert alone.difference(10.0) == (0.0, 0.0)
    later = served((0, 0, 1, 3, 600), (0, 6, 8, 9, 300), (1, 5, 7, 9, 300))
    assert later.difference(10.0)[0] == 600.0  # nothing restarts


def test_service_is_spread_evenly_from_the_first_token_to_the_end():
    run = served((0, 0, 1, 5, 400), (0, 0, 3, 5, 100), (1, 0, 3, 5, 100))
    most, _ = run.difference(10.0)  # the last look before 3 s, when nobody waits any more
    assert most == pytest.approx(400 * (3 - published.LOOK_S - 1) / 4)


@pytest.mark.parametrize(("suite", "paper"), [("overload", 9050), ("on_off_overload", 7541)])
def test_the_published_run_measured_here_is_near_the_published_figure(suite, paper):
    path = published.TRACES / f"VTC_{suite}.jsonl"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: the published runs are no part of the product")
    run = published.Served.published(path)
    most, _ = run.difference(float(run.arrived_s.max()))
    assert 0.75 * paper < most < 1.25 * paper


def test_under_overload_vtc_keeps_the_difference_small_and_the_throughput_whole():
    span_s = 60.0
    arrivals = published.own_arrivals(published.SUITES[0], span_s)
    vtc, fcfs = (published.play(arrivals, p, 1.0, span_s) for p in ("vtc", "fcfs"))
    assert vtc.most < 1.1 * 9050
    assert fcfs.end > 2 * vtc.most
    assert vtc.ttft_s[0] < fcfs.ttft_s[0] / 2
    assert abs(vtc.tokens_per_s / fcfs.tokens_per_s - 1) < 0.05


def test_five_token_requests_do_not_wait_for_five_hundred_token_ones_under_vtc():
    load = round_robin.play(0.5, 2.0, {"light": 49.0, "heavy": 0.49}, 64, 30.0)
    better = load.times_better()
    assert better["worst"] > 6.3
    assert better["difference"] > 2.9
    assert load.vtc.light_share > load.round_robin.light_share


def test_a_long_prompt_beside_decoding_stays_within_the_bound_and_is_charged_for_the_stall():
    bounded, free, alone = (
        long_prefill.play(n, 16_384, bound) for n, bound in ((2, 0.05), (2, None), (0, 0.05))
    )
    judged = long_prefill.claims([bounded], [free], alone)
    assert [text for good, text in judged if not good] == []
    assert bounded.charged_s["long"] > 0
    assert alone.late_stall_s == 0.0
