"""Numbers as short text: what is not known is a dash, what is not nothing does not read as zero."""

from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.formats import HALF_A_DAY_S, duration, percent, quantity, when

AT = 1_800_000_000.0  # 2027-01-15 08:00:00


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0s"), (0.04, "40ms"), (0.9996, "1.0s"), (9.4, "9.4s"), (9.96, "10s"),
     (41, "41s"), (120, "2m"), (7200, "2h"), (1e6, "12d")],
)  # fmt: skip
def test_durations_are_short(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.04, "<.1"), (0.4, "0.4"), (7, "7"), (212.4, "212"),
     (1900, "1.9k"), (12_000, "12k"), (999_600, "1.0M"), (3.1e6, "3.1M")],
)  # fmt: skip
def test_quantities_are_short(value, text):
    assert quantity(value) == text


@given(st.floats(0.0, 1e7))
def test_no_number_is_wider_than_its_column(value):
    assert len(duration(value)) <= 5
    assert len(quantity(value)) <= 5


def test_what_is_not_nothing_does_not_read_as_zero_nor_what_is_not_all_as_all():
    assert [percent(x) for x in (None, 0.0, 0.001, 0.5, 0.999, 1.0)] == [
        "-", "0%", "<1%", "50%", ">99%", "100%",
    ]  # fmt: skip


def test_an_instant_is_a_time_of_day_until_half_a_day_has_gone():
    assert when(AT, AT + HALF_A_DAY_S, UTC) == "08:00:00"
    assert when(AT, AT + HALF_A_DAY_S + 1.0, UTC) == "27-01-15"
