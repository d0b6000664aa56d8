"""Things to be done to a scheduler when no step is under way. Owns the queue of them, no thread.

Whoever is not the core thread asks and waits; the core thread carries them out before it plans.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.scheduling.scheduler import Scheduler

T = TypeVar("T")


class StepStuck(EngineError):
    """No step ended in time. Trying later can help."""

    exit_code = 3


class Order:
    """What is to be done, and what became of it."""

    __slots__ = ("_act", "error", "over", "result")

    def __init__(self, act: Callable[[Scheduler], Any]) -> None:
        self._act = act
        self.result: Any = None
        self.error: Exception | None = None
        self.over = threading.Event()

    def carry_out(self, scheduler: Scheduler) -> None:
        try:
            self.result = self._act(scheduler)
        except Exception as e:  # whoever gave the order is told, not the step
            self.error = e
        finally:
            self.over.set()


class BetweenSteps:
    """One core's. `lock` orders it with the steps, `notify` wakes the core thread."""

    def __init__(self, lock: AbstractContextManager[object], notify: Callable[[], None]) -> None:
        self._lock = lock
        self._notify = notify
        self._orders: deque[Order] = deque()

    def __bool__(self) -> bool:
        """Whether anything is to be done."""
        return bool(self._orders)

    def soon(self, act: Callable[[Scheduler], T]) -> Order:
        """Have it done before the next plan, and wait for nothing. It must not block."""
        order = Order(act)
        with self._lock:
            self._orders.append(order)
        self._notify()
        return order

    def do(self, act: Callable[[Scheduler], T], timeout_s: float) -> T:
        """As `soon`, and wait: what `act` returns or raises is the caller's. Not for the core
        thread. Raises StepStuck when no step ends in time: then it is not done, now or later."""
        order = self.soon(act)
        if not order.over.wait(timeout_s):
            with self._lock:
                if order in self._orders:
                    self._orders.remove(order)
                    raise StepStuck(
                        f"the step under way has not ended within {timeout_s:g} s, so nothing was "
                        "changed: see whether the engine is frozen, then try again"
                    )
            order.over.wait()  # it had begun
        if order.error is not None:
            raise order.error
        result: T = order.result
        return result

    def carry_out(self, scheduler: Scheduler) -> None:
        """Core thread, under the lock."""
        while self._orders:
            self._orders.popleft().carry_out(scheduler)
