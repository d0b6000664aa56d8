"""Who may touch which pages of a device's arena, and when: steps on one lane, copies on another.

Owns the order, and neither bytes nor pages. A step begins after the copies into pages that it
reads or writes, and after no other; a copy begins after the steps that use its pages, and after no
other. Both wait on the device: a thread waits only while another is still issuing what it needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.runner.lanes import Lane, Mark

Pages = Callable[[], Collection[int]]


@dataclass(slots=True, eq=False)
class _Work:
    """A step or a copy. `mark`: None while it is being issued."""

    ask: Pages
    mark: Mark | None = None
    _pages: frozenset[int] | None = field(default=None)

    @property
    def pages(self) -> frozenset[int]:
        """Asked for only where somebody has to know: a step alone never pays for it."""
        if self._pages is None:
            self._pages = frozenset(self.ask())
        return self._pages

    def over(self) -> bool:
        return self.mark is not None and self.mark.passed()


class PageOrder:
    """One arena's. Steps come from one thread, copies from any."""

    def __init__(self, steps: Lane, copies: Lane) -> None:
        self.steps, self.copies = steps, copies
        self._changed = threading.Condition()
        self._steps: list[_Work] = []
        self._copies: list[_Work] = []

    @contextmanager
    def step(self, pages: Pages) -> Iterator[None]:
        """A step over `pages` is issued within."""
        with self._among(self.steps, pages, self._steps, self._copies):
            yield

    def copy(self, pages: Collection[int], work: Callable[[], object]) -> Mark:
        """Issue a copy into `pages`; the mark of its end. A copy that could not be issued whole
        has ended before the error is raised."""
        with self._among(self.copies, lambda: pages, self._copies, self._steps) as mine:
            try:
                self.copies.issue(work)
            except BaseException:
                self.copies.mark().wait()
                raise
        assert mine.mark is not None
        return mine.mark

    @property
    def under_way(self) -> tuple[int, int]:
        """Steps and copies that have not ended."""
        with self._changed:
            self._forget()
            return len(self._steps), len(self._copies)

    @contextmanager
    def _among(
        self, lane: Lane, pages: Pages, own: list[_Work], others: list[_Work]
    ) -> Iterator[_Work]:
        work = _Work(pages)
        with self._changed:
            self._forget()
            while any(o.mark is None and not o.pages.isdisjoint(work.pages) for o in others):
                self._changed.wait()
            for other in others:
                if other.mark is not None and not other.pages.isdisjoint(work.pages):
                    lane.after(other.mark)
            own.append(work)
        try:
            yield work
        finally:
            with self._changed:
                work.mark = lane.mark()
                self._changed.notify_all()

    def _forget(self) -> None:
        for works in (self._steps, self._copies):
            works[:] = [w for w in works if not w.over()]
