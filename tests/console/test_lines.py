"""Lines of pieces: bars as wide as asked, gaps as gaps, and only what changed is painted again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App
from textual.geometry import Region

from console.cells import clip, fit, width
from console.lines import ASCII, Line, Piece, glyphs_for, sparkline, stacked
from console.widgets.lines import Lines


@given(st.text(max_size=40), st.integers(0, 30))
def test_clipped_text_fits_and_short_text_is_left_alone(text, cells):
    assert width(clip(text, cells)) <= cells
    if width(text) <= cells:
        assert clip(text, cells) == text
    assert width(fit(text, cells, "right")) == cells


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 40))
def test_a_bar_of_shares_is_exactly_as_wide_as_asked(shares, cells):
    whole = sum(shares) or 1.0
    bar = stacked([(s / whole, "#", "kv") for s in shares], cells)
    assert sum(width(p.text) for p in bar) == cells
    assert all(isinstance(p, Piece) for p in bar)


def test_a_sparkline_shows_gaps_as_gaps():
    assert sparkline([0.0, 1.0, None], glyphs_for("utf-8")) == "▁█·"


@pytest.mark.parametrize(("encoding", "ascii_only"), [("ascii", True), ("utf-8", False)])
def test_bars_are_ascii_where_the_output_carries_no_blocks(encoding, ascii_only):
    assert (glyphs_for(encoding) is ASCII) is ascii_only


class Shown(App[None]):
    """One widget that shows words, a line each."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ["a", "b", "c"]
        self.body = Lines(lambda cells, lines: [Line((Piece(w),)) for w in self.words])

    def compose(self):
        yield self.body


def test_only_the_lines_that_changed_are_painted_again(monkeypatch):
    async def play() -> None:
        app = Shown()
        async with app.run_test(size=(40, 10)) as pilot:
            await pilot.pause()
            painted: list[Region] = []
            monkeypatch.setattr(app.body, "refresh", lambda *regions, **_: painted.extend(regions))
            app.words = ["a", "B", "c"]
            app.body.redraw()
            assert painted == [Region(0, 1, 40, 1)]
            app.body.redraw()
            assert len(painted) == 1

    asyncio.run(asyncio.wait_for(play(), 40))
