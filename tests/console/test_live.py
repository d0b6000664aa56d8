"""The screen under keys, sizes, odd names and a feed that fails."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC

import pytest
from textual.geometry import Region

from console.live import Failed, Fresh, LiveApp
from console.panels import Snapshot
from console.snapshot import build_snapshot
from console.widgets.help import Help
from console.widgets.lines import Lines
from tests.console import rows as made

ODD_NAMES = ("[red]x[/]", "日本の会社", "👩‍👩‍👧 family", "a" * 200, "evil\x1b[31m\n|`")
END = made.T0 + 181.0


class Mute:
    """A feed that never answers: the test says what the screen hears."""

    def __init__(self):
        self.over = threading.Event()

    def snapshot(self) -> Snapshot:
        self.over.wait()
        raise ConnectionError("over")


class Turned:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def app_of(feed=None, actions=None, **kwargs) -> LiveApp:
    return LiveApp(Mute() if feed is None else feed, actions, tz=UTC, period_s=0.01, **kwargs)


def incident(at: float = END, **kwargs) -> Snapshot:
    return build_snapshot(made.incident(**kwargs), at, verdict=made.verdict())


def shown(app: LiveApp, panel: str) -> list[str]:
    """The lines of a panel of the first screen, whatever lies on top of it."""
    return [line.plain for line in app.screen_stack[0].query_one(f"#{panel}", Lines).shown]


def run(coroutine) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 30))


async def hear(app, pilot, message) -> None:
    app.post_message(message)
    await pilot.pause()
    await pilot.pause()


async def until(pilot, true) -> None:
    """Let the screen and the feed's thread run until something holds."""
    while not true():
        await pilot.pause(0.01)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_every_size_shows_verdict_strips_tenants_and_changes_with_odd_names(size):
    async def scene():
        app = app_of()
        async with app.run_test(size=size) as pilot:
            names = ODD_NAMES
            s = build_snapshot(
                made.incident(victims=names), END, verdict=made.verdict("acme", names)
            )
            await hear(app, pilot, Fresh(s))
            assert shown(app, "verdict")[0].startswith("!! 5 tenants HURT")
            table = "\n".join(shown(app, "tenants"))
            assert "[red]x[/]" in table
            assert "\x1b" not in table
            assert shown(app, "strips")[0].startswith("POOL")
            assert shown(app, "ticker")[-1].endswith("acme fans out long contexts")
            for panel in app.query(Lines):
                assert all(line.width <= panel.size.width for line in panel.shown)
                assert len(panel.shown) <= max(1, panel.size.height), panel.id
            svg = app.export_screenshot()
            assert svg.startswith("<svg")
            assert "globex" not in svg

    run(scene())


@pytest.mark.parametrize("size", [(60, 15), (80, 18)])
def test_a_low_screen_still_says_who_is_hurt_and_behind_whom(size):
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Fresh(incident()))
            await pilot.resize_terminal(*size)
            await pilot.pause()
            rows = shown(app, "tenants")
            assert sum(row.startswith(("!!", "* ")) for row in rows) >= 2, rows
            assert [line[:4] for line in shown(app, "strips")] == ["WAIT", "HELD"]
            panels = {p.id: p.size.height for p in app.query(Lines) if p.display}
            assert sum(panels.values()) <= size[1] - 1, panels
            assert not app.screen.show_vertical_scrollbar

    run(scene())


@pytest.mark.parametrize(("key", "interrupted"), [("ctrl+c", True), ("q", False)])
def test_ctrl_c_leaves_at_once_and_is_told_from_quitting(key, interrupted):
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Fresh(incident()))
            await pilot.press("question_mark")
            if not interrupted:
                await pilot.press("question_mark")
            await pilot.press(key)
            await pilot.pause()
            assert (app.interrupted, app.is_running) == (interrupted, False)

    run(scene())


def test_leaving_waits_for_the_question_under_way(monkeypatch):
    """Else the interpreter ends while the thread is inside the database, and aborts."""
    asked = threading.Event()
    answered = []

    class Slow:
        def snapshot(self):
            asked.set()
            app._over.wait()
            answered.append(True)
            return incident()

    def run_until_asked():
        app._poller.start()
        asked.wait()

    app = app_of(Slow())
    monkeypatch.setattr(app, "run", run_until_asked)
    app.show()
    assert (answered, app._poller.is_alive()) == ([True], False)
    app.interrupted = True
    monkeypatch.setattr(app, "run", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        app.show()


def test_the_first_paint_waits_for_nobody():
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert "waiting for the first figures" in shown(app, "header")[0]
            assert app.picture is None

    run(scene())


def test_pictures_come_from_the_feeds_own_thread():
    class Counting:
        def __init__(self):
            self.threads = set()
            self.calls = 0

        def snapshot(self):
            self.threads.add(threading.current_thread().name)
            self.calls += 1
            return incident(END + self.calls)

    async def scene():
        feed = Counting()
        app = app_of(feed)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: feed.calls > 3 and app.picture is not None)
        assert feed.threads == {"feed"}

    run(scene())


