"""The console under its keys: pages over pages, rows chosen and opened, a page's own rows heard.

One app for each walk through several keys: starting one costs more than all of them.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from textual.command import CommandList
from textual.events import MouseScrollDown
from textual.widgets._toast import Toast

from console.detail import Asks, Detail
from console.poller import Now
from console.settings import ConsoleSettings
from tests.console.on_screen import Mute, chosen, hear, quick, scene, shown, until
from tests.console.pages import world

QUICK = ConsoleSettings(period_s=0.2)


class Telling(Mute):
    """A feed whose past and pages are those of the made-up pool."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Asks] = []
        self.broken: Exception | None = None
        self.told = threading.Event()

    def snapshot(self):
        return world.now()

    def at(self, at):
        return replace(world.now(), now=at, data_at=at, edge=world.END)

    def detail(self, asks: Asks) -> Detail:
        self.asked.append(asks)
        if self.broken is not None:
            raise self.broken
        return world.answered(asks)


def page_of(app) -> str:
    return app._stack[-1]


def offered(app) -> str:
    """What the palette lists first."""
    commands = app.screen.query_one(CommandList)
    return str(commands.get_option_at_index(0).prompt) if commands.option_count else ""


async def seen(pilot, app, words: str) -> None:
    await until(pilot, lambda: any(words in line for line in shown(app)))


