"""Rows from a worker's memory, for when the store is gone. Owns the copy and who is asked when.

A worker keeps the last 60 minutes as it sent them. They are fetched once, then only what is newer,
and merged as a store does; so a console that has a worker's address never goes blank.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from telemetry.ask.reading import Result
from telemetry.errors import StoreBusy, StoreUnreachable
from telemetry.source import LiveSource, MemorySource, Reader

if TYPE_CHECKING:
    from telemetry.watch.client import WatchClient

FRESH_S = 0.5  # questions that come together are answered from one state
REBUILT_S = 900.0  # what the worker has forgotten is forgotten here so much later at the most
_TIMEOUT_S = 5.0
_STORE_TIMEOUT_S = 3.0
_STORE_AGAIN_S = 5.0
LACKS = "from the worker's memory: the last 60 minutes, without what only the front counts"


class WorkerSource(Reader):
    """A worker's last 60 minutes, by its address. Thread-safe. Answers say so in `partial`."""

    def __init__(
        self,
        address: str,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from telemetry.watch.client import WatchClient

        self._client: WatchClient = WatchClient(address, timeout_s)
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: MemorySource | None = None
        self._run_id = ""
        self._cursor = 0
        self._built_at = self._fresh_at = 0.0

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        """Raises StoreUnreachable when the worker does not answer and never did."""
        with self._lock:
            said = (LACKS,)
            try:
                memory = self._refreshed()
            except (StoreUnreachable, StoreBusy) as e:
                if self._memory is None:
                    raise
                memory = self._memory
                age_s = self._clock() - self._fresh_at
                said = (f"{LACKS}; the worker has not answered for {age_s:.0f} s ({e})",)
            answer = memory.run(name, parameters)
        return replace(answer, partial=answer.partial + said)

    def close(self) -> None:
        with self._lock:
            self._client.close()
            if self._memory is not None:
                self._memory.close()
                self._memory = None

    def _refreshed(self) -> MemorySource:
        now = self._clock()
        if self._memory is not None and now - self._fresh_at < FRESH_S:
            return self._memory
        if self._memory is None or now - self._built_at > REBUILT_S:
            self._rebuild(now)
        memory = self._fetched()
        self._fresh_at = now
        return memory

    def _rebuild(self, now: float) -> None:
        old = self._memory
        self._memory, self._cursor = None, 0
        memory = MemorySource()
        try:
            self._fetch(memory)
        except BaseException:
            memory.close()
            self._memory = old
            raise
        self._memory, self._built_at = memory, now
        if old is not None:
            old.close()

    def _fetched(self) -> MemorySource:
        assert self._memory is not None
        if not self._fetch(self._memory):
            # Another run: its cursors are its own. What the one before had is still true.
            self._cursor = 0
            self._fetch(self._memory)
        return self._memory

    def _fetch(self, memory: MemorySource) -> bool:
        """Feed what is newer than the cursor; False when a new run answers to an old cursor."""
        more = True
        while more:
            reply = self._client.recent(self._cursor, self._client.timeout_s)
            if self._cursor and reply.run_id != self._run_id:
                self._run_id = reply.run_id
                return False
            memory.feed(reply.metrics, reply.logs)
            self._run_id, self._cursor, more = reply.run_id, reply.cursor, reply.more
        return True


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
    def of(cls, store_address: str, worker_address: str) -> FallbackSource:
        """By the addresses of one serve's store process and worker."""
        return cls(LiveSource(store_address, _STORE_TIMEOUT_S), WorkerSource(worker_address))

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
