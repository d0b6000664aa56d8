"""What is opened over the pages, for `painted`: the forms of acts at each stage, what is told after
one, the prompt and the palette. The engine acted on is made up; nothing here opens a socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cache
from typing import Any

from textual.command import CommandPalette
from textual.widgets import Input

from console.act.desk import Desk
from console.act.form import Stage
from console.act.hand import DoorShut
from console.act.values import (
    IN_FORCE,
    AdapterState,
    Answer,
    Change,
    EngineState,
    No,
    Order,
    Part,
    TenantState,
)
from console.panels import Snapshot
from console.poller import Now
from console.screens import Place
from console.widgets.act_form import ActForm
from tests.console import rows as made
from tests.console.act.stage import until
from tests.console.on_screen import hear
from tests.console.pages import world
from tests.console.screens import picture

SPAN_S = 900.0
WALL = world.END + 60.0  # when what still holds is counted

# Forms that are looked at while they are filled in, by the keys that open and fill them.
FORMS = {
    "act-weight": ("w", "2", "down", *"low"),
    "act-drain": ("d",),
    "act-preempt": ("k",),
    "act-unload": ("U", "right"),
    "act-move": ("M",),
}
CAP = ("act-cap", "act-cap-wrong", "act-cap-copied", "act-cap-tried", "act-cap-moved",
       "act-cap-done", "act-after", "act-undo")  # fmt: skip
OTHERS = ("chosen", "prompt", "palette", "palette-found")
STEPS = (*FORMS, *CAP, *OTHERS)
# Of the others grey says nothing that one of these does not say.
GREY_TOO = frozenset({"act-cap", "act-cap-wrong", "act-cap-tried", "act-after", "chosen", "prompt",
                      "palette"})  # fmt: skip


class MadeUp:
    """An operator's door with nothing behind it; shut until it is opened."""

    address = "unix:/run/tenantscope/admin.sock"

    def __init__(self) -> None:
        self.shut = True
        self.version = 41
        self.changes: tuple[Change, ...] = ()

    def look(self) -> EngineState:
        if self.shut:
            raise DoorShut("it is shut")
        usual: dict[str, Any] = {"pool": "main", "rpm": 60, "concurrency": 16}
        acme = TenantState(tenant="acme", under_way=39, running=7, waiting=32,
                           adapters=("acme-chat", "acme-summaries"), **usual)  # fmt: skip
        rest = (TenantState(tenant=n, running=1, waiting=4, **usual) for n in made.TENANTS[1:])
        return EngineState(
            address=self.address, engine="gpu-1", pool="main", version=self.version,
            tenants=(acme, *rest), adapters=(AdapterState(name="acme-summaries", requests=5),),
            changes=self.changes, pools=("main", "gold"),
        )  # fmt: skip

    def by_another(self, what: str) -> None:
        self._change("bob@desk", what, world.END + 41.0)

    def _change(self, who: str, what: str, at: float) -> None:
        self.version += 1
        change = Change(number=self.version, at=at, until=at + SPAN_S, who=who, why="", what=what,
                        state=IN_FORCE)  # fmt: skip
        self.changes = (*self.changes, change)

    def act(self, order: Order) -> Answer:
        if order.if_version != self.version:
            why = f"version {order.if_version} is no longer in force, {self.version} is: look again"
            return Answer(address=self.address, no=No.MOVED, why_not=why)
        values = ", ".join(f"{k} 16 -> {v}" for k, v in order.values)
        effect = f"tenant 'acme': {values}" if values else f"undone: {self.changes[-1].what}"
        if not order.dry_run:
            self._change(order.who, effect, world.END + 50.0)
        part = Part("gpu-1/main", True, "'acme' has 7 running, 32 waiting: they go on")
        return Answer(address=self.address, effect=effect, version=self.version, parts=(part,),
                      until=world.END + SPAN_S if order.ttl_s else None)  # fmt: skip

    def close(self) -> None:
        """Nothing is open."""


def desk_of(door: MadeUp) -> Desk:
    return Desk([door], who="ann@desk", store="/var/lib/tenantscope/store")


@cache
def later() -> Snapshot:
    """A minute after the world's picture: everybody is served alike again."""
    rows = world.rows()
    starts = [world.END + 10.0 * i for i in range(6)]
    calm = tuple(t for at in starts for t in made.calm_bucket(at)[0])
    whole = replace(rows, tenants=(*rows.tenants, *calm),
                    engines=(*rows.engines, *(made.engine(at) for at in starts)))  # fmt: skip
    return picture(whole, world.END + 60.0, made.verdict())


async def walk(app: Any, pilot: Any, door: MadeUp, desk: Desk) -> AsyncIterator[str]:
    """Open one after the other; each is on the screen while its name is given."""
    app.open_page("overview")
    app.see(Place())
    door.shut = False
    assert desk._hand is not None
    desk._hand.look()
    await until(pilot, lambda: desk.open)
    for name, keys in FORMS.items():
        await pilot.press(*keys)
        yield name
        await pilot.press("escape")
    async for name in _cap(app, pilot, door):
        yield name
    await pilot.press("down", "down")
    yield "chosen"
    await pilot.press("t")
    _still(app)
    yield "prompt"
    await pilot.press("escape")
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(app.screen, CommandPalette))
    await _found(app, pilot)
    yield "palette"
    await pilot.press(*"cap")
    await _found(app, pilot)
    yield "palette-found"
    await pilot.press("escape")


async def _cap(app: Any, pilot: Any, door: MadeUp) -> AsyncIterator[str]:
    """One act from its first key to what became of it, with every turn it can take."""
    await pilot.press("c", *"6O", "enter")
    yield "act-cap-wrong"
    await pilot.press("ctrl+u", "down", "down", "4")
    yield "act-cap"
    await pilot.press("ctrl+y")
    yield "act-cap-copied"
    app.clear_notifications()
    await pilot.press("down", "down", *"fan-out", "enter")
    await _has(app, pilot, Stage.TRIED)
    yield "act-cap-tried"
    door.by_another("tenant 'globex': rpm 60 -> 30")
    await pilot.press("enter")
    await _has(app, pilot, Stage.MOVED)
    yield "act-cap-moved"
    await pilot.press("enter")
    await _has(app, pilot, Stage.TRIED)
    await pilot.press("enter")
    await _has(app, pilot, Stage.DONE)
    yield "act-cap-done"
    await pilot.press("enter")
    await hear(app, pilot, Now(later()))
    yield "act-after"
    await pilot.press("u")
    await _has(app, pilot, Stage.TRIED)
    yield "act-undo"
    await pilot.press("escape")


async def _has(app: Any, pilot: Any, stage: Stage) -> None:
    await until(pilot, lambda: isinstance(app.screen, ActForm) and app.screen.form.stage is stage)
    await pilot.pause()


async def _found(app: Any, pilot: Any) -> None:
    """The palette has listed all it has to offer."""
    await until(pilot, lambda: app.screen.has_class("-ready"))
    await until(pilot, lambda: all(w.is_finished for w in app.workers))
    _still(app)
    await pilot.pause()


def _still(app: Any) -> None:
    """A cursor that blinks is painted as it stands at its start."""
    for line in app.screen.query(Input):
        line.cursor_blink = False
