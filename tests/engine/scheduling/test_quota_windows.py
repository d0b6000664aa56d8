"""Bucket, fixed window, sliding log: what each lets through, and what each can hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import WINDOWS
from engine.scheduling.windows import make_window

TPM = 60_000


def rejected(
    kind: str, size: int, share: float, minutes: float = 10.0, phase_s: float = 0.0
) -> int:
    """Rejections of evenly spaced requests of `size` tokens that use `share` of the limit."""
    window = make_window(kind, TPM, None, phase_s)
    gap_s = size / (share * TPM) * 60.0
    count = 0
    for i in range(math.ceil(minutes * 60.0 / gap_s)):
        now_s = phase_s + i * gap_s
        if window.fits(size, now_s):
            window.take(size, now_s)
        else:
            count += 1
    return count


@given(st.sampled_from(WINDOWS), st.integers(100, TPM * 15 // 100), st.floats(0, 1e6))
def test_an_even_85_percent_for_ten_minutes_is_never_rejected(kind, size, phase_s):
    assert rejected(kind, size, 0.85, phase_s=phase_s) == 0


@given(st.integers(100, TPM), st.floats(0, 1e6))
def test_a_bucket_holds_an_even_load_whatever_the_size_of_its_requests(size, phase_s):
    assert rejected("bucket", size, 0.85, phase_s=phase_s) == 0
    assert rejected("bucket", size, 1.0, phase_s=phase_s) == 0


@pytest.mark.parametrize("kind", ["fixed", "sliding"])
def test_windows_cannot_hold_an_even_load_of_requests_of_most_of_a_minute(kind):
    assert rejected(kind, TPM * 6 // 10, 0.85) > 0


def most_in_60_s(kind: str, asks: list[float]) -> int:
    """The most of `asks` (instants) that are let through within any 60 s, at 60 a minute."""
    window = make_window(kind, 60, None, 0.0)
    through = []
    for at_s in sorted(asks):
        if window.fits(1, at_s):
            window.take(1, at_s)
            through.append(at_s)
    return max(sum(t <= u < t + 60.0 for u in through) for t in through)


def test_a_fixed_window_lets_twice_its_limit_through_at_the_boundary_and_others_do_not():
    around = [59.0 + i / 1000 for i in range(2000)]  # a second before the minute, one after
    assert most_in_60_s("fixed", around) == 120
    assert most_in_60_s("bucket", around) <= 62, "what it holds, and two seconds' refill"
    assert most_in_60_s("sliding", around) == 60


@given(st.lists(st.floats(0, 300), min_size=1, max_size=300))
def test_a_sliding_log_never_lets_more_than_its_limit_through_in_any_60_s(asks):
    assert most_in_60_s("sliding", [a / 5 for a in asks]) <= 60


@given(st.lists(st.tuples(st.integers(1, 400), st.floats(0, 20)), min_size=1, max_size=60))
def test_a_bucket_lets_through_no_more_than_burst_and_rate(asks):
    burst, rate_per_s = 500, 1000 / 60
    window = make_window("bucket", 1000, burst, 0.0)
    now_s, through = 0.0, 0
    for amount, passed in asks:
        now_s += passed
        if window.fits(amount, now_s):
            window.take(amount, now_s)
            through += amount
        assert through <= burst + rate_per_s * now_s + 1e-3


@given(
    st.sampled_from(WINDOWS),
    st.lists(st.tuples(st.integers(1, 300), st.floats(0, 25), st.floats(0, 70)), max_size=30),
)
def test_what_is_taken_and_wholly_given_back_at_once_was_never_taken(kind, asks):
    used, clean = (make_window(kind, 1000, None, 0.0) for _ in range(2))
    now_s = 0.0
    for amount, passed, later in asks:
        now_s += passed
        if used.fits(amount, now_s):
            used.give_back(amount, used.take(amount, now_s), now_s)
        assert used.left(now_s) == pytest.approx(clean.left(now_s))
        now_s += later


@pytest.mark.parametrize("kind", WINDOWS)
def test_more_than_a_window_can_hold_never_fits(kind):
    assert make_window(kind, 10, None, 0.0).wait_s(11, 0.0) is None
    assert make_window(kind, 0, None, 0.0).wait_s(1, 0.0) is None


def test_a_sliding_log_forgets_after_exactly_sixty_seconds():
    window = make_window("sliding", 1, None, 0.0)
    window.take(1, 7.25)
    assert not window.fits(1, math.nextafter(67.25, 0))
    assert window.fits(1, 67.25)


def test_a_wait_is_the_shortest_whole_number_of_seconds():
    for kind, expected in (("bucket", 31), ("fixed", 50), ("sliding", 60)):
        window = make_window(kind, 1000, None, 10.0)
        window.take(1000, 10.0)
        assert window.wait_s(501, 10.0) == expected
        assert not window.fits(501, 10.0 + expected - 1)
        assert window.fits(501, 10.0 + expected)
