"""The hand-over's keys on a screen: files, copies, notes; one console for all of them."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from datetime import UTC

from console.app import ConsoleApp
from console.command import read_time
from console.handover import deeds, notes
from console.handover.hand import Hand, Place, Said
from console.lines import Row
from console.poller import Now
from tests.console.on_screen import HURT, Mute, hear


class Shut:
    """A source that is only opened and closed."""

    def close(self) -> None:
        pass


class Told:
    """A console that remembers what it says and copies; `heard` is set when the hand-over has
    said its last."""

    def __init__(self, hand: Hand) -> None:
        self.app = ConsoleApp(Mute(), read_time=read_time, tz=UTC, hand=hand)
        self.sentences: list[str] = []
        self.copies: list[str] = []
        self.heard = threading.Event()
        hears = self.app.hear_hand

        def hear_hand(said: Said) -> None:
            hears(said)
            if said.sentence:
                self.heard.set()

        self.app.say = lambda sentence, severity="": self.sentences.append(sentence)
        self.app.copy_to_clipboard = self.copies.append
        self.app.hear_hand = hear_hand

    async def ended(self, pilot) -> str:
        await asyncio.get_running_loop().run_in_executor(None, self.heard.wait, 30)
        self.heard.clear()
        await pilot.pause()
        return self.sentences[-1]


def test_the_keys_of_the_hand_over(tmp_path, monkeypatch):
    written: list[tuple] = []

    def write_note(place, pool, who, text):
        written.append((place.where, pool, who, text))
        return "noted on inc-1"

    monkeypatch.setattr(notes, "write_note", write_note)

    def make_report(hand, name, start, end, pool, status):
        status("making the report 0s")
        return Said(f"the report is in {name}")

    monkeypatch.setattr(deeds, "_report", make_report)
    monkeypatch.setattr(deeds, "_trace", lambda hand, name, *at: Said(f"traced into {name}"))
    monkeypatch.setattr(deeds, "newest_incident", lambda *of, **how: "main-7")
    monkeypatch.setattr("telemetry.source.open_source", lambda where: Shut())
    hand = Hand(Place("/s", ("--store", "/s")), folder=tmp_path, who="bob")

    async def play() -> None:
        told = Told(hand)
        app = told.app
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("S")
            assert told.sentences == ["there is nothing on the screen yet"]
            await hear(app, pilot, Now(HURT))

            await pilot.press("S")
            [picture] = os.listdir(tmp_path)
            assert picture == "tenantscope-main-overview-20270115-080300.svg"
            assert "<svg" in (tmp_path / picture).read_text()
            await pilot.press("C")
            [table] = [n for n in os.listdir(tmp_path) if n.endswith(".csv")]
            assert (tmp_path / table).read_text().count("\n") == 1 + len(HURT.account.tenants)
            assert told.sentences[-1] == f"written: {tmp_path / table}"

            await pilot.press("y")
            assert told.copies[-1] == "tenantscope console --store /s --pool main"
            place = app.place
            app.see(type(place)(cursor=Row("tenant", "globex", "hurt")))
            await pilot.press("y")
            assert told.copies[-1].startswith("!! globex")
            assert "\n" not in told.copies[-1]

            await pilot.press("n", *"hello", "enter")
            assert await told.ended(pilot) == "noted on inc-1"
            assert written == [("/s", "main", "bob", "hello")]
            await pilot.press("n", "enter")
            assert "an empty note says nothing" in told.sentences[-1]
            await pilot.press("escape")

            await pilot.press("R", "enter")
            said = await told.ended(pilot)
            assert said.startswith("the report is in tenantscope-main-report-20270115-0800")
            await pilot.press("T", "enter")
            said = await told.ended(pilot)
            assert said.startswith("traced into tenantscope-main-trace-20270115-0800")
            await pilot.press("Y")
            assert await told.ended(pilot) == "copied: main-7"
            assert told.copies[-1] == "main-7"

            (tmp_path / "sub").mkdir()
            app.hand.folder = tmp_path / "gone"
            await pilot.press("C")
            assert told.sentences[-1].startswith("nothing was written to ")

            app.hear_hand(Said(status="making the report 3s"))
            await pilot.pause()
            last = app._body.shown[-1].plain
            assert last.startswith("making the report 3s  ")
            assert len(last) <= 80
            app.hand.place = None
            await pilot.press("R")
            assert told.sentences[-1] == ("no store can be named for this view: a report needs one")
            app._feed.close()

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_list_of_all_tenants_is_written_when_its_columns_have_come(tmp_path):
    narrow = replace(HURT, every_column=False)

    async def play() -> None:
        told = Told(Hand(Place("/s", ("--store", "/s")), folder=tmp_path, who="bob"))
        app = told.app
        async with app.run_test(size=(80, 24)) as pilot:
            await hear(app, pilot, Now(narrow))
            await pilot.press("C")
            assert os.listdir(tmp_path) == []
            assert app._feed.columns == [True]
            await hear(app, pilot, Now(narrow))
            assert os.listdir(tmp_path) == []
            await hear(app, pilot, Now(HURT))
            [table] = os.listdir(tmp_path)
            assert told.sentences == [f"written: {tmp_path / table}"]
            app.see()  # nothing needs them any more
            assert app._feed.columns == [True, False]
            app._feed.close()

    asyncio.run(asyncio.wait_for(play(), 60))
