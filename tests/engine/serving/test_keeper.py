"""Who keeps a process alive: how long it waits between two tries, and what it says. No process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from engine.serving.keeper import Keeper


class FakeChild:
    """Ready at once, or never; ends when the test says so."""

    def __init__(self, on_exit: Callable[[], None], ready: bool = True) -> None:
        self._on_exit = on_exit
        self._ready = ready
        self.code: int | None = None
        if not ready:
            self.end(1)

    def end(self, code: int) -> None:
        self.code = code
        self._on_exit()

    def wait_ready(self, timeout_s: float) -> bool:
        return self._ready

    def poll(self) -> int | None:
        return self.code

    def how(self) -> str:
        return f"exit code {self.code}"

    def by_whom(self) -> str:
        return ""

    def last_words(self) -> list[str]:
        return ["no room"] if self.code else []

    def stop(self, timeout_s: float) -> int:
        if self.code is None:
            self.end(0)
        assert self.code is not None
        return self.code


class Kept:
    """A keeper whose pauses are told instead of waited for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.pauses: list[float] = []
        self.next: list[str] = []  # "dead", "refused"; else a start succeeds
        self.keeper = Keeper(
            "worker gold",
            self.start,  # type: ignore[arg-type]
            self.said.put,
            1.0,
            "the others go on",
            now=lambda: self.now_s,
        )
        self.keeper._stopping = Pauses(self.pauses)
        self.keeper.watch()

    def start(self, on_exit: Callable[[], None]) -> FakeChild:
        how = self.next.pop(0) if self.next else ""
        if how == "refused":
            raise BlockingIOError(11, "Resource temporarily unavailable")
        if how == "no thread":
            raise RuntimeError("can't start new thread")
        return FakeChild(on_exit, ready=how != "dead")

    def crash(self) -> list[str]:
        """The child ends; what is said until one is back."""
        self.keeper.child.end(9)  # type: ignore[attr-defined]
        said = [self.said.get(timeout=10)]
        while "is back" not in said[-1]:
            said.append(self.said.get(timeout=10))
        return said


class Pauses(threading.Event):
    def __init__(self, pauses: list[float]) -> None:
        super().__init__()
        self._pauses = pauses

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._pauses.append(timeout)
        return self.is_set()


@pytest.fixture
def kept():
    kept = Kept()
    yield kept
    kept.keeper.stop(1.0)


def test_its_end_and_its_return_are_said_and_what_holds_meanwhile(kept: Kept) -> None:
    assert kept.crash() == [
        "the worker gold process ended with exit code 9; the others go on; starting it again "
        "(it said: no room)",
        "the worker gold process is back",
    ]


def test_each_failed_start_doubles_the_pause_up_to_thirty_seconds(kept: Kept) -> None:
    kept.next = ["dead"] * 7
    kept.crash()
    assert kept.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_one_that_gets_ready_and_dies_again_and_again_is_not_hammered(kept: Kept) -> None:
    for _ in range(3):
        kept.crash()
        kept.now_s += 29.0
    assert kept.pauses == [0.5, 1.0, 2.0]


def test_one_that_has_been_up_for_half_a_minute_begins_anew(kept: Kept) -> None:
    kept.crash()
    kept.crash()
    kept.now_s += 30.0
    kept.crash()
    assert kept.pauses == [0.5, 1.0, 0.5]


def test_a_system_that_refuses_a_process_is_asked_again(kept: Kept) -> None:
    kept.next = ["refused", "refused"]
    said = kept.crash()
    assert (
        said[1:3]
        == [
            "the worker gold process cannot be started (Resource temporarily unavailable); "
            "trying again"
        ]
        * 2
    )
    assert kept.pauses == [0.5, 1.0, 2.0]


def test_stopping_between_two_tries_starts_nothing_more(kept: Kept) -> None:
    kept.next = ["refused"]
    kept.crash()
    last = kept.keeper.child
    kept.keeper.stop(1.0)
    assert kept.keeper.child is last
    assert last.poll() == 0


def test_whatever_keeps_a_start_from_happening_is_said_and_tried_again(kept: Kept) -> None:
    kept.next = ["no thread"]
    assert kept.crash()[1:] == [
        "the worker gold process cannot be started (can't start new thread); trying again",
        "the worker gold process is back",
    ]
