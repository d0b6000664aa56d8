"""The thread that asks for pictures: how often, for which instant, and what a failure becomes."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from console import poller
from console.detail import Ask, Asks, Detail
from console.panels import Snapshot
from console.poller import (
    DETAIL_EVERY_S,
    FEW_OBJECTS,
    Found,
    Now,
    Poller,
    Then,
    Trouble,
    pause_s,
)
from tests.console import rows as made
from tests.console.on_screen import Answering, Mute
from tests.console.test_overview import END, picture


def test_the_thread_asks_for_now_and_for_the_instant_wanted_once():
    told: list[object] = []
    enough = threading.Event()

    class Feed(Answering):
        closed = False

        def close(self) -> None:
            self.closed = True

    feed = Feed()

    def tell(x: object) -> None:
        told.append(x)
        if sum(isinstance(t, Now) for t in told) >= 3:
            enough.set()

    poller = Poller(feed, tell, 0.001)
    poller.want(END - 10.0)
    poller.start()
    assert enough.wait(20)
    poller.stop()
    poller.join()
    assert feed.wanted == [END - 10.0]
    assert sum(isinstance(t, Then) for t in told) == 1
    assert feed.closed


def test_after_a_first_look_the_whole_picture_is_asked_for_without_a_rest():
    told: list[object] = []
    both = threading.Event()

    whole = picture(made.calm())

    class Filling(Mute):
        looks = 0

        def snapshot(self) -> Snapshot:
            self.looks += 1
            return replace(whole, filling=self.looks == 1)

    def tell(x: object) -> None:
        told.append(x)
        if len(told) == 2:
            both.set()

    poller = Poller(Filling(), tell, 3600.0)  # a rest would not end within the test
    poller.start()
    assert both.wait(20)
    poller.stop()
    poller.join()
    assert [t.snapshot.filling for t in told] == [True, False]


def test_what_a_feed_raises_is_told_in_its_words():
    told: list[object] = []
    heard = threading.Event()

    class Bad(Mute):
        def snapshot(self) -> Snapshot:
            raise ConnectionError("no  route\nto host")

    def tell(x: object) -> None:
        told.append(x)
        heard.set()

    poller = Poller(Bad(), tell, 60.0)
    poller.start()
    assert heard.wait(20)
    poller.stop()
    poller.join()
    assert told[0] == Trouble("no route to host")


def test_a_pages_questions_are_answered_once_and_again_after_a_while_or_a_refusal():
    told: list[Detail] = []
    heard = threading.Semaphore(0)
    looked = threading.Semaphore(0)
    now = [100.0]

    class Feed(Answering):
        refuses = True

        def detail(self, asks: Asks) -> Detail:
            if self.refuses:
                self.refuses = False
                raise ConnectionError("not yet")
            return Detail(asks)

    def tell(x: object) -> None:
        if isinstance(x, Found):
            told.append(x.detail)
            heard.release()
        elif isinstance(x, Now):
            looked.release()

    asks, more = (Ask.of("rows", "one"),), (Ask.of("rows", "two"),)
    poller = Poller(Feed(), tell, 0.001, lambda: now[0])
    poller.ask(asks)
    poller.start()
    assert heard.acquire(timeout=20)
    assert heard.acquire(timeout=20)
    assert told == [Detail(asks, trouble="not yet"), Detail(asks)]
    for _ in range(5):  # the same ones: nothing to be asked
        assert looked.acquire(timeout=20)
    assert len(told) == 2
    now[0] += DETAIL_EVERY_S
    assert heard.acquire(timeout=20)
    poller.ask(more)
    assert heard.acquire(timeout=20)
    poller.ask(())
    poller.stop()
    poller.join()
    assert told[2:] == [Detail(asks), Detail(more)]


@pytest.mark.parametrize(("cost_s", "pause"), [(0.0, 1.0), (0.2, 1.0), (1.0, 4.0), (12.0, 48.0)])
def test_a_crowd_makes_pictures_rarer_and_takes_a_fifth_of_a_core_at_most(cost_s, pause):
    assert pause_s(1.0, cost_s) == pause


@pytest.mark.parametrize(
    ("counts", "looked"),
    [((10, 0, 0), []), ((FEW_OBJECTS + 1, 0, 0), [0]), ((FEW_OBJECTS + 1, 999, 0), [1])],
)
def test_cycles_are_looked_for_between_pictures_where_there_can_be_some(
    monkeypatch, counts, looked
):
    collected: list[int] = []
    monkeypatch.setattr(poller.gc, "get_count", lambda: counts)
    monkeypatch.setattr(poller.gc, "collect", collected.append)
    poller.tidy()
    assert collected == looked
