"""Keys as data: each has its action, and the last line and the help tell them all."""

from __future__ import annotations

import pytest

from console.app import ConsoleApp
from console.keys import KEYS, WORDS, help_lines, key_at, key_line
from console.lines import Line, Piece
from console.pages import PAGES


@pytest.mark.parametrize("cells", [40, 78, 120, 160])
def test_help_tells_every_key_and_no_line_is_too_wide(cells):
    lines = help_lines(cells, 24)
    assert all(line.width <= cells for line in lines)
    room = cells if cells < 100 else cells // 2 - 1
    columns = [[line.plain[at : at + room] for line in lines]
               for at in range(0, cells - room + 1, room + 2)]  # fmt: skip
    told = " ".join(" ".join(x for column in columns for x in column).split())
    for key in KEYS:  # nothing of it is cut off
        assert f" {key.shown} {key.long}" in f" {told}"
    assert all(f" {word} {what}" in told for word, what in WORDS)


def test_help_that_fits_two_columns_needs_no_scrolling():
    assert len(help_lines(158, 50)) <= 50


def test_every_key_has_its_action_and_no_page_two_of_one_key():
    assert all(hasattr(ConsoleApp, f"action_{key.action.partition('(')[0]}") for key in KEYS)
    bound = {b.key for b in ConsoleApp.BINDINGS}
    assert {key.keys for key in KEYS} <= bound
    for page in PAGES:
        for own in (True, False):
            names = [n for key in KEYS if key.works(page) and bool(key.where) is own
                     for n in key.keys.split(",")]  # fmt: skip
            assert len(names) == len(set(names)), page


@pytest.mark.parametrize("page", PAGES)
def test_the_last_line_tells_only_keys_that_work_there_and_fits(page):
    for cells in (40, 80, 160):
        line = "".join(p.text for p in key_line(page, cells))
        assert len(line) <= cells
        told = {k.short for k in KEYS if k.rank and k.works(page)}
        shorts = {k.short for k in KEYS if k.rank} - told
        assert not shorts & set(line.split())


@pytest.mark.parametrize("page", PAGES)
def test_every_cell_of_the_last_line_is_its_keys_or_nobodys(page):
    for before in ((), (Piece("making the report 3s  ", "phase"),)):
        line = Line((*before, *key_line(page, 120)))
        told = [key_at(line, x, page) for x in range(line.width + 9)]
        for key in dict.fromkeys(k for k in told if k is not None):
            at = told.index(key)
            words = f"{key.shown} {key.short}"
            assert line.plain[at : at + told.count(key)] == words
            assert key.works(page)
        shorts = [p.text for p in line.pieces[1 + len(before) :: 3]]
        assert [k.short for k in dict.fromkeys(told) if k is not None] == shorts
