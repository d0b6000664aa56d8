"""Rows from a worker's memory, for when the store is gone. Owns the copy and who is asked when.

Each worker keeps the last 60 minutes as it sent them. They are fetched once, then only what is
newer, and merged as a store does; so a console that has their addresses never goes blank.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from telemetry.ask.reading import Result
from telemetry.errors import StoreBusy, StoreError, StoreUnreachable
from telemetry.source import LiveSource, MemorySource, Reader

if TYPE_CHECKING:
    from telemetry.watch.client import WatchClient

FRESH_S = 0.5  # questions that come together are answered from one state
REBUILT_S = 900.0  # what the worker has forgotten is forgotten here so much later at the most
_TIMEOUT_S = 5.0
_STORE_TIMEOUT_S = 3.0
_STORE_AGAIN_S = 5.0
LACKS = "from the worker's memory: the last 60 minutes, without what only the front counts"


class _Feed:
    """One worker: how far its memory has been read, and when it last answered."""

    def __init__(self, address: str, timeout_s: float) -> None:
        from telemetry.watch.client import WatchClient

        self.address = address
        self.client: WatchClient = WatchClient(address, timeout_s)
        self.answered_at: float | None = None
        self._run_id = ""
        self._cursor = 0

    def from_the_beginning(self) -> None:
        self._cursor = 0

    def fetch(self, memory: MemorySource, now: float) -> None:
        """Feed what is newer than the cursor. Raises StoreUnreachable, StoreBusy."""
        if not self._newer(memory):
            # Another run: its cursors are its own. What the one before had is still true.
            self._cursor = 0
            self._newer(memory)
        self.answered_at = now

    def _newer(self, memory: MemorySource) -> bool:
        """False when a new run answers to an old cursor."""
        more = True
        while more:
            reply = self.client.recent(self._cursor, self.client.timeout_s)
            if self._cursor and reply.run_id != self._run_id:
                self._run_id = reply.run_id
                return False
            memory.feed(reply.metrics, reply.logs)
            self._run_id, self._cursor, more = reply.run_id, reply.cursor, reply.more
        return True


class WorkerSource(Reader):
    """The last 60 minutes of one worker, or of all of a serve, by their addresses. Thread-safe.
    Answers say so in `partial`, and which of several workers they lack."""

    def __init__(
        self,
        address: str | Sequence[str],
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        addresses = [address] if isinstance(address, str) else list(address)
        self._feeds = [_Feed(a, timeout_s) for a in addresses]
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: MemorySource | None = None
        self._lacking: tuple[str, ...] = ()
        self._built_at = self._fresh_at = 0.0

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        """Raises StoreUnreachable when no worker answers and none ever did."""
        with self._lock:
            memory = self._refreshed()
            said = (f"{LACKS}{''.join(self._lacking)}",)
            answer = memory.run(name, parameters)
        return replace(answer, partial=answer.partial + said)

    def close(self) -> None:
        with self._lock:
            for feed in self._feeds:
                feed.client.close()
            if self._memory is not None:
                self._memory.close()
                self._memory = None

    def _refreshed(self) -> MemorySource:
        now = self._clock()
        if self._memory is not None and now - self._fresh_at < FRESH_S:
            return self._memory
        if self._memory is None or now - self._built_at > REBUILT_S:
            return self._rebuilt(now)
        failed = self._fetched(self._memory, now)
        self._note(failed, now)
        return self._memory

    def _rebuilt(self, now: float) -> MemorySource:
        """A new memory, read from the beginning. Kept is the old one while a worker is silent:
        what that had said is in no other."""
        old = self._memory
        memory = MemorySource()
        try:
            for feed in self._feeds:
                feed.from_the_beginning()
            failed = self._fetched(memory, now)
            if len(failed) == len(self._feeds) and old is None:
                raise next(iter(failed.values()))
        except BaseException:
            memory.close()
            raise
        if failed and old is not None:
            memory.close()
            for feed in self._feeds:  # what comes twice counts once
                feed.from_the_beginning()
            self._note(self._fetched(old, now), now)
            self._built_at = now  # else every question would try again, and wait for the silent
            return old
        self._memory, self._built_at = memory, now
        self._note(failed, now)
        if old is not None:
            old.close()
        return memory

    def _fetched(self, memory: MemorySource, now: float) -> dict[_Feed, StoreError]:
        """What each worker that did not answer said."""
        failed: dict[_Feed, StoreError] = {}
        for feed in self._feeds:
            try:
                feed.fetch(memory, now)
            except (StoreUnreachable, StoreBusy) as e:
                failed[feed] = e
        return failed

    def _note(self, failed: dict[_Feed, StoreError], now: float) -> None:
        if len(failed) < len(self._feeds):
            self._fresh_at = now
        self._lacking = tuple(_silence(feed, e, now) for feed, e in failed.items())


def _silence(feed: _Feed, error: StoreError, now: float) -> str:
    if feed.answered_at is None:
        return f"; a worker has not answered yet ({error})"
    return f"; the worker has not answered for {now - feed.answered_at:.0f} s ({error})"


class FallbackSource(Reader):
    """The store first; the worker while the store does not answer, and then `partial` says so."""

    def __init__(
        self, store: Reader, worker: Reader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._again_at = float("-inf")
        self._why = ""

    @classmethod
    def of(cls, store_address: str, workers: str | Sequence[str]) -> FallbackSource:
        """By the addresses of one serve's store process and its workers."""
        return cls(LiveSource(store_address, _STORE_TIMEOUT_S), WorkerSource(workers))

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        """Raises what the worker raises when neither answers."""
        if self._clock() >= self._again_at:
            try:
                return self._store.run(name, parameters)
            except (StoreUnreachable, StoreBusy) as e:
                self._why = str(e)
                # A question must not wait for a hanging store each time.
                self._again_at = self._clock() + _STORE_AGAIN_S
        answer = self._worker.run(name, parameters)
        return replace(
            answer, partial=(f"the store is not answering: {self._why}", *answer.partial)
        )

    def close(self) -> None:
        self._store.close()
        self._worker.close()
