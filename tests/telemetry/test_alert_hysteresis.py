"""An alert fires after its condition has held, ends after it has been clear, and never faster."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from telemetry.alerts.hysteresis import START, Phase, step
from telemetry.findings.finding import Holds

looks = st.lists(
    st.tuples(st.sampled_from(list(Holds)), st.floats(0.1, 60.0)), min_size=1, max_size=80
)
bounds = st.floats(0.0, 200.0)


@given(looks, bounds, bounds)
def test_it_never_fires_without_having_held_nor_ends_without_having_been_clear(
    seen: list[tuple[Holds, float]], for_s: float, clear_s: float
) -> None:
    was, held, clear = START, None, None
    for holds, dt in seen:
        now = step(was, holds, dt, for_s=for_s, clear_s=clear_s)
        if holds is Holds.YES:
            held, clear = (0.0 if held is None else held + dt), None
        elif holds is Holds.NO:
            held, clear = None, (0.0 if clear is None else clear + dt)
        if now.firing and not was.firing:
            assert holds is Holds.YES
            assert held is not None
            assert held >= for_s - 1e-9
        if was.firing and not now.firing:
            assert holds is Holds.NO
            assert clear is not None
            assert clear >= clear_s - 1e-9
        was = now


@given(looks, bounds, bounds)
def test_two_openings_lie_at_least_both_bounds_apart(
    seen: list[tuple[Holds, float]], for_s: float, clear_s: float
) -> None:
    was, at, opened = START, 0.0, []
    for holds, dt in seen:
        at += dt
        now = step(was, holds, dt, for_s=for_s, clear_s=clear_s)
        if now.firing and not was.firing:
            opened.append(at)
        was = now
    gaps = [b - a for a, b in pairwise(opened)]
    assert all(gap >= for_s + clear_s - 1e-6 for gap in gaps)


@given(looks, bounds, bounds)
def test_what_is_unknown_moves_nothing(
    seen: list[tuple[Holds, float]], for_s: float, clear_s: float
) -> None:
    with_gaps = without = START
    for holds, dt in seen:
        with_gaps = step(with_gaps, holds, dt, for_s=for_s, clear_s=clear_s)
        if holds is not Holds.UNKNOWN:
            without = step(without, holds, dt, for_s=for_s, clear_s=clear_s)
    assert with_gaps == without


def test_a_condition_without_a_time_fires_at_once() -> None:
    assert step(START, Holds.YES, 0.0, for_s=0.0, clear_s=0.0).phase is Phase.FIRING


def test_a_pending_condition_that_clears_begins_anew() -> None:
    at = START
    for holds in (Holds.YES, Holds.YES, Holds.NO, Holds.YES):
        at = step(at, holds, 10.0, for_s=20.0, clear_s=0.0)
    assert (at.phase, at.held_s) == (Phase.PENDING, 0.0)
