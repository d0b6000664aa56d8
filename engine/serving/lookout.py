"""Looks after something once a second. Owns its thread, and the time since the last look.

What is looked at, and what is done about it, is `LoopWatch`'s and `Vigil`'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_S = 1.0


class Lookout:
    """`look(passed_s)` is called `passed_s` after the look before, from `start` until `stop`; it
    must not raise: nobody would look on."""

    def __init__(self, name: str, look: Callable[[float], None], every_s: float = LOOK_S) -> None:
        self._name = name
        self._look = look
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """No look begins any more, and the one under way is over. Nothing to do before `start`."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._stopping.wait(self._every_s):
            now_s = time.monotonic()
            self._look(now_s - last_s)
            last_s = now_s
