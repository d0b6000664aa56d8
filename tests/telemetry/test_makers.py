"""Who rose has made a line only where it holds enough of it, and more than it ever had."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from telemetry.case import open_case
from telemetry.makers import MAKES, MAKES_LEAST, makes_floor
from telemetry.verdict import judge
from tests.telemetry.synthetic_rows import Pool

SMALL = ("a", "b", "c", "d", "e")


def grown(now: dict[str, int], held: dict[str, float]) -> Pool:
    """A heavy tenant with half of the service and five small ones; `y`, as small, waits behind
    `held` from bucket 10 on, and then they ask for `now` requests."""
    usual = {"heavy": 50} | dict.fromkeys((*SMALL, "y"), 10)
    pool = Pool()
    for i in range(16):
        hot = i >= 10
        pool.engine(i, busy_s=9.5, predicted_s=9.4)
        for t, n in (usual | now if hot else usual).items():
            hurt = hot and t == "y"
            waits = {"slot": held} if hurt else {}
            pool.tenant(i, t, offered=n, service=100.0 * n, missed=4 if hurt else 0, waits=waits)
    return pool


def test_a_heavy_tenant_that_grew_as_the_pool_did_has_made_no_line_though_it_holds_half_of_it():
    """Two of the small ones grew more and the others not at all: nobody would say everyone."""
    held = {"heavy": 30.0} | dict.fromkeys(SMALL, 6.0)
    case = open_case(grown({"heavy": 95, "a": 30, "b": 30}, held).window(10, 16))
    assert "heavy" in case.risen
    assert case.makers == frozenset()
    assert judge(case.window).tenant is None


def test_a_heavy_tenant_that_grew_alone_has_made_it():
    held = {"heavy": 50.0} | dict.fromkeys(SMALL, 3.0)
    case = open_case(grown({"heavy": 200}, held).window(10, 16))
    assert case.makers == {"heavy"}
    assert judge(case.window).tenant == "heavy"


def test_who_holds_little_more_of_the_line_than_ever_but_is_served_far_more_may_have_made_it():
    held = {"heavy": 30.0, "a": 16.0} | dict.fromkeys(SMALL[1:], 8.0)
    case = open_case(grown({"heavy": 50, "a": 80}, held).window(10, 16))
    assert case.makers == {"a"}


@given(st.integers(0, 5000))
def test_the_larger_the_crowd_the_less_of_a_line_is_enough_but_never_next_to_nothing(holders: int):
    floor = makes_floor(holders)
    assert MAKES_LEAST <= floor <= MAKES
    assert floor >= makes_floor(holders + 1)
