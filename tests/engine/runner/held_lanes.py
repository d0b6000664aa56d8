"""Lanes that do nothing before they must: what a device's streams do at their latest. No torch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from engine.runner.lanes import Mark

WITHIN_S = 20.0


class HeldMark:
    """Passed when its lane has come so far. Waiting for it does not make the lane go."""

    def __init__(self, lane: HeldLane) -> None:
        self.lane = lane
        self._event = threading.Event()

    def passed(self) -> bool:
        return self._event.is_set()

    def wait(self) -> None:
        with self.lane.issued:
            self.lane.awaited += 1
            self.lane.issued.notify_all()
        assert self._event.wait(WITHIN_S), "nobody let the lane go"

    def reach(self) -> None:
        self._event.set()


class HeldLane:
    """Keeps what is issued until `go`, in order. What it must come `after` is made to happen first,
    as a device would: the other lane goes so far, and no further."""

    def __init__(self) -> None:
        self.todo: deque[Callable[[], object]] = deque()
        self.issued = threading.Condition()
        self.awaited = 0  # marks that a thread has begun to wait for

    def issue(self, work: Callable[[], object]) -> None:
        self._add(work)

    def mark(self) -> HeldMark:
        mark = HeldMark(self)
        self._add(mark.reach)
        return mark

    def after(self, mark: Mark) -> None:
        assert isinstance(mark, HeldMark)
        self._add(lambda: mark.passed() or mark.lane.go(mark))

    def go(self, until: HeldMark | None = None) -> None:
        """To the end, or until that mark is passed."""
        while self.todo and not (until is not None and until.passed()):
            self.todo.popleft()()

    def holds(self, count: int) -> None:
        """Returns when so much has been issued and not been done."""
        with self.issued:
            assert self.issued.wait_for(lambda: len(self.todo) >= count, WITHIN_S)

    def waited_for(self, count: int) -> None:
        """Returns when threads have begun to wait for so many marks."""
        with self.issued:
            assert self.issued.wait_for(lambda: self.awaited >= count, WITHIN_S)

    def _add(self, work: Callable[[], object]) -> None:
        with self.issued:
            self.todo.append(work)
            self.issued.notify_all()


class StepLane(HeldLane):
    """A lane whose answers the host reads at once, as it does of a step: it never holds back, and
    makes other lanes go exactly so far as it is told to come after."""

    def _add(self, work: Callable[[], object]) -> None:
        work()