@scene(feed=Telling, settings=QUICK)
async def test_enter_opens_who_is_chosen_and_escape_goes_back_page_by_page(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    await pilot.press("enter")  # nobody chosen: whom the verdict names
    await seen(pilot, app, "TENANT  acme")
    await pilot.press("escape")
    assert page_of(app) == "overview"
    await pilot.press("down", "down")
    second = chosen(app).split()[1]
    assert app.selected == second
    await pilot.press("enter")
    await seen(pilot, app, f"TENANT  {second}")
    await seen(pilot, app, "WAITED BEHIND")
    await pilot.press("x")
    await seen(pilot, app, f"of {second}")
    assert app._stack == ["overview", "tenant", "requests"]
    await pilot.press("P")
    await seen(pilot, app, "differ from the start")
    await pilot.press("e")
    await seen(pilot, app, "main-7 opened")
    await pilot.press("x")  # it is under the others: back to it
    assert app._stack == ["overview", "tenant", "requests"]
    await pilot.press("x")  # the one that is open: back
    assert page_of(app) == "tenant"
    await pilot.press("escape")
    assert (page_of(app), app._asks) == ("overview", ())
    assert chosen(app).split()[1] == second  # where one was is where one comes back to
    await pilot.press("escape")
    assert app.selected is None


@scene(size=(120, 24), feed=Telling, settings=QUICK)
async def test_a_pages_own_keys_ask_for_other_rows(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    await pilot.press("x")
    await seen(pilot, app, "33, of all tenants, newest first, last 1h")
    await pilot.press("o")
    await seen(pilot, app, "12 missed, of all tenants, newest first")
    await pilot.press("s", "z")
    await seen(pilot, app, "12 missed, of all tenants, slowest first, last 6h")
    await pilot.press("slash")
    await quick(app, pilot, *"^gl", "enter")
    await seen(pilot, app, "4 of 12 missed, of all tenants, slowest first, last 6h, filter ^gl")
    await pilot.press("down", "pagedown", "pagedown", "pageup")
    assert chosen(app).split()[1] == "globex"
    assert app.selected == "globex"  # whose request it is: what is done is done to it
    await pilot.press("enter")
    await seen(pilot, app, "TENANT  globex")
    await pilot.press("z")
    await seen(pilot, app, "last 5min")
    await pilot.press("x", "v")
    await seen(pilot, app, "of all tenants")
    await pilot.press("g")  # a key of the table alone
    assert page_of(app) == "requests"
    await pilot.press("colon", *"y (P")
    await until(pilot, lambda: "policy (P)" in offered(app))
    await pilot.press("enter")
    await seen(pilot, app, "differ from the start")


@scene(feed=Telling, settings=QUICK)
async def test_clicks_and_the_wheel_choose_and_open(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    y = next(i for i, line in enumerate(app._body.shown) if line.row is not None)
    await pilot.click("#body", offset=(5, y))
    assert app.place.cursor == app._body.shown[y].row
    await pilot._post_mouse_events([MouseScrollDown], "#body")
    await pilot.pause()
    assert app.place.cursor == app._body.shown[y + 1].row
    await pilot.click("#body", offset=(5, y + 1))
    await pilot.pause()
    assert page_of(app) == "tenant"
    await pilot.click("#body", offset=(5, 2))  # a rule: nothing
    assert page_of(app) == "tenant"


@scene(feed=Telling, settings=QUICK)
async def test_an_event_is_gone_to_and_the_page_follows_the_picture(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    await pilot.press("e")
    await seen(pilot, app, "main-7 opened")
    at = next(line.row for line in app._body.shown if "main-7 opened" in line.plain)
    app.see(replace(app.place, cursor=at))
    await pilot.press("enter")
    await until(pilot, lambda: app.picture.now == float(at.name))
    await seen(pilot, app, "HELD 30s back")
    await until(pilot, lambda: "main-7 opened" in shown(app)[3])  # nothing later is shown
    await pilot.press("end")
    await until(pilot, lambda: app.picture.edge is None)


@scene(feed=Telling, settings=QUICK)
async def test_a_page_that_cannot_be_asked_says_why_and_is_asked_again(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    app._feed.broken = ConnectionError("the store went away")
    await pilot.press("x")
    await seen(pilot, app, "this page's rows: the store went away; trying again")
    app._feed.broken = None
    await seen(pilot, app, "33, of all tenants, newest first, last 1h")
    assert not any("trying again" in line for line in shown(app))


@scene(size=(80, 12))
async def test_a_row_that_moves_off_the_screen_is_followed(app, pilot):
    await hear(app, pilot, Now(world.now()))
    await pilot.press("a", "down")
    cursor = app.place.cursor
    account = world.now().account
    sorted_last = replace(account, tenants=tuple(
        replace(t, row=replace(t.row, service_share=0.0 if t.name == cursor.name else 0.9))
        for t in account.tenants
    ))  # fmt: skip
    await hear(app, pilot, Now(replace(world.now(), account=sorted_last)))
    assert chosen(app).split()[1] == cursor.name
    gone = tuple(t for t in account.tenants if t.name != cursor.name)
    await hear(app, pilot, Now(replace(world.now(), account=replace(account, tenants=gone))))
    assert app.place.cursor is None


@scene(feed=Telling, settings=QUICK)
async def test_a_click_on_the_last_line_is_the_key_that_stands_there(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    for words, page in (("a all", "table"), ("h heat", "heat")):
        x = shown(app)[-1].index(words) if words in shown(app)[-1] else None
        if x is None:
            await pilot.resize_terminal(160, 24)
            x = shown(app)[-1].index(words)
        await pilot.click("#body", offset=(x, len(shown(app)) - 1))
        await until(pilot, lambda page=page: page_of(app) == page)
    await seen(pilot, app, "HEAT  wait")
    minute = app.place
    await pilot.click("#body", offset=(80, 2))  # the verdict, under which there are minutes
    assert app.place == minute
    axis = next(y for y, line in enumerate(shown(app)) if line.startswith("   tenant"))
    await pilot.click("#body", offset=(shown(app)[axis].index("08:0"), axis))
    assert app.place != minute


@scene(toasts=True)
async def test_what_lies_over_the_rows_has_its_own_clicks_and_wheel(app, pilot):
    await hear(app, pilot, Now(world.now()))
    await pilot.press("down")
    chosen_before = app.place
    app.say("a sentence over the rows")
    await until(pilot, lambda: app.screen.query(Toast) and app.screen.query_one(Toast).size)
    await pilot.click(Toast)
    assert (app.place, len(app._notifications)) == (chosen_before, 0)
    await pilot.press("question_mark")
    await pilot._post_mouse_events([MouseScrollDown] * 3, "#help")
    await pilot.press("ctrl+backslash")
    await pilot.pause()
    assert (len(app.screen_stack), app.place) == (2, chosen_before)