def test_space_holds_the_picture_while_figures_are_still_collected():
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Fresh(incident(END)))
            await pilot.press("space")
            await hear(app, pilot, Fresh(incident(END + 7)))
            assert app.picture.now == END
            assert "HELD at 08:03:01" in shown(app, "header")[1]
            await pilot.press("space")
            await pilot.pause()
            assert app.picture.now == END + 7
            assert "HELD" not in shown(app, "header")[1]

    run(scene())


def test_a_feed_that_fails_leaves_the_last_picture_under_a_banner_with_its_age():
    async def scene():
        clock = Turned()
        app = app_of(monotonic=clock)
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Fresh(incident()))
            clock.now = 12.0
            await hear(app, pilot, Failed("the [store] does not answer"))
            banner = app.query_one("#banner", Lines)
            assert banner.display
            assert shown(app, "banner") == [
                "!! no fresh figures for 12s: the [store] does not answer"
            ]
            assert "globex" in "\n".join(shown(app, "tenants"))
            clock.now = 15.0
            app.check_feed()
            assert "for 15s" in shown(app, "banner")[0]
            await hear(app, pilot, Fresh(incident()))
            assert not banner.display

    run(scene())


def test_a_feed_that_raises_is_told_and_asked_again():
    class Flaky:
        def __init__(self):
            self.calls = 0

        def snapshot(self):
            self.calls += 1
            if self.calls == 2:
                return incident()
            raise ValueError("no such file")

    async def scene():
        app = app_of(Flaky())
        async with app.run_test(size=(80, 24)) as pilot:
            # The success in between hides the banner for a moment: look and judge at once.
            await until(
                pilot,
                lambda: (
                    app.picture is not None
                    and any("no such file" in line for line in shown(app, "banner"))
                ),
            )

    run(scene())


def test_a_feed_that_hangs_is_said_to_be_silent():
    async def scene():
        clock = Turned()
        app = app_of(monotonic=clock)
        async with app.run_test(size=(80, 24)) as pilot:
            app.check_feed()
            assert not app.query_one("#banner").display
            clock.now = 6.0
            app.check_feed()
            await pilot.pause()
            assert "no fresh figures for 6s: the feed does not answer" in shown(app, "banner")[0]

    run(scene())


class Switch:
    def __init__(self, error: Exception | None = None):
        self.error = error
        self.called: list[str] = []

    def switch_policy(self) -> str:
        self.called.append(threading.current_thread().name)
        if self.error:
            raise self.error
        return "policy is now [vtc] (v2), was fcfs"


def notices(app: LiveApp) -> list[tuple[str, str]]:
    return [(n.message, n.severity) for n in app._notifications]


@pytest.mark.parametrize(
    ("actions", "notice"),
    [
        (Switch(), ("policy is now [vtc] (v2), was fcfs", "information")),
        (Switch(RuntimeError("version 3 is in force")), ("version 3 is in force", "warning")),
        (None, ("a replay cannot be switched", "warning")),
    ],
)
def test_p_switches_the_policy_off_the_screens_thread_and_says_how_it_went(actions, notice):
    async def scene():
        app = app_of(actions=actions, no_actions="a replay cannot be switched")
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("p")
            await until(pilot, lambda: notices(app))
            assert notices(app) == [notice]
        if actions is not None:
            assert actions.called == ["action"]

    run(scene())


def test_the_question_mark_explains_the_words_and_any_key_goes_back():
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("question_mark")
            await pilot.pause()
            assert isinstance(app.screen, Help)
            words = "\n".join(line.plain for line in app.screen.query_one(Lines).shown)
            assert "no accusation" in words
            await pilot.press("q")
            await pilot.pause()
            assert not isinstance(app.screen, Help)

    run(scene())


def test_figures_and_troubles_go_on_arriving_behind_the_help_page():
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("question_mark")
            await hear(app, pilot, Fresh(incident()))
            await hear(app, pilot, Failed("gone"))
            await pilot.press("escape")
            await pilot.pause()
            assert "globex" in "\n".join(shown(app, "tenants"))
            assert "gone" in shown(app, "banner")[0]

    run(scene())


def test_q_quits_though_the_feed_hangs():
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("q")
            await pilot.pause()
        assert app.return_code == 0

    run(scene())


def test_only_the_lines_that_changed_are_painted_again(monkeypatch):
    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            s = incident()
            await hear(app, pilot, Fresh(s))
            panel = app.query_one("#tenants", Lines)
            painted: list[Region] = []
            monkeypatch.setattr(panel, "refresh", lambda *regions, **_: painted.extend(regions))
            third = replace(s.tenants[2], running=3.0)
            await hear(app, pilot, Fresh(replace(s, tenants=(*s.tenants[:2], third, s.tenants[3]))))
            assert painted == [Region(0, 4, 80, 1)]  # below the rule, the heading and two tenants

    run(scene())


def test_without_colour_the_marks_still_tell(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def scene():
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Fresh(incident()))
            rows = shown(app, "tenants")[2:6]
            assert [line[:2] for line in rows] == ["* ", "!!", "!!", "!!"]
            assert app.export_screenshot().startswith("<svg")

    run(scene())
