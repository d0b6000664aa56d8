"""Lets several cores of one virtual world step at the same time: a thread a core, one runs.

A core's step is one call that lasts from its plan to its settling, and other cores' steps begin
and end in between. Each core steps in a lane of its own; a lane runs only between `resume` and
its next sleep or idleness, so that a run depends on instants alone, never on the machine's
threads. Owns the baton; knows no cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Closed(BaseException):
    """The lane ends in the middle of a step."""


class Lane:
    """`work` does one step and returns False when there is nothing to do. `sleep_until` is for
    `work`: it comes back when the driver resumes the lane, at that instant."""

    def __init__(self, work: Callable[[], bool], name: str) -> None:
        self._work = work
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._closing = False
        self._error: BaseException | None = None
        self.wake_s: float | None = None  # asleep until; None = idle
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def sleep_until(self, engine_s: float) -> None:
        self.wake_s = engine_s
        self._hand_over()
        self.wake_s = None

    def resume(self) -> None:
        """Let it run until it sleeps or is idle. Raises what its work raised."""
        self._mine.release()
        self._theirs.acquire()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread, in the middle of a step too."""
        self._closing = True
        self._mine.release()
        self._thread.join()

    def _hand_over(self) -> None:
        self._theirs.release()
        self._mine.acquire()
        if self._closing:
            raise _Closed

    def _run(self) -> None:
        try:
            self._mine.acquire()
            while not self._closing:
                if not self._work():
                    self._hand_over()
        except _Closed:
            return
        except BaseException as e:
            self._error = e
            self._theirs.release()
