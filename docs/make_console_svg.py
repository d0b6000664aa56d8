"""Draws the pictures of the screens at the height of the recorded incident.

python docs/make_console_svg.py [NAME ...]     all of them, or those that are named

console.svg is the overview while the demo's recording plays, the picture of the README;
console-act.svg is the form of an act, on an engine that is made up; the others are the pages.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC
from pathlib import Path
from typing import Any

from console.act.desk import Desk
from console.act.form import Stage
from console.act.values import Answer, EngineState, Order, Part, TenantState
from console.app import ConsoleApp
from console.command import opening, read_time
from console.demo import watch
from console.pages import PAGES
from console.sight import RecordEdge, ReplayEdge, Sight
from console.widgets.act_form import ActForm
from sample_incidents import incident_path

AT_S = 72.0  # into the recording: the flood is at its height
INCIDENT = "five-pm-fanout"
STORE = str(incident_path(INCIDENT) / "store")
TITLE = "tenantscope console"
VICTIM = "globex"
SIZES = {"overview": (80, 24), "table": (120, 20)}
USUAL = (100, 30)

Drawn = Coroutine[Any, Any, str]


class MadeUp:
    """An operator's door with nothing behind it."""

    address = "unix:/run/tenantscope/admin.sock"

    def look(self) -> EngineState:
        acme = TenantState(tenant="acme", pool="main", under_way=39, running=10, waiting=29)
        return EngineState(
            address=self.address, engine="gpu-1", pool="main", version=41, tenants=(acme,)
        )

    def act(self, order: Order) -> Answer:
        return Answer(
            address=self.address,
            effect="tenant 'acme': concurrency none -> 4",
            parts=(Part("gpu-1/main", True, "'acme' has 10 running, 29 waiting: they go on"),),
        )

    def close(self) -> None:
        """Nothing is open."""


async def shot(
    app: ConsoleApp,
    size: tuple[int, int],
    title: str,
    ready: Callable[[], bool],
    do: Callable[[Any], Coroutine[Any, Any, None]] | None = None,
) -> str:
    """The screen as SVG, once it is `ready` and `do` has been done on it."""
    async with app.run_test(size=size) as pilot:
        while not ready():
            await pilot.pause(0.1)
        if do is not None:
            await do(pilot)
        await pilot.pause(0.2)
        drawn = app.export_screenshot(title=title)
    app.leave()
    return drawn


def draw_play() -> Drawn:
    """The demo's recording, played to the height of the incident."""
    clock = iter([0.0])
    feed = watch.sight(opening(STORE), ReplayEdge(1.0, lambda: next(clock, AT_S)), tz=UTC)
    app = watch.screen(feed, None, Desk(), tz=UTC)
    title = "tenantscope demo --replay"
    return shot(app, (100, 26), title, lambda: app.picture is not None and _named(app))


def console(desk: Desk | None = None) -> ConsoleApp:
    source = opening(STORE)()
    first, _ = source.span()
    source.close()
    sight = Sight(opening(STORE), RecordEdge(UTC), tz=UTC)
    return ConsoleApp(sight, read_time=read_time, tz=UTC, at=first + AT_S + 8.0, desk=desk)


def _named(app: ConsoleApp) -> bool:
    return app.picture is not None and app.picture.verdict.named is not None


def _there(app: ConsoleApp) -> bool:
    """The picture of the instant that was asked for, not that of the record's end."""
    return app.picture is not None and app.picture.edge is not None


def draw_page(name: str) -> Drawn:
    app = console()

    async def open_it(pilot: Any) -> None:
        if name == "overview":
            return
        app.open_page(name, VICTIM)
        scene = app.scene()
        if scene is not None and app.page.wants(scene.picture, scene.place):
            while not app.scene().detail.heard:
                await pilot.pause(0.1)

    return shot(app, SIZES.get(name, USUAL), TITLE, lambda: _there(app), open_it)


def draw_act() -> Drawn:
    desk = Desk([MadeUp()], store="telemetry-store", who="me@laptop")
    app = console(desk)

    async def fill(pilot: Any) -> None:
        await pilot.press("c", "down", "down", "4", "enter")
        while not (isinstance(app.screen, ActForm) and app.screen.form.stage is Stage.TRIED):
            await pilot.pause(0.1)

    return shot(app, (80, 24), TITLE, lambda: _there(app) and desk.open, fill)


def main(names: list[str]) -> None:
    folder = Path(__file__).parent
    pictures: dict[str, Callable[[], Drawn]] = {"console": draw_play, "console-act": draw_act}
    pictures |= {f"console-{name}": lambda name=name: draw_page(name) for name in PAGES}
    for name in names or pictures:
        target = folder / f"{name}.svg"
        target.write_text(asyncio.run(pictures[name]()))
        print(target)


if __name__ == "__main__":
    main(sys.argv[1:])
