"""The console under keys, clicks and sizes; pictures are handed to it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from textual.command import CommandList
from textual.containers import VerticalScroll

from console import account, wide
from console.app import NOT_LISTED
from console.command import read_time
from console.keys import KEYS
from console.pages import PAGES
from console.panels import Snapshot
from console.poller import THREAD, Now
from console.widgets.help_page import HelpPage
from tests.console import rows as made
from tests.console.on_screen import (
    CALM,
    HURT,
    QUICK,
    Answering,
    Mute,
    app_of,
    chosen,
    hear,
    quick,
    scene,
    shown,
    until,
)
from tests.console.test_overview import END, picture


@scene()
async def test_the_first_paint_waits_for_nobody(app, pilot):
    assert shown(app)[0] == "tenantscope  no figures yet"
    await hear(app, pilot, Now(HURT))
    assert shown(app)[1].startswith("!! 3 HURT since 08:02:00")


@scene()
async def test_on_a_first_look_pages_wait_and_hold_waits_for_the_whole(app, pilot):
    early = replace(HURT, filling=True, every_column=False)
    await hear(app, pilot, Now(early))
    await pilot.press("a", "down", "g")
    assert "the last minutes are still being read" in "\n".join(shown(app))
    assert (app.selected, app._feed.columns) == (None, [])
    await pilot.press("a", "space")
    await hear(app, pilot, Now(HURT))
    assert shown(app)[1].startswith("!! 3 HURT since 08:02:00")
    assert "HELD" in shown(app)[0]
    await hear(app, pilot, Now(CALM))  # held: what is new is not shown any more
    assert shown(app)[1].startswith("!! 3 HURT since 08:02:00")


@scene(size=(120, 24))
async def test_the_table_asks_for_columns_that_no_picture_has_while_it_shows_them(app, pilot):
    await hear(app, pilot, Now(replace(HURT, every_column=False)))
    await pilot.press("a")
    assert app._feed.columns == []
    await pilot.press("g", "g", "g")  # asked, got, waits
    assert app._feed.columns == [True]
    await pilot.press("a")
    assert app._feed.columns == [True, False]


@scene()
async def test_a_opens_every_tenant_and_closes_it_again(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("a")
    assert shown(app)[2].startswith("─ALL  4 tenants  sort share down")
    await pilot.press("escape")
    assert shown(app)[8].startswith("─HURT")


@scene()
async def test_sort_group_reverse_and_scroll_change_the_table(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("a", "g")
    assert "columns asked" in shown(app)[2]
    await pilot.press("s", "r")
    assert "up" in shown(app)[2].split()
    await pilot.press("less_than_sign", "down", "down")
    assert chosen(app).split()[1] == app.selected


@scene()
async def test_a_click_on_a_heading_sorts_by_it_and_again_the_other_way(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("a")
    at = shown(app)[3].index("oldest")
    await pilot.click("#body", offset=(at, 3))
    await pilot.pause()
    assert "sort oldest down" in shown(app)[2]
    await pilot.click("#body", offset=(at, 3))
    await pilot.pause()
    assert "sort oldest up" in shown(app)[2]


@scene()
async def test_a_filter_is_typed_and_one_that_cannot_be_used_stays_with_its_reason(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("slash")
    await quick(app, pilot, *"(a+)+$", "enter")
    await pilot.pause()
    assert app._asking == "filter"
    assert [n.message for n in app._notifications]
    await pilot.press("ctrl+u")
    await quick(app, pilot, *"!acme", "enter")
    await pilot.pause()
    assert app._asking == ""
    assert "3 of 4 tenants  filter !acme" in shown(app)[2]
    await pilot.press("q")
    await pilot.pause()
    assert not app.is_running


@scene()
async def test_space_holds_the_picture_while_figures_are_still_collected(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("space")
    later = replace(HURT, now=END + 30.0)
    await hear(app, pilot, Now(later))
    assert app.picture.now == END
    assert "HELD 30s back" in shown(app)[0]
    await pilot.press("space")
    await pilot.pause()
    assert (app.picture.now, "LIVE" in shown(app)[0]) == (END + 30.0, True)


@scene(feed=Answering, settings=QUICK)
async def test_the_arrows_step_by_buckets_and_the_edge_is_reached_again(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    await pilot.press("left", "left")
    await until(pilot, lambda: app.picture.now == END - 20.0)
    assert "HELD 20s back" in shown(app)[0]
    await pilot.press("right")
    await until(pilot, lambda: app.picture.now == END - 10.0)
    await pilot.press("right")
    await until(pilot, lambda: app.picture.edge is None)
    assert "LIVE" in shown(app)[0]
    await pilot.press("right")
    await pilot.pause()
    assert app.picture.edge is None


@scene(size=(40, 10))
async def test_on_the_smallest_screen_a_prompt_leaves_the_picture(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("t")
    assert shown(app)[1].startswith("!! 3 HURT")
    assert shown(app)[-1].startswith("time: 17:03, ")
    assert len(shown(app)) == 9


@scene(size=(40, 10))
async def test_on_the_smallest_screen_the_whole_of_the_palettes_list_can_be_reached(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("ctrl+p")
    await until(pilot, lambda: app.screen.query(CommandList))
    listed = app.screen.query_one(CommandList)
    await until(pilot, lambda: listed.option_count)
    await pilot.press("ctrl+end")
    assert listed.highlighted == listed.option_count - 1
    assert 3 < listed.region.bottom <= 10


@scene(feed=Answering, settings=QUICK)
async def test_t_goes_to_a_time_and_what_is_no_time_stays_with_its_reason(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    await pilot.press("t")
    await quick(app, pilot, *"noon-ish", "enter")
    await pilot.pause()
    assert app._asking == "time"
    assert shown(app)[-1].startswith("time: 17:03, ")  # not the keys: they type letters now
    assert any("is no time" in n.message for n in app._notifications)
    await pilot.press("ctrl+u")
    await quick(app, pilot, *"1m ago", "enter")
    await until(pilot, lambda: app.picture.now == END - 60.0)
    await pilot.press("t")
    await quick(app, pilot, *"end", "enter")
    await until(pilot, lambda: app.picture.edge is None)


def test_the_start_is_where_the_first_bucket_ends_so_that_there_is_something_to_see():
    share = (None, 0.5, None, 0.2)
    seen = replace(HURT, data_at=175.0, now=180.0, edge=None,
                   trend=replace(HURT.trend, bucket_s=60.0, share=share))  # fmt: skip
    assert read_time("start", seen) == 60.0


@scene()
async def test_a_filter_that_takes_too_long_over_the_names_is_let_go_with_the_reason(app, pilot):
    await hear(app, pilot, Now(HURT))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("telemetry.watch.name_filter.MOST_SECONDS", -1.0)
        await pilot.press("slash")
        await quick(app, pilot, *"acme", "enter")
        await pilot.pause()
        await pilot.pause()
    assert "filter" not in shown(app)[2]
    assert any("takes longer" in n.message for n in app._notifications)


@scene()
async def test_p_goes_round_the_pools_and_says_where_there_is_one(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("p", "p")  # what is said again covers no more of the screen
    await pilot.pause()
    assert sum("one pool" in n.message for n in app._notifications) == 1
    await hear(app, pilot, Now(replace(HURT, pools=("main", "other"))))
    await pilot.press("p")
    assert app._feed.pools == ["other"]
    await pilot.press("space", "p")  # held: the same instant of the other pool
    assert app._at == pytest.approx(END)


@scene()
async def test_help_is_made_of_the_keys_and_any_key_closes_it(app, pilot):
    await hear(app, pilot, Now(HURT))
    await pilot.press("question_mark")
    await pilot.pause()
    assert isinstance(app.screen, HelpPage)
    app.animation_level = "none"
    await pilot.press("down")
    assert isinstance(app.screen, HelpPage)
    page = app.screen.query_one(VerticalScroll)
    await until(pilot, lambda: page.scroll_y == 1.0)
    bottom, height = page.max_scroll_y, page.scrollable_content_region.height
    assert bottom > height
    for key, at in (("up", 0), ("pagedown", height), ("pageup", 0), ("end", bottom), ("home", 0)):
        await pilot.press(key)
        await until(pilot, lambda at=at: page.scroll_y == at)
    await pilot.press("x")
    await pilot.pause()
    assert not isinstance(app.screen, HelpPage)


@scene()
async def test_the_palette_has_every_action_of_the_open_page_and_every_column(app, pilot):
    for page in PAGES:
        app.open_page(page)
        commands = [c.title for c in app.get_system_commands(app.screen)]
        told = [k for k in KEYS if k.works(page) and k.action not in NOT_LISTED]
        assert commands[: len(told)] == [f"{k.short or k.long} ({k.shown})" for k in told]
    app.open_page("overview")
    assert {"columns: slo", "sort by vtc_gap_s"} <= set(commands)
    await hear(app, pilot, Now(HURT))
    chosen = next(c for c in app.get_system_commands(app.screen) if c.title == "sort by failed")
    chosen.callback()
    await pilot.pause()
    assert "sort failed down" in shown(app)[2]


@scene()
async def test_a_storm_of_sizes_leaves_the_right_picture(app, pilot):
    await hear(app, pilot, Now(HURT))
    for size in [(30, 5), (200, 60), (41, 11), (39, 30), (120, 9), (1, 1), (160, 45), (80, 24)] * 3:
        await pilot.resize_terminal(*size)
    await pilot.pause()
    assert len(shown(app)) == 24
    assert shown(app)[1].startswith("!! 3 HURT")
    await pilot.resize_terminal(39, 24)
    await pilot.pause()
    assert shown(app)[0].startswith("too small: 39x24")


def test_a_screen_that_an_error_ended_says_so_by_its_exit_code(monkeypatch):
    app = app_of()
    monkeypatch.setattr(app, "run", lambda: setattr(app, "_return_code", 1))
    assert app.show() == 1


@scene()
async def test_ctrl_c_is_told_from_quitting(app, pilot):
    await pilot.press("ctrl+c")
    await pilot.pause()
    assert (app.interrupted, app.is_running) == (True, False)


def test_without_colour_the_marks_say_the_same(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    @scene()
    async def grey(app, pilot):
        assert app.no_color
        await hear(app, pilot, Now(HURT))
        assert [x[:2] for x in shown(app)[9:13]] == ["!!", "!!", "!!", "* "]
        await pilot.press("down")
        y = next(i for i, x in enumerate(app._body.shown) if x.tint == "cursor")
        assert all(s.style.reverse for s in app._body.render_line(y) if s.style)

    grey()


def test_what_a_picture_needs_of_a_crowd_is_worked_out_on_the_feeds_thread(monkeypatch):
    crowd = picture(made.incident(victims=[f"v{i}" for i in range(40)]))
    fold, at = account.others, []

    def folding(rest):
        at.append(threading.current_thread().name)
        return fold(rest)

    monkeypatch.setattr(account, "others", folding)
    monkeypatch.setattr(wide, "others", folding)

    class Once(Mute):
        told = False

        def snapshot(self) -> Snapshot:
            if self.told:
                return super().snapshot()
            self.told = True
            return crowd

    @scene(feed=Once)
    async def body(app, pilot):
        while app.picture is None:
            await pilot.pause(0.01)
        await pilot.pause()
        assert any("others (" in line for line in shown(app))

    body()
    assert at
    assert set(at) == {THREAD}
