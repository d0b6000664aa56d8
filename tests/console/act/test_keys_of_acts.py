"""Every key that changes an engine, on a real screen, against an engine's door in this process."""

from __future__ import annotations

import asyncio

import pytest
from textual import events

from console.act.desk import Desk
from console.act.form import Stage
from console.poller import Now
from tests.console.act.engine import opened
from tests.console.act.stage import Scene, Theatre, until
from tests.console.on_screen import CALM, HURT, Mute, app_of, hear, shown

pytestmark = pytest.mark.xdist_group("acts")  # one screen for all of them


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    theatre = Theatre(opened(tmp_path_factory.mktemp("e")))
    yield theatre
    theatre.close()


def test_all_of_a_cap_from_the_key_to_the_undo(one):
    async def body(s: Scene) -> None:
        assert shown(s.app)[0].endswith("ADMIN")
        await s.press("c")
        assert "CAP acme" in s.lines
        assert "e1/main v7" in s.lines
        await s.press("down", "down", *"4q")  # q is a letter here, and no key
        assert s.form is not None
        await s.press("backspace")
        assert "takes effect as 9 of 13 requests under way end" in s.lines
        assert "tenantscope postmortem whatif --store '/a store'" in s.lines
        await s.press("ctrl+y")
        assert s.app.clipboard.startswith("tenantscope postmortem whatif --store '/a store'")
        await s.press("down", "down", *"fan-out", "enter")
        await s.has(Stage.TRIED)
        assert "it would tenant 'acme': concurrency 4" in s.lines
        assert s.engine.tenants["acme"].concurrency is None
        await s.press("enter")
        await s.has(Stage.DONE)
        assert s.engine.tenants["acme"].concurrency == 4
        tried, done = (a.request.act for a in s.engine.asked)
        assert (tried.dry_run, done.dry_run) == (True, False)
        assert {(a.if_version, a.ttl_s, a.who, a.why) for a in (tried, done)} == {
            (7, 900.0, "me", "fan-out")}  # fmt: skip
        await s.press("enter")
        assert s.form is None
        after, held = shown(s.app)[-3:-1]
        assert after.startswith("AFTER concurrency 4 acme 0:00  victims' miss 67% > -")
        assert held.startswith("SET   1  14:00 left: tenant 'acme': concurrency 4 (me)")
        await s.press("u")
        await s.has(Stage.TRIED)
        assert "takes back, on e1/main: tenant 'acme': concurrency 4 (by me)" in s.lines
        await s.press("enter")
        await s.has(Stage.DONE)
        await s.press("escape")
        assert [c.state for c in s.engine.changes] == ["undone"]
        assert not any(line.startswith("SET") for line in shown(s.app))

    one.play(body)


def test_a_change_by_another_hand_is_shown_and_the_same_form_offered_on_top_of_it(one):
    async def body(s: Scene) -> None:
        await s.press("c", *"60")
        s.engine.by_another("tenant 'acme': concurrency 16 -> none")
        await s.press("enter")
        await s.has(Stage.MOVED)
        assert "bob: tenant 'acme': concurrency 16 -> none (in force)" in s.lines
        assert [a.request.act.dry_run for a in s.engine.asked] == [True]
        await s.press("enter")
        await s.has(Stage.TRIED)
        s.engine.by_another("tenant 'globex': weight 2")
        await s.press("enter")
        await s.has(Stage.MOVED)
        assert "globex" in s.lines
        await s.press("enter")
        await s.has(Stage.TRIED)
        await s.press("enter")
        await s.has(Stage.DONE)
        assert s.engine.tenants["acme"].rpm == 60
        assert sum(not a.request.act.dry_run for a in s.engine.asked) == 2

    one.play(body)


@pytest.mark.parametrize(
    ("key", "typed", "method", "expects"),
    [
        ("w", ("2",), "SetTenant", "from the next step on"),
        ("d", (), "DrainTenant", "nothing new is let in (429); 13 requests under way end"),
        ("k", (), "PreemptTenant", "of 7 running requests wait again"),
        ("U", ("right",), "UnloadAdapter", "whoever names it is told 404"),
    ],
)
def test_each_act_is_tried_and_done_on_the_tenant_the_verdict_names(
    one, key, typed, method, expects
):
    async def body(s: Scene) -> None:
        await s.press(key, *typed)
        assert expects in s.lines
        await s.press("enter")
        await s.has(Stage.TRIED)
        await s.press("enter")
        await s.has(Stage.DONE)
        assert [a.method for a in s.engine.asked] == [method, method]
        if key == "U":
            assert s.engine.asked[-1].request.adapter == "acme-b"
        else:
            assert s.engine.asked[-1].request.tenant == "acme"

    one.play(body)


def test_a_row_that_is_chosen_is_whom_it_is_about_and_one_pool_leaves_nowhere_to_move(one):
    async def body(s: Scene) -> None:
        await s.press("down", "c")
        chosen = s.app.selected
        assert chosen in ("globex", "initech", "umbrella")
        if chosen == "umbrella":  # not served by that engine
            assert s.form is None
        else:
            assert f"CAP {chosen}" in s.lines
            await s.press("escape")
        await s.press("M")
        assert s.form is None

    one.play(body)


