"""Executes load orders outside the step: one thread, one adapter at a time.

Owns the link's queue; decides nothing (residency ordered the load and took the pages). The host
copies come from a library that re-reads from disk what it no longer keeps.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.memory.residency import LoadOrder
from engine.scheduling.plan import AdapterDevice, HostAdapter


@dataclass(frozen=True, slots=True)
class LoadDone:
    key: str
    error: str | None = None


class Transfers(Protocol):
    """Whatever moves adapters to the device: a thread, or a simulated link."""

    def on_done(self, callback: Callable[[LoadDone], None]) -> None: ...

    def begin(self, order: LoadOrder) -> None: ...

    def forget(self, key: str) -> None:
        """The adapter's pages are no longer its own."""
        ...

    def close(self) -> None: ...


class LoaderThread:
    """Moves host copies into the arena. `fetch` gives the host copy of a key (may read disk)."""

    def __init__(self, device: AdapterDevice, fetch: Callable[[str], HostAdapter]) -> None:
        self._device = device
        self._fetch = fetch
        self._done: Callable[[LoadDone], None] = lambda done: None
        self._orders: queue.SimpleQueue[LoadOrder | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="adapter-loader", daemon=True)
        self._thread.start()

    def on_done(self, callback: Callable[[LoadDone], None]) -> None:
        self._done = callback

    def begin(self, order: LoadOrder) -> None:
        self._orders.put(order)

    def forget(self, key: str) -> None:
        self._device.drop(key)

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            error: str | None = None
            try:
                self._device.copy_in(self._fetch(order.key), order.pages)
            except Exception as e:  # a bad adapter hurts those who wait for it, not the engine
                # The text may name folders: it is for the operator, not for the tenant's answer.
                print(f"adapter {order.key[:12]} was not loaded: {e}", file=sys.stderr, flush=True)
                error = f"its files are missing or not what they were ({type(e).__name__})"
            self._done(LoadDone(order.key, error))
