"""CSV of a page: every row of it, and nothing that a spreadsheet would work out."""

from __future__ import annotations

import csv
import io
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.handover.rows import FORMULA, as_csv, page_rows
from console.overview import Look
from console.screens import Place, Scene
from console.wide_columns import COLUMNS
from tests.console import rows as made
from tests.console.pages import test_heat as heat
from tests.console.test_overview import picture


def scene_of(picture) -> Scene:
    return Scene(picture, Place(), 80, 24, Look(tz=UTC))


@given(st.lists(st.text(max_size=12) | st.sampled_from([f"{c}cmd|' /C calc'!A0" for c in FORMULA]),
                min_size=1, max_size=4))  # fmt: skip
def test_no_cell_is_a_formula_and_every_text_is_read_back(texts):
    [row] = list(csv.reader(io.StringIO(as_csv(["n"] * len(texts), [texts]), newline="")))[1:]
    for said, text in zip(row, texts, strict=True):
        assert not said.startswith(FORMULA)
        told = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
        assert said in (told, f"'{told}")


def test_numbers_stay_numbers_and_what_is_not_known_is_empty():
    said = as_csv(["a", "b", "c", "d", "e"], [(-1.5, None, float("nan"), True, (1, 2))])
    assert said == "a,b,c,d,e\r\n-1.5,,,true,1 2\r\n"


@pytest.mark.parametrize("page", ["overview", "table"])
def test_every_tenant_is_there_with_every_column(page):
    holder = '=HYPERLINK("http://x")'
    found = page_rows(page, scene_of(picture(made.incident(holder=holder))))
    assert found.columns == ("tenant", "mark", *COLUMNS)
    assert {r[0] for r in found.rows} == {holder, *made.TENANTS} - {"acme"} | {"acme"}
    assert f"'{holder[0]}" in as_csv(found.columns, found.rows)


def test_the_matrix_is_there_cell_by_cell_and_closes():
    s = scene_of(picture())
    found = page_rows("matrix", s)
    assert sum(r[-1] for r in found.rows) == pytest.approx(s.picture.account.total_s)


def test_the_heats_own_rows_are_there():
    s = heat.scene(metric="kv")
    assert len(page_rows("heat", s).rows) == len(s.detail.rows("cells"))


def test_a_page_without_rows_yet_has_no_csv():
    assert page_rows("heat", scene_of(picture())) is None
