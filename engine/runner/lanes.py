"""Lanes: work that a device does in order, beside what other lanes do. Values and protocols only.

A lane is a stream of a GPU (`engine.runner.cuda`). On the CPU nothing runs later than it is asked
for, which is `AtOnce`; tests put lanes that hold work back in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Mark(Protocol):
    """A place in a lane, passed when all that was issued before it has been done."""

    def passed(self) -> bool: ...

    def wait(self) -> None:
        """Hold up this thread, and no lane, until it is passed."""
        ...


class Lane(Protocol):
    """Any thread may ask."""

    def issue(self, work: Callable[[], object]) -> None:
        """Do `work` after all that was issued before; returns before it is done, perhaps."""
        ...

    def mark(self) -> Mark: ...

    def after(self, mark: Mark) -> None:
        """What is issued from now on begins when `mark` is passed; no thread waits for it."""
        ...


class Passed:
    """The mark of what is over."""

    def passed(self) -> bool:
        return True

    def wait(self) -> None:
        return


class AtOnce:
    """The CPU's lane: work is done as it is issued, by whoever issues it."""

    def issue(self, work: Callable[[], object]) -> None:
        work()

    def mark(self) -> Mark:
        return Passed()

    def after(self, mark: Mark) -> None:
        mark.wait()
