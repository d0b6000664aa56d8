"""Each screen, at each size, in colour and without, is painted as it is kept."""

from __future__ import annotations

import pytest

from tests.console import painted
from tests.console.pages.world import SIZES

FORM = ("#171c22", "#1b1b1b")  # what a form is written on


def kept(name: str) -> str:
    return (painted.FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_screen_is_kept_at_every_size_and_in_every_look():
    assert {p.stem for p in painted.FOLDER.glob("*.txt")} == painted.names()


def test_without_colour_there_are_shades_of_grey_alone_and_the_same_words():
    for name in sorted(n for n in painted.names() if n.endswith("-nocolor")):
        for colour in painted.colours(kept(name)):
            red, green, blue = colour[1:3], colour[3:5], colour[5:7]
            assert red == green == blue, (name, colour)
        text = [kept(n).split("--- styles\n")[0] for n in (name, name.replace("nocolor", "dark"))]
        assert text[0] == text[1]


def test_a_screen_in_colour_is_not_kept_in_grey_by_mistake():
    named = set(painted.colours(kept("overview-80x24-dark")))
    assert any(len({c[1:3], c[3:5], c[5:7]}) > 1 for c in named)


@pytest.mark.parametrize("look", painted.LOOKS)
def test_every_letter_stands_out_from_what_it_stands_on(look):
    """4.5 is what WCAG 2 asks of text (AA); 3 of what goes on behind a form. What lies under the
    palette is not read."""
    faint = {
        (name, style)
        for name in painted.names()
        if name.endswith(f"80x24-{look}") and not name.startswith("palette")
        for style in {style for _, style in painted.letters(kept(name))}
        if painted.contrast(style) < (3.0 if is_behind(name, style) else 4.5)
    }
    assert faint == set()


def is_behind(name: str, style: str) -> bool:
    return name.startswith("act-") and "after" not in name and not style.endswith(FORM)


@pytest.mark.full
@pytest.mark.parametrize("look", painted.LOOKS)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_the_screen_is_painted_as_kept(size, look):
    """Where a change is meant: `python -m tests.console.painted`, and look at it."""
    found = painted.paint(size, look)
    assert {n for n, text in found.items() if text != kept(n)} == set()
