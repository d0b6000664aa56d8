"""Executes load orders outside the step: one thread reads disk, one copies to the device.

Owns the two queues; decides nothing (residency ordered the load, took the pages, and says which
host copies go). An adapter that must be read from disk does not hold up those that are in host
memory. What either does with Python's lock held is short: a step waits for that lock.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.memory.moves import LoadOrder
from engine.scheduling.plan import AdapterDevice, HostAdapter

CLOSE_S = 5.0  # how long each thread may take to finish what it is at


@dataclass(frozen=True, slots=True)
class LoadDone:
    key: str
    error: str | None = None


class Transfers(Protocol):
    """Whatever moves adapters to the device: threads, or a simulated link."""

    def on_done(self, callback: Callable[[LoadDone], None]) -> None: ...

    def begin(self, order: LoadOrder) -> None: ...

    def forget(self, key: str) -> None:
        """The adapter's pages are no longer its own."""
        ...

    def drop_copy(self, key: str) -> None:
        """The host copy is not kept any longer. Told before orders that came later begin."""
        ...

    def close(self) -> None: ...


class Copies(Protocol):
    """Host copies of adapters; any thread may ask."""

    def fetch(self, key: str) -> HostAdapter:
        """The copy of a key, read from disk and kept when there is none."""
        ...

    def drop(self, key: str) -> None: ...


class LoaderThread:
    """Moves host copies into the arena, in the order in which they are in host memory."""

    def __init__(self, device: AdapterDevice, copies: Copies) -> None:
        self._device = device
        self._copies = copies
        self._done: Callable[[LoadDone], None] = lambda done: None
        self._reads: queue.SimpleQueue[LoadOrder | None] = queue.SimpleQueue()
        self._moves: queue.SimpleQueue[LoadOrder | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="adapter-reader", daemon=True)
        self._mover = threading.Thread(target=self._move, name="adapter-loader", daemon=True)
        self._reader.start()
        self._mover.start()

    def on_done(self, callback: Callable[[LoadDone], None]) -> None:
        self._done = callback

    def begin(self, order: LoadOrder) -> None:
        (self._reads if order.from_disk else self._moves).put(order)

    def forget(self, key: str) -> None:
        self._device.drop(key)

    def drop_copy(self, key: str) -> None:
        self._copies.drop(key)

    def close(self) -> None:
        self._reads.put(None)
        self._reader.join(CLOSE_S)
        self._moves.put(None)
        self._mover.join(CLOSE_S)

    def _read(self) -> None:
        while (order := self._reads.get()) is not None:
            try:
                self._copies.fetch(order.key)
            except Exception as e:  # a bad adapter hurts those who wait for it, not the engine
                self._failed(order, e)
            else:
                self._moves.put(order)

    def _move(self) -> None:
        while (order := self._moves.get()) is not None:
            try:
                self._device.copy_in(self._copies.fetch(order.key), order.pages)
            except Exception as e:
                self._failed(order, e)
            else:
                self._done(LoadDone(order.key))

    def _failed(self, order: LoadOrder, e: Exception) -> None:
        # The text may name folders: it is for the operator, not for the tenant's answer.
        print(f"adapter {order.key[:12]} was not loaded: {e}", file=sys.stderr, flush=True)
        reason = f"its files are missing or not what they were ({type(e).__name__})"
        self._done(LoadDone(order.key, reason))
