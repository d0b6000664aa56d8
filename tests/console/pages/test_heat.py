"""Heat: tenants by minutes, what is absent told from what is nothing, and sums that stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.cells import width
from console.detail import fetch
from console.frame import screen_lines
from console.heat import METRICS, OTHERS, STEPS, Column, Heat, HeatRow, columns_of, fold, heat_of
from console.lines import ASCII, Row
from console.overview import Look
from console.pages.heat import ASCII_SHADES, SHADES, HeatPage, _heat
from console.screens import TENANT, GoTo, Open, Place, Scene
from tests.console import places
from tests.console import rows as made
from tests.console.test_overview import END, ODD, picture

PAGE = HeatPage()
SOURCE = places.memory(made.incident())
PICTURE = picture()


def scene(cells=80, lines=24, picture=PICTURE, source=SOURCE, glyphs=None, **turned) -> Scene:
    place = Place(turned=tuple(sorted(turned.items())))
    asks = PAGE.wants(picture, place)
    look = Look(tz=UTC) if glyphs is None else Look(tz=UTC, glyphs=glyphs)
    return Scene(picture, place, cells, lines, look, fetch(source, asks))


def text(s: Scene) -> list[str]:
    return [x.plain for x in screen_lines(PAGE, s, s.detail.asks)]


def heard(start: float, pool: str = "main", still_open: bool = False) -> dict[str, object]:
    return {"pool": pool, "bucket_start": start, "bucket_s": 10.0, "provisional": still_open}


def cell(start: float, tenant: str | None, part: float | None, tenants: int = 1, **more):
    return {"bucket_start": start, "bucket_s": 10.0, "tenant": tenant, "tenants": tenants,
            "part": part, "whole": None, "ttft": None, **more}  # fmt: skip


def test_the_onset_is_seen_at_a_glance_and_the_worst_is_first():
    lines = text(scene())
    onset = next(x for x in lines if "onset !" in x).index("!", lines[4].index("onset") + 7)
    rows = [x for x in lines if any(t in x[:12] for t in made.TENANTS)]
    assert "acme" in rows[0]
    for row in rows:
        assert set(row[onset - 12 : onset]) == {" "}
        assert row[onset] in SHADES[1:]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (160, 50)])
def test_every_figure_fits_every_size(metric, size):
    s = scene(*size, metric=metric)
    lines = screen_lines(PAGE, s, s.detail.asks)
    assert len(lines) == size[1]
    assert max(x.width for x in lines) <= size[0]
    assert METRICS[metric].title in lines[2].plain or "wait" in lines[2].plain


def test_shades_read_in_ascii_and_without_colour():
    lines = "\n".join(text(scene(glyphs=ASCII)))
    assert lines.isascii()
    assert all(shade in lines for shade in ASCII_SHADES)


def test_a_minute_nobody_observed_is_no_minute_of_nothing():
    columns = columns_of([heard(0.0), heard(20.0), heard(30.0, still_open=True)], "main", 60)
    assert [(c.start, c.known, c.open) for c in columns] == [
        (0.0, True, False), (10.0, False, False), (20.0, True, False), (30.0, True, True),
    ]  # fmt: skip
    heat = heat_of([cell(0.0, "a", 5.0)], columns, METRICS["kv"], 10.0)
    [row] = heat.rows
    assert row.values == (5.0, None, 0.0, 0.0)


def test_of_no_targets_there_is_no_share_of_misses():
    columns = columns_of([heard(0.0), heard(10.0)], "main", 60)
    cells = [cell(0.0, "a", 1.0, whole=4.0), cell(10.0, "a", 0.0, whole=0.0)]
    [row] = heat_of(cells, columns, METRICS["miss"], 10.0).rows
    assert row.values == (0.25, None)


def test_waits_are_told_beyond_a_tenants_own_usual_minute():
    columns = columns_of([heard(10.0 * i) for i in range(5)], "main", 60)
    waits = [cell(10.0 * i, "a", 50.0 if i == 4 else 8.0) for i in range(5)]
    heat = heat_of(waits, columns, METRICS["wait"], 10.0)
    assert heat.usual
    assert heat.rows[0].values == (0.0, 0.0, 0.0, 0.0, 42.0)
    few = heat_of(waits[:2], columns[:2], METRICS["wait"], 10.0)
    assert not few.usual
    assert few.rows[0].values == (8.0, 8.0)


def test_buckets_of_another_pool_are_left_aside():
    assert columns_of([heard(0.0, pool="other")], "main", 60) == ()


@given(
    st.lists(
        st.lists(st.none() | st.floats(0.0, 1e6), min_size=3, max_size=3), min_size=1, max_size=9
    ),
    st.integers(1, 10),
)
def test_folding_keeps_the_sums_of_every_minute(values, lines):
    columns = tuple(Column(float(i), True, False) for i in range(3))
    rows = tuple(
        HeatRow(f"t{i}", 1, tuple(v), sum(x or 0.0 for x in v)) for i, v in enumerate(values)
    )
    heat = Heat(METRICS["kv"], 10.0, columns, (*rows, HeatRow(OTHERS, 7, (1.0, 2.0, None), 3.0)),
                1.0, False)  # fmt: skip
    folded = fold(heat, lines)
    assert len(folded) <= max(1, lines)
    assert sum(r.tenants for r in folded) == len(rows) + 7
    assert folded[-1].tenant is OTHERS
    for i in range(3):
        was = sum(r.values[i] or 0.0 for r in heat.rows)
        assert sum(r.values[i] or 0.0 for r in folded) == pytest.approx(was)


@given(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=20), st.floats(1e-6, 1e9))
def test_more_is_never_a_lighter_shade_and_nothing_has_none(values, top):
    heat = Heat(METRICS["kv"], 10.0, (), (), top, False)
    levels = [heat.level(v) for v in sorted(values)]
    assert levels == sorted(levels)
    assert all(0 <= level <= STEPS for level in levels)
    assert heat.level(0.0) == 0
    assert heat.level(top) == STEPS
    assert heat.level(None) is None


def test_the_minute_chosen_is_gone_to_and_moves_with_the_keys():
    s = scene()
    newest = PAGE.enter(s)
    assert newest == GoTo(END)
    place = PAGE.turn(s, "earlier")
    before = replace(s, place=place)
    assert PAGE.enter(before) == GoTo(END - made.BUCKET_S)
    assert PAGE.turn(before, "later") == replace(s.place, turned=(("minute", ""),))
    assert "v" in text(before)[4]


def test_enter_on_a_row_opens_the_tenant():
    s = scene()
    chosen = replace(s, place=replace(s.place, cursor=Row(TENANT, "acme")))
    assert PAGE.enter(chosen) == Open(TENANT, "acme")


def test_keys_go_through_every_figure_and_come_back():
    s, seen = scene(), []
    for _ in METRICS:
        s = replace(s, place=PAGE.turn(s, "metric"))
        seen.append(s.place.switch("metric", "wait"))
    assert sorted(seen) == sorted(METRICS)
    assert seen[-1] == "wait"


def test_names_are_data_and_columns_stay_aligned():
    rows = made.incident(holder=ODD[0], victims=ODD[1:])
    s = scene(picture=picture(rows), source=places.memory(rows))
    lines = text(s)
    assert len({width(x) for x in lines[5:14]}) == 1
    assert not any(ord(c) < 32 or c in "\x9b\u202e" for x in lines for c in x)


def test_a_crowd_is_folded_where_the_rows_are_read():
    rows = made.incident(victims=[f"t{i:03}" for i in range(90)])
    s = scene(picture=picture(rows), source=places.memory(rows))
    assert len({r["tenant"] for r in s.detail.rows("cells")}) == 61
    last = next(x for x in reversed(text(s)) if "others" in x)
    shown = sum(1 for x in text(s) if x[3:5] in ("t0", "ac"))
    assert f"others ({91 - shown})" in last


def test_what_two_draws_are_made_of_is_worked_out_once():
    s = scene()
    assert s.detail.rows("cells") is s.detail.rows("cells")
    assert _heat(s) is _heat(replace(s))
    other = replace(s, place=PAGE.turn(s, "metric"))
    assert _heat(other).metric is not _heat(s).metric
    assert _heat(replace(s, detail=fetch(SOURCE, s.detail.asks))) is not _heat(s)
