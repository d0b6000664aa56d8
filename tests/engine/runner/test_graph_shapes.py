"""Which decode steps are recorded, and which of them a step takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.runner.graphs import MOST, Shape, candidates, shapes


@given(st.integers(1, 1024), st.integers(0, 256))
def test_the_shapes_are_bounded_and_hold_every_step(most_rows, most_adapters):
    known = shapes(most_rows, most_adapters)
    assert len(known) <= MOST
    assert list(known) == sorted(set(known))
    assert all(s.adapters <= min(s.rows, most_adapters) for s in known)
    for rows in (1, most_rows // 2 or 1, most_rows):
        assert candidates(known, rows, 0)[0].adapters == 0
        assert candidates(known, rows, min(rows, most_adapters))
    assert not candidates(known, most_rows + 1, 0)


@given(st.integers(1, 64), st.integers(0, 16), st.data())
def test_a_step_takes_a_shape_of_less_than_twice_its_rows_and_adapters(most_rows, most, data):
    rows = data.draw(st.integers(1, most_rows))
    adapters = data.draw(st.integers(0, min(rows, most)))
    taken = candidates(shapes(most_rows, most), rows, adapters)[0]
    assert rows <= taken.rows < 2 * rows
    assert adapters <= taken.adapters <= max(0, 2 * adapters - 1)


def test_a_step_of_long_contexts_takes_more_rows_next():
    known = shapes(4, 2)
    assert candidates(known, 2, 1) == [Shape(2, 1), Shape(2, 2), Shape(4, 1), Shape(4, 2)]
