"""What became of an act is told against how it stood, and for how long changes still hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.act.after import SHOWN_S, after_line, in_force_line, left, remembered
from console.act.values import Change, EngineState
from console.lines import ASCII
from tests.console import rows as made
from tests.console.test_overview import END, picture

BEFORE = picture()
CHANGE = Change(number=1, at=END, until=END + 871.0, who="bob", why="",
                what="tenant 'acme': rpm none -> 60", state="in force")  # fmt: skip
STATE = EngineState(address="unix:/a", engine="e1", pool="main", version=2, changes=(CHANGE,))


def later(after_s: float):
    """The picture after the act: everybody is served alike again in the buckets since."""
    rows = made.incident()
    calm = [made.calm_bucket(END + 10.0 * i)[0] for i in range(int(after_s // 10))]
    engines = tuple(made.engine(END + 10.0 * i) for i in range(int(after_s // 10)))
    rows = replace(
        rows,
        tenants=(*rows.tenants, *(t for bucket in calm for t in bucket)),
        engines=(*rows.engines, *engines),
    )
    return picture(rows, END + after_s)


def test_the_effect_is_told_of_what_was_observed_since_and_no_sooner():
    done = remembered(BEFORE, "rpm 60", "acme")
    assert set(done.victims) == {"globex", "initech", "umbrella"}
    at_once = after_line(done, replace(BEFORE, now=END + 5.0), 160)
    assert at_once.plain == (
        "AFTER rpm 60 acme 0:05  victims' miss 67% > -  share 80% > -  no bucket has begun since"
    )  # of their TTFT nothing is known
    then = after_line(done, later(60.0), 160)
    assert "miss 67% > 0%  share 80% > 25%" in then.plain


@pytest.mark.parametrize("cells", [40, 60, 80, 160])
def test_the_line_fits_and_is_cut_between_its_figures(cells):
    done = remembered(BEFORE, "concurrency 4", "[red]" + "x" * 300)
    line = after_line(done, later(30.0), cells)
    assert line.width <= cells
    line = in_force_line([STATE], END, cells, ASCII)
    assert line.width <= cells
    assert line.plain.startswith("SET   1  14:31 left: tenant 'acme'")


def test_after_five_minutes_it_is_over_and_an_instant_before_it_knows_nothing_of_it():
    done = remembered(BEFORE, "rpm 60", "acme")
    assert after_line(done, replace(BEFORE, now=END + SHOWN_S), 80) is not None
    assert after_line(done, replace(BEFORE, now=END + SHOWN_S + 1.0), 80) is None
    assert after_line(done, replace(BEFORE, now=END - 1.0), 80) is None


def test_where_nobody_is_hurt_the_others_are_looked_at():
    calm = picture(made.calm(), made.T0 + 120.0)
    done = remembered(calm, "drain", "acme")
    assert done.victims == ()
    assert "others' miss" in after_line(done, calm, 80).plain


@pytest.mark.parametrize(
    ("until", "words"),
    [(None, "permanent"), (END + 59.0, "0:59 left"), (END - 5.0, "0:00 left"),
     (END + 7500.0, "2h05 left"), (END + 3 * 86_400.0, "3d left")],
)  # fmt: skip
def test_how_long_a_change_still_holds(until, words):
    assert left(replace(CHANGE, until=until), END) == words


def test_the_change_that_ends_first_stands_first_and_one_that_is_over_stands_not():
    soon = replace(CHANGE, number=2, until=END + 60.0, what="drain of 'globex'")
    over = replace(CHANGE, number=3, state="undone", what="gone")
    ever = replace(CHANGE, number=4, until=None, what="weight 2")
    line = in_force_line([replace(STATE, changes=(over, ever, CHANGE, soon))], END, 200)
    assert line.plain == (
        "SET   3  1:00 left: drain of 'globex' (bob); 14:31 left: tenant 'acme': rpm none -> 60 "
        "(bob); permanent: weight 2 (bob)"
    )
    assert in_force_line([replace(STATE, changes=(over,))], END, 80) is None
