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
from console.cells import width
from console.command import read_time
from console.pages import PAGES
from console.poller import Found, Now
from console.screens import Place
from tests.console import painted_acts as acts
from tests.console.on_screen import Mute, hear
from tests.console.pages import world
from tests.console.pages.screens import PLACES
from tests.console.pages.world import SIZES

FOLDER = Path(__file__).parent / "painted"
LOOKS: Mapping[str, Mapping[str, str]] = {"dark": {}, "nocolor": {"NO_COLOR": "1"}}
HELP = "help"
SCREENS = (*PAGES, HELP)
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Size = tuple[int, int]


def name_of(screen: str, size: Size, look: str) -> str:
    return f"{screen}-{size[0]}x{size[1]}-{look}"


def names() -> set[str]:
    return {
        name_of(s, size, look)
        for s in (*SCREENS, *acts.STEPS)
        for size in SIZES
        for look in LOOKS
        if is_kept(s, look)
    }


def is_kept(screen: str, look: str) -> bool:
    return look == "dark" or screen not in acts.STEPS or screen in acts.GREY_TOO


def paint(size: Size, look: str) -> dict[str, str]:
    """Every screen at a size, in a look, by name."""
    return asyncio.run(asyncio.wait_for(_paint(size, look), 120))


async def _paint(size: Size, look: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TEXTUAL_THEME")}
    with mock.patch.dict(os.environ, {**plain, **LOOKS[look]}, clear=True):
        feed, door = Mute(), acts.MadeUp()
        desk = acts.desk_of(door)
        app = ConsoleApp(feed, read_time=read_time, tz=UTC, monotonic=lambda: 0.0, desk=desk,
                         wall=lambda: acts.WALL)  # fmt: skip
        found = {}
        async with app.run_test(size=size, notifications=True) as pilot:
            try:
                await hear(app, pilot, Now(world.now()))
                for screen in SCREENS:
                    await _open(app, pilot, screen)
                    found[name_of(screen, size, look)] = painted(app)
                await pilot.press("escape")
                async for step in acts.walk(app, pilot, door, desk):
                    if is_kept(step, look):
                        found[name_of(step, size, look)] = painted(app)
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


def letters(kept: str) -> Iterator[tuple[str, str]]:
    """Letters and digits that a kept screen shows, each with its style. Lines with characters that
    are not one cell wide each are left out."""
    text, _, rest = kept.partition("--- styles\n")
    legend, _, runs = rest.partition("--- cells\n")
    styles = dict(line.split(" ", 1) for line in legend.splitlines())
    for line, run in zip(text.splitlines(), runs.splitlines(), strict=True):
        if any(width(c) != 1 for c in line):
            continue
        cells = [styles[r[0]] for r in run.split() for _ in range(int(r[1:]))]
        yield from ((c, style) for c, style in zip(line, cells, strict=False) if c.isalnum())


def contrast(style: str) -> float:
    """Of its letters to what they stand on, as WCAG 2 has it: from 1 to 21."""
    *_, ink, _, ground = style.split()
    lights = sorted((_light(ink), _light(ground)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _light(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for size in SIZES:
        for look in LOOKS:
            for name, text in paint(size, look).items():
                (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
                print(FOLDER / f"{name}.txt")


if __name__ == "__main__":
    main()
