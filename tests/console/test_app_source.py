"""The console and what its source says: pictures, refusals, silence, answers that come late."""

from __future__ import annotations

from dataclasses import replace

from console.detail import Ask, Detail
from console.panels import Snapshot
from console.poller import Now, Then, Trouble
from console.seeing import REMEMBERED
from console.settings import ConsoleSettings
from telemetry.ask.reading import Result
from tests.console.on_screen import (
    CALM,
    HURT,
    QUICK,
    Answering,
    Turned,
    app_of,
    hear,
    scene,
    shown,
    until,
)
from tests.console.test_overview import END


@scene(feed=Answering, settings=QUICK, at=END - 30.0)
async def test_it_can_begin_in_the_past(app, pilot):
    await until(pilot, lambda: app.picture is not None and app.picture.edge is not None)
    assert app.picture.now == END - 30.0
    await pilot.press("end")
    await until(pilot, lambda: app.picture.edge is None)


@scene()
async def test_a_source_that_fails_leaves_its_last_picture_grey_under_a_banner(app, pilot):
    await hear(app, pilot, Now(HURT))
    await hear(app, pilot, Trouble("connection \x1b[31mrefused"))
    assert shown(app)[1].startswith("!! no fresh figures for")
    assert "connection \\x1b[31mrefused; trying again" in shown(app)[1]
    assert {p.role for line in app._body.shown[2:-1] for p in line.pieces} == {"dim"}
    await hear(app, pilot, Now(HURT))
    assert shown(app)[1].startswith("!! 3 HURT")


def test_a_source_that_says_nothing_is_said_to_be_silent():
    clock = Turned()

    @scene(monotonic=clock)
    async def silent(app, pilot):
        await hear(app, pilot, Now(HURT))
        clock.now = 42.0
        app.check_feed()
        assert shown(app)[1].startswith("!! no fresh figures for 42s: the source does not answer")

    silent()


def test_a_console_that_asks_rarely_is_not_silent_in_between():
    clock = Turned()

    @scene(monotonic=clock, settings=ConsoleSettings(period_s=60.0))
    async def patient(app, pilot):
        await hear(app, pilot, Now(HURT))
        clock.now = 59.0
        app.check_feed()
        assert "data 59s" in shown(app)[0]
        assert shown(app)[1].startswith("!! 3 HURT")

    patient()


@scene()
async def test_an_answer_about_another_instant_than_wanted_is_not_shown(app, pilot):
    await hear(app, pilot, Now(HURT))
    await hear(app, pilot, Then(END - 50.0, CALM))
    assert app.picture is HURT


def test_answers_to_pages_are_kept_for_a_while_and_a_refusal_takes_none_away():
    app = app_of()
    asked = [(Ask.of("rows", f"query{n}"),) for n in range(REMEMBERED + 4)]
    for asks in asked:
        app._keep(Detail(asks, {"rows": Result(("n",), ((1,),))}))
    assert len(app._details) == REMEMBERED
    app._keep(Detail(asked[-1], trouble="gone"))
    kept = app._details[tuple(a.about for a in asked[-1])]
    assert (kept.rows("rows"), kept.trouble) == ([{"n": 1}], "gone")


class Forgetful(Answering):
    """The past cannot be read at first."""

    broken = True

    def at(self, at: float) -> Snapshot:
        if self.broken:
            raise ConnectionError("that day cannot be read")
        return super().at(at)


@scene(feed=Forgetful, settings=QUICK)
async def test_an_instant_that_is_refused_is_said_marked_as_held_and_asked_for_again(app, pilot):
    await until(pilot, lambda: app.picture is not None)
    await pilot.press("left")
    await pilot.pause()
    assert "HELD" in shown(app)[0]
    await until(pilot, lambda: "that day cannot be read" in shown(app)[1])
    app._feed.broken = False
    await until(pilot, lambda: app.picture.now == END - 10.0)
    assert not shown(app)[1].startswith("!! no fresh figures")


@scene()
async def test_how_far_a_picture_of_the_past_lies_back_grows(app, pilot):
    app.go(END - 50.0)
    await hear(app, pilot, Then(END - 50.0, replace(CALM, now=END - 50.0, edge=END)))
    await hear(app, pilot, Now(replace(HURT, now=END + 10.0)))
    assert "HELD 60s back" in shown(app)[0]


@scene()
async def test_nothing_is_held_before_there_is_a_picture(app, pilot):
    await pilot.press("space")
    await hear(app, pilot, Now(HURT))
    assert app.picture is HURT
