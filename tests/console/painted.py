"""Every screen as a terminal shows it, colours too, kept as files: one a screen, size and look.

Drawn anew by `python -m tests.console.painted`; look at what has changed before it is kept. A file
has the text, then the styles there are, then for each line which cells have which.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from datetime import UTC
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

from console.app import ConsoleApp
from console.command import read_time
from console.pages import PAGES
from console.poller import Found, Now
from console.screens import Place
from tests.console.pages import world
from tests.console.pages.screens import PLACES
from tests.console.pages.world import SIZES
from tests.console.test_app import Mute, hear

FOLDER = Path(__file__).parent / "painted"
LOOKS: Mapping[str, Mapping[str, str]] = {"dark": {}, "nocolor": {"NO_COLOR": "1"}}
HELP = "help"
SCREENS = (*PAGES, HELP)
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Size = tuple[int, int]


def name_of(screen: str, size: Size, look: str) -> str:
    return f"{screen}-{size[0]}x{size[1]}-{look}"


def names() -> set[str]:
    return {name_of(s, size, look) for s in SCREENS for size in SIZES for look in LOOKS}


def paint(size: Size, look: str) -> dict[str, str]:
    """Every screen at a size, in a look, by name."""
    return asyncio.run(asyncio.wait_for(_paint(size, look), 120))


async def _paint(size: Size, look: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TEXTUAL_THEME")}
    with mock.patch.dict(os.environ, {**plain, **LOOKS[look]}, clear=True):
        feed = Mute()
        app = ConsoleApp(feed, read_time=read_time, tz=UTC, monotonic=lambda: 0.0)
        found = {}
        async with app.run_test(size=size) as pilot:
            try:
                await hear(app, pilot, Now(world.now()))
                for screen in SCREENS:
                    await _open(app, pilot, screen)
                    found[name_of(screen, size, look)] = painted(app)
            finally:
                feed.close()
        app.leave()
    return found


async def _open(app: ConsoleApp, pilot: Any, screen: str) -> None:
    if screen == HELP:
        await pilot.press("question_mark")
        await pilot.pause()
        return
    place = PLACES.get(screen, Place())
    app.open_page(screen, place.tenant)
    app.see(place)
    if app._asks:
        await hear(app, pilot, Found(world.answered(app._asks)))
    await pilot.pause()


def painted(app: ConsoleApp) -> str:
    """What is on the screen."""
    text, runs = [], []
    known: dict[str, str] = {}
    for strip in app.screen._compositor.render_strips():
        segments = [x for x in strip if x.text]
        text.append("".join(x.text for x in segments).rstrip())
        line = []
        for style, some in groupby(segments, key=lambda x: _told(x.style)):
            letter = known.setdefault(style, LETTERS[len(known)])
            line.append(f"{letter}{sum(x.cell_length for x in some)}")
        runs.append(" ".join(line))
    legend = (f"{letter} {style}" for style, letter in known.items())
    return "".join(f"{x}\n" for x in (*text, "--- styles", *legend, "--- cells", *runs))


def _told(style: Any) -> str:
    """Colours and weight; what a click means to the framework is no look."""
    if style is None:
        return "none"
    words = [w for w in ("bold", "dim", "italic", "underline", "reverse") if getattr(style, w)]
    return " ".join([*words, f"{_colour(style.color)} on {_colour(style.bgcolor)}"])


def _colour(colour: Any) -> str:
    return "default" if colour is None else colour.name


def colours(kept: str) -> Iterator[str]:
    """Those that a kept screen names."""
    legend = kept.split("--- styles\n")[1].split("--- cells\n")[0]
    for line in legend.splitlines():
        yield from (w for w in line.split()[1:] if w.startswith("#"))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for size in SIZES:
        for look in LOOKS:
            for name, text in paint(size, look).items():
                (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
                print(FOLDER / f"{name}.txt")


if __name__ == "__main__":
    main()
