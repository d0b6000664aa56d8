"""Keys as data: each has its action, and the last line and the help tell them all."""

from __future__ import annotations

import pytest

from console.app import ConsoleApp
from console.keys import KEYS, help_lines, key_line
from console.pages import PAGES


@pytest.mark.parametrize("cells", [40, 78, 120, 160])
def test_help_tells_every_key_and_no_line_is_too_wide(cells):
    lines = help_lines(cells, 24)
    text = "\n".join(line.plain for line in lines)
    assert all(line.width <= cells for line in lines)
    assert all(key.long[:20] in text for key in KEYS)


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
