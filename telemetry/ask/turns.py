"""Who may look at a store's parts: many at once, or one alone who changes them. Owns the waiting.

Whoever wants to be alone goes before those who come to look after it, and whoever looks for long is
hurried: a question of minutes must not hold up a day's turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0


class Turns:
    """`with turns.shared()` looks, `with turns` is alone; who is alone may do either again."""

    def __init__(self, hurry: Callable[[], None]) -> None:
        """`hurry` is called, again and again, while somebody has waited over the patience to be
        alone; it is to cut short those that look for long."""
        self._hurry = hurry
        self._changed = threading.Condition()
        self._looking = 0
        self._wanting = 0
        self._alone: int | None = None  # thread id
        self._depth = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        mine = threading.get_ident()
        with self._changed:
            while self._alone != mine and (self._alone is not None or self._wanting):
                self._changed.wait()
            self._looking += 1
        try:
            yield
        finally:
            with self._changed:
                self._looking -= 1
                self._changed.notify_all()

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait to be alone; False when the timeout is over. Who looks must not ask for it."""
        mine = threading.get_ident()
        began = time.monotonic()
        with self._changed:
            if self._alone == mine:
                self._depth += 1
                return True
            self._wanting += 1
            try:
                while self._alone is not None or self._looking:
                    waited = time.monotonic() - began
                    if timeout is not None and waited >= timeout:
                        return False
                    if self._looking and waited >= PATIENCE_S:
                        self._hurry()
                    left = PATIENCE_S if timeout is None else timeout - waited
                    self._changed.wait(min(0.1, left) if waited >= PATIENCE_S / 2 else left / 2)
            finally:
                self._wanting -= 1
                self._changed.notify_all()
            self._alone, self._depth = mine, 1
            return True

    def release(self) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._alone = None
                self._changed.notify_all()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
