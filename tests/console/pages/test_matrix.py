"""The matrix closes to the overview's totals, whatever is shown of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.account import CHARGED, EXCESS
from console.cells import width
from console.frame import screen_lines
from console.lines import ASCII
from console.matrix import MORE, matrix_of, victims_of
from console.overview import Look
from console.pages.matrix import MatrixPage
from console.screens import Place, Scene
from telemetry.conventions import WAIT_REASONS
from telemetry.held import CAPACITY_HELD, SELF_HELD, Cells, Holder
from tests.console import rows as made
from tests.console.test_overview import ODD, picture

PAGE = MatrixPage()
PICTURE = picture()


def scene(cells=80, lines=24, picture=PICTURE, look=None, **turned) -> Scene:
    place = Place(turned=tuple(sorted(turned.items())))
    return Scene(picture, place, cells, lines, look or Look(tz=UTC))


def text(s: Scene) -> list[str]:
    return [x.plain for x in screen_lines(PAGE, s)]


HOLDERS = (Holder("tenant", "a"), Holder("tenant", "b"), Holder("tenant", "c"), SELF_HELD,
           CAPACITY_HELD)  # fmt: skip
VICTIMS = tuple(f"v{i}" for i in range(6))
one_cell = st.tuples(
    st.integers(0, 5), st.integers(0, 3), st.integers(0, 4), st.floats(0.0, 1e4), st.floats(0.0, 1)
)


def cells_of(drawn) -> Cells:
    victim, reason, holder, charged, part = zip(*drawn, strict=True) if drawn else ((),) * 5
    of = np.array(charged, dtype=np.float64)
    codes = [np.array(c, dtype=np.intp) for c in (victim, reason, holder)]
    excess = of * np.array(part, dtype=np.float64)
    return Cells(*codes, of, excess, np.zeros(len(of)), VICTIMS, WAIT_REASONS, HOLDERS)


@given(
    st.lists(one_cell, max_size=30),
    st.sampled_from((CHARGED, EXCESS)),
    st.sampled_from((None, *WAIT_REASONS)),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_rows_and_columns_close_to_one_total_whatever_has_a_line(
    drawn, basis, reason, rows, columns, first
):
    cells = cells_of(drawn)
    m = matrix_of(cells, basis, reason, rows=rows, columns=columns, first=first)
    seconds = cells.charged if basis == CHARGED else cells.excess
    wanted = [reason is None or WAIT_REASONS[r] == reason for r in cells.reason]
    whole = float(seconds[np.array(wanted, dtype=bool)].sum()) if len(seconds) else 0.0
    assert m.total_s == pytest.approx(whole)
    assert sum(r.total_s for r in m.rows) == pytest.approx(whole)
    assert sum(m.totals) == pytest.approx(whole)
    for r in m.rows:
        assert sum(r.seconds) == pytest.approx(r.total_s)
    named = [r.total_s for r in m.rows if r.victim is not None]
    assert named == sorted(named, reverse=True)
    assert len(m.rows) <= rows + (1 if rows == 1 else 0)
    narrow = m.narrowed(columns)
    assert len(narrow.columns) == min(len(m.columns), columns)
    assert sum(narrow.totals) == pytest.approx(whole)
    for r in narrow.rows:
        assert sum(r.seconds) == pytest.approx(r.total_s)


@given(st.lists(one_cell, max_size=30))
def test_by_reason_it_adds_up_to_all_reasons(drawn):
    cells = cells_of(drawn)
    parts = [matrix_of(cells, CHARGED, r, rows=9, columns=9).total_s for r in WAIT_REASONS]
    assert sum(parts) == pytest.approx(matrix_of(cells, CHARGED, None, rows=9, columns=9).total_s)


def test_it_closes_to_the_overviews_totals():
    account = PICTURE.account
    m = matrix_of(account.cells, EXCESS, None, rows=50, columns=50)
    assert m.total_s == pytest.approx(account.total_s)
    waits = {t.name: t.wait_s for t in account.tenants if t.wait_s}
    assert {r.victim: r.total_s for r in m.rows} == pytest.approx(waits)
    held = {t.name: t.held_s for t in account.tenants if t.held_s}
    apart = {k: s for k, s in account.not_tenants if s}
    columns = {c.name or c.kind: s for c, s in zip(m.columns, m.totals, strict=True)}
    assert columns == pytest.approx(held | apart)


def test_the_printed_rows_and_columns_add_up_to_the_printed_total():
    lines = text(scene())
    body = [x.split() for x in lines[4:] if x.strip() and x.strip()[-1].isdigit()]
    last = next(x for x in lines if x.startswith("   all")).split()
    totals = [float(x[1 + (x[0] in ("!!", "*"))].rstrip("s")) for x in body if "all" not in x]
    assert sum(totals) == pytest.approx(float(last[1].rstrip("s")))
    assert sum(map(float, last[2:])) == pytest.approx(float(last[1].rstrip("s")))


def test_the_keys_go_from_excess_to_charged_and_through_the_reasons():
    s = scene()
    assert "excess seconds" in text(s)[2]
    charged = replace(s, place=PAGE.turn(s, "basis"))
    assert "charged seconds" in text(charged)[2]
    assert replace(s, place=PAGE.turn(charged, "basis")).place.switch("basis", "") == EXCESS
    kv = s
    while kv.place.switch("only", "all") != "kv":
        kv = replace(kv, place=PAGE.turn(kv, "only"))
    assert "kv alone" in text(kv)[2]


def test_without_a_baseline_it_says_that_there_is_no_excess():
    early = picture(made.incident(calm_buckets=1), made.T0 + 70.0)
    assert early.account.basis == CHARGED
    assert "no excess: no baseline yet" in text(scene(120, picture=early))[2]


def test_where_nobody_waited_that_is_said():
    calm = picture(made.calm(), made.T0 + 120.0)
    assert "nobody waited" in "\n".join(text(scene(picture=calm)))


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (160, 50)])
def test_it_fits_every_size_and_odd_names_stay_aligned(size):
    s = scene(*size, picture=picture(made.incident(holder=ODD[0], victims=ODD[1:])))
    lines = screen_lines(PAGE, s)
    assert len(lines) == size[1]
    assert max(x.width for x in lines) <= size[0]
    rows = [x for x in lines if x.row is not None]
    assert len({width(x.plain) for x in rows}) == 1
    assert not any(ord(c) < 32 or c in "\x9b\u202e" for x in lines for c in x.plain)


def test_a_narrow_screen_cuts_off_no_figure():
    s = scene(40, 10)
    lines = text(s)
    last = next(x for x in lines if x.startswith("   all")).split()
    assert sum(map(float, last[2:])) == pytest.approx(float(last[1].rstrip("s")))
    at = [i for i, x in enumerate(screen_lines(PAGE, s)) if x.row is not None]
    assert at
    assert not any(s.look.glyphs.ellipsis in lines[i] for i in at)


def test_more_holders_than_columns_are_one_column():
    s = scene(60, picture=picture(made.incident(victims=[f"t{i}" for i in range(9)])))
    m = matrix_of(s.picture.account.cells, CHARGED, None, rows=4, columns=3)
    assert [c.kind for c in m.columns].count(MORE) <= 1
    assert m.rows[-1].victim is None
    assert m.rows[-1].tenants == len(victims_of(s.picture.account.cells, CHARGED, None)) - 3
    assert text(replace(s, look=Look(tz=UTC, glyphs=ASCII)))[3].isascii()


def test_what_an_unknown_kind_held_is_with_the_others_and_nobodys_by_name():
    cells = replace(cells_of([(0, 0, 0, 8.0, 1.0), (0, 0, 1, 2.0, 1.0)]),
                    holders=(Holder("tenant", "a"), Holder("moon", "x"), *HOLDERS[2:]))  # fmt: skip
    m = matrix_of(cells, CHARGED, None, rows=4, columns=4)
    assert [(c.kind, c.name) for c in m.columns] == [("tenant", "a"), ("others", "")]
    assert m.totals == (8.0, 2.0)
