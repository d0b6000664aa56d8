"""A console on a screen of a size, and what tests do to it and read off it. Tests nothing."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC

from textual.events import Key

from console.app import ConsoleApp, Heard
from console.command import read_time
from console.detail import Asks, Detail
from console.panels import Snapshot
from console.settings import ConsoleSettings
from tests.console import rows as made
from tests.console.test_overview import END, picture

CALM = picture(made.calm(), made.T0 + 120.0)

HURT = picture()


class Mute:
    """A feed that never answers: the test says what the screen hears."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.pools: list[str | None] = []
        self.wanted: list[float] = []
        self.columns: list[bool] = []

    def snapshot(self) -> Snapshot:
        self.over.wait()
        raise ConnectionError("over")

    def at(self, at: float) -> Snapshot:
        self.wanted.append(at)
        return replace(CALM, now=at, edge=END)

    def detail(self, asks: Asks) -> Detail:
        return Detail(asks)

    def show_pool(self, pool: str | None) -> None:
        self.pools.append(pool)

    def show_columns(self, every: bool) -> None:
        self.columns.append(every)

    def close(self) -> None:
        self.over.set()


class Turned:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def app_of(feed=None, **more) -> ConsoleApp:
    mute = Mute() if feed is None else feed
    return ConsoleApp(mute, read_time=read_time, tz=UTC, **more)


def shown(app: ConsoleApp) -> list[str]:
    return [line.plain.rstrip() for line in app._body.shown]


def chosen(app: ConsoleApp) -> str:
    """The line that is marked as chosen; there is one."""
    [line] = [line.plain for line in app._body.shown if line.tint == "cursor"]
    return line


async def hear(app, pilot, told) -> None:
    app.post_message(Heard(told))
    await pilot.pause()
    await pilot.pause()


async def quick(app, pilot, *keys) -> None:
    """Type into what has the focus and wait once, where the pilot waits after each key for a
    machine that is idle. Letters and enter alone: what is bound to a key comes after them."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))
    await pilot.pause()
    await pilot.pause()


def scene(size=(80, 24), feed=None, toasts=False, **more):
    """Run a test's body on a screen of a size; what never ends fails. `toasts`: what is said is
    shown, not only remembered."""

    def decorate(body):
        async def play():
            app = app_of(feed() if feed else None, **more)
            async with app.run_test(size=size, notifications=toasts) as pilot:
                try:
                    await body(app, pilot)
                finally:
                    app._feed.close()

        def test():
            asyncio.run(asyncio.wait_for(play(), 40))

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        return test

    return decorate


def until(pilot, true):
    async def wait():
        while not true():
            await pilot.pause(0.01)

    return wait()


class Answering(Mute):
    """A feed that gives the newest picture, and those of the past."""

    def snapshot(self) -> Snapshot:
        return HURT


QUICK = ConsoleSettings(period_s=0.2)