def test_where_nobody_is_chosen_or_named_the_tenant_is_asked_for(one):
    async def body(s: Scene) -> None:
        await hear(s.app, s.pilot, Now(CALM))
        await s.press("d")
        assert s.form is None
        await s.press(*"nobody", "enter")
        assert s.told == ["drain: no engine that answers serves nobody"]
        await s.press("ctrl+u", *"initech", "enter")
        await until(s.pilot, lambda: s.form is not None)
        assert "DRAIN initech" in s.lines
        await s.press("escape", "space")  # the prompt is closed: keys are keys again
        assert s.app._held
        await s.press("space")

    one.play(body)


def test_where_there_is_another_pool_a_tenant_is_moved_into_it(one):
    async def body(s: Scene) -> None:
        s.engine.pools = ("main", "gold", "[red]")
        await s.look(lambda: len(s.desk.looked.states[0].pools) == 3)
        await s.press("M")
        assert "new requests go to pool gold; 13 under way end where they are" in s.lines
        await s.press("right")
        assert "pool main [red]" in s.lines
        await s.press("left", "enter")
        await s.has(Stage.TRIED)
        await s.press("enter")
        await s.has(Stage.DONE)
        assert [a.request.pool for a in s.engine.asked] == ["gold", "gold"]

    one.play(body)


def test_a_silent_engine_holds_up_nothing_and_leaving_the_form_changes_nothing(one):
    async def body(s: Scene) -> None:
        await s.press("d")
        s.engine.hold.clear()
        await s.press("enter")
        assert s.form.form.stage is Stage.TRYING
        await hear(s.app, s.pilot, Now(HURT))  # pictures go on
        await s.press("q")
        assert s.app.is_running
        await s.press("escape")
        assert s.form is None
        await s.press("c")
        assert s.form is not None  # the next form opens while that call still waits
        await s.press(*"6", "enter")
        assert "the act before is still under way" in s.lines
        s.engine.hold.set()

    one.play(body)


def test_what_became_of_an_act_is_told_over_another_form(one):
    async def body(s: Scene) -> None:
        await s.press("d", "enter")
        await s.has(Stage.TRIED)
        s.engine.hold.clear()
        await s.press("enter", "escape", "c")
        assert s.form is not None
        assert s.told == []
        s.engine.hold.set()
        await until(s.pilot, lambda: s.told)
        assert s.told == ["drain of 'acme'"]
        assert s.form.form.stage is Stage.TYPING

    one.play(body)


def test_what_is_told_in_its_own_form_is_not_told_twice(one):
    async def body(s: Scene) -> None:
        await s.press("d", "enter")
        await s.has(Stage.TRIED)
        await s.press("enter")
        await s.has(Stage.DONE)
        assert s.told == []

    one.play(body)


def test_what_is_pasted_is_one_line_and_the_form_follows_the_terminals_size(one):
    async def body(s: Scene) -> None:
        await s.press("c")
        s.form.post_message(events.Paste("6\x1b0\nrm -rf"))
        await until(s.pilot, lambda: s.form.form.value("rpm") == "60")
        await s.pilot.resize_terminal(40, 10)
        await until(s.pilot, lambda: s.form.size.width == 40)
        await s.press("enter")
        await s.has(Stage.TRIED)
        shown_now = s.form._body.shown
        assert len(shown_now) <= 10
        assert all(line.width <= 40 for line in shown_now)
        assert "rpm 60" in s.lines
        await s.pilot.resize_terminal(80, 24)

    one.play(body)


def test_an_engine_that_refuses_says_so_in_the_form(one):
    async def body(s: Scene) -> None:
        s.engine.refuses = "drain of 'acme': [red]it drains already[/]"
        await s.press("d", "enter")
        await until(s.pilot, lambda: s.form.form.trouble != "")
        assert "!! drain of 'acme': [red]it drains already[/]" in s.lines
        assert s.form.form.stage is Stage.TYPING

    one.play(body)


def test_a_door_that_is_shut_says_so_and_opens_by_itself(one):
    async def body(s: Scene) -> None:
        s.engine.closed = True
        await s.look(lambda: not s.desk.open)
        await s.press("c")
        assert s.told == [f"read-only: {s.desk.looked.closed[0][0]}: this token is a viewer's"]
        s.engine.closed = False
        await s.look(lambda: s.desk.open)
        await s.press("c")
        assert "CAP acme" in s.lines

    one.play(body)


def test_without_credentials_the_keys_are_dim_and_say_why():
    async def run() -> None:
        app = app_of(Mute(), desk=Desk(closed_why="read-only: a recording cannot be changed"))
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Now(HURT))
            assert shown(app)[0].endswith("RO")
            roles = {p.text: p.role for p in app._body.shown[-1].pieces}
            assert (roles["c "], roles["a "]) == ("dim", "title")
            await pilot.press("c")
            assert [n.message for n in app._notifications] == [
                "read-only: a recording cannot be changed"]  # fmt: skip
            app._feed.close()

    asyncio.run(asyncio.wait_for(run(), 40))
