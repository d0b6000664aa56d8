"""One console on one made-up engine for all the tests of a module: an app's start costs a second.

The app runs in a thread with a loop of its own; a test hands it a body and waits for its end.
Between two bodies everything is as new: the engine, the picture, what is open.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress

from console.act.desk import Desk
from console.act.door import AdminDoor
from console.act.form import Stage as At
from console.poller import Now
from console.widgets.act_form import ActForm
from tests.console.act.engine import AT, Opened
from tests.console.on_screen import HURT, Mute, app_of, hear

Body = Callable[["Scene"], Awaitable[None]]


async def until(pilot, true) -> None:
    """Let the screen and the other threads run until something holds."""
    while not true():
        await pilot.pause(0.005)


class Scene:
    """A screen with a picture of an incident, and an engine that lets itself be changed."""

    def __init__(self, app, pilot, door: Opened, desk: Desk) -> None:
        self.app, self.pilot, self.desk = app, pilot, desk
        self.engine = door.engine

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def has(self, stage: At) -> None:
        """Wait until the form has got so far."""
        await until(self.pilot, lambda: self.form is not None and self.form.form.stage is stage)

    @property
    def form(self) -> ActForm | None:
        screen = self.app.screen
        return screen if isinstance(screen, ActForm) else None

    @property
    def lines(self) -> str:
        """The form as it stands on the screen, blanks joined."""
        assert self.form is not None, "no form is open"
        return " ".join(" ".join(x.plain for x in self.form._body.shown).split())

    @property
    def told(self) -> list[str]:
        return [n.message for n in self.app._notifications]

    async def look(self, true) -> None:
        """Look at the engine until it shows something."""
        self.desk._hand.look()
        await until(self.pilot, true)

    async def renew(self) -> None:
        self.engine.hold.set()
        while self.form is not None:
            self.form.dismiss(None)
            await self.pilot.pause()
        hand = self.desk._hand
        await until(self.pilot, lambda: not hand._busy.locked())
        self.engine.reset()
        self.desk._done = None
        self.app.clear_notifications()
        await self.press("escape")
        await hear(self.app, self.pilot, Now(HURT))
        await self.look(lambda: self.desk.open and self.desk.looked.states[0].version == 7)


class Theatre:
    """`play` runs a body on the one screen; what never ends fails after 30 s."""

    def __init__(self, door: Opened, size: tuple[int, int] = (80, 24)) -> None:
        self._door, self._size = door, size
        self._loop = asyncio.new_event_loop()
        self._queue: asyncio.Queue[tuple[Body, Future[None]] | None] = asyncio.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def play(self, body: Body) -> None:
        done: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (body, done))
        done.result(30)

    def close(self) -> None:
        with suppress(RuntimeError):  # the loop is over already
            self._loop.call_soon_threadsafe(self._queue.put_nowait, None)
        self._thread.join(10)
        self._door.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._show())
        self._loop.close()

    async def _show(self) -> None:
        desk = Desk([AdminDoor(self._door.address)], who="me", store="/a store")
        app = app_of(Mute(), desk=desk, wall=lambda: AT + 60.0)
        async with app.run_test(size=self._size) as pilot:
            scene = Scene(app, pilot, self._door, desk)
            while (given := await self._queue.get()) is not None:
                body, done = given
                try:
                    await asyncio.wait_for(self._one(scene, body), 25)
                    done.set_result(None)
                except BaseException as e:
                    done.set_exception(e)
            app._feed.close()

    async def _one(self, scene: Scene, body: Body) -> None:
        await scene.renew()
        await body(scene)
