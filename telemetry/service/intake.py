"""The way of a request from a socket into the store: admitted, decoded, queued, committed.

Owns the queue and the thread that empties it; knows no gRPC. Everything has a bound: requests that
wait, calls at once, bytes held. Nothing is acknowledged that is not committed.
"""

from __future__ import annotations

import concurrent.futures as futures
import logging
import queue
import threading
import time
from collections.abc import Callable

from telemetry.errors import NotAllowed, StoreBusy, StoreError
from telemetry.otlp.decode import Decoded
from telemetry.service.liveness import Liveness
from telemetry.store.store import Receipt, Store

log = logging.getLogger(__name__)

QUEUE_REQUESTS = 32
CALLS = 48  # at once: each holds a thread until its commit
HELD_BYTES = 256 << 20  # of encoded requests; decoded they take a few times as much
COMMIT_TIMEOUT_S = 30.0
_SAY_AGAIN_S = 60.0  # a full disk fails every batch of every sender, several a second

_Job = tuple[Decoded, "futures.Future[Receipt]"]


class Intake:
    """One thread that commits, in the order of arrival. `start`, then `stop`; both once."""

    def __init__(
        self,
        store: Store,
        liveness: Liveness,
        heard: Callable[[Decoded], object] | None = None,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        """`heard` gets every delivery once it is committed and acknowledged; `ended` is called
        when no more will be committed, for whatever reason."""
        self._store = store
        self._liveness = liveness
        self._heard = heard
        self._ended = ended
        self._jobs: queue.Queue[_Job | None] = queue.Queue(QUEUE_REQUESTS)
        self._gate = threading.Lock()  # nothing is queued behind the end mark
        self._closing = False
        self._give_up = threading.Event()
        self._calls = self._held_bytes = 0
        self._said = ""  # the failure that the log has, when, and how often it came back since
        self._said_at_s = 0.0
        self._unsaid = 0
        self._thread = threading.Thread(target=self._loop, name="store-ingest", daemon=True)

    @property
    def queued(self) -> int:
        return self._jobs.qsize()

    @property
    def is_closing(self) -> bool:
        return self._closing

    def start(self) -> None:
        self._thread.start()

    def take(
        self, decode: Callable[[bytes], Decoded], data: bytes, engine: str | None = None
    ) -> Receipt:
        """Commit a request and return. A caller bound to an `engine` speaks for no other.

        Raises MalformedBatch, NotAllowed, StoreBusy (come again) and StoreError (not committed;
        sending it again is safe).
        """
        self._enter(len(data))
        try:
            decoded = decode(data)
            if engine is not None and (others := decoded.engines() - {engine, ""}):
                who = ", ".join(map(repr, sorted(others)[:3]))
                self._liveness.denied(f"a sender of {engine!r} sent rows of {who}", engine)
                raise NotAllowed(
                    f"this token is bound to the engine {engine!r}, the rows are of {who}: "
                    "give each engine a token of its own"
                )
            done: futures.Future[Receipt] = futures.Future()
            with self._gate:
                if self._closing:
                    raise StoreBusy("it is closing")
                if not self._thread.is_alive():
                    raise StoreBusy("its ingest thread has ended: start the store process again")
                self._jobs.put_nowait((decoded, done))
            return done.result(COMMIT_TIMEOUT_S)
        except (queue.Full, futures.TimeoutError):
            self._liveness.put_off()
            raise StoreBusy("more comes than it can write") from None
        finally:
            self._leave(len(data))

    def _enter(self, size_bytes: int) -> None:
        with self._gate:
            # One alone may be as large as a message can be.
            full = self._calls and self._held_bytes + size_bytes > HELD_BYTES
            if self._calls < CALLS and not full:
                self._calls += 1
                self._held_bytes += size_bytes
                return
        self._liveness.put_off()
        raise StoreBusy("more comes than it can write")

    def _leave(self, size_bytes: int) -> None:
        with self._gate:
            self._calls -= 1
            self._held_bytes -= size_bytes

    def close(self) -> None:
        """Take nothing more; what is queued is still committed."""
        with self._gate:
            self._closing = True

    def drain(self, within_s: float) -> bool:
        """Commit what is queued, for so long at most; the rest is not acknowledged, its senders
        keep it. False when there was a rest."""
        self.close()
        deadline = time.monotonic() + within_s
        try:
            self._jobs.put(None, timeout=within_s)
        except queue.Full:
            self._give_up.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        in_time = not self._thread.is_alive() and not self._give_up.is_set()
        self._give_up.set()
        return in_time

    def _loop(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                decoded, done = job
                if self._give_up.is_set():
                    done.set_exception(StoreBusy("it is closing"))
                    continue
                self._commit(decoded, done)
        finally:
            self._ended()

    def _commit(self, decoded: Decoded, done: futures.Future[Receipt]) -> None:
        try:
            receipt = self._store.ingest(decoded)
            done.set_result(receipt)
        except StoreError as e:
            self._say(str(e))
            self._liveness.failed(str(e))
            done.set_exception(e)
            return
        except Exception as e:
            # The sender is told; the thread lives on for everybody else.
            log.exception("a batch was not committed")
            self._liveness.failed(f"{type(e).__name__}: {e}")
            done.set_exception(e)
            return
        if self._said:
            log.warning("batches are committed again")
            self._said, self._unsaid = "", 0
        self._liveness.took(receipt.committed)
        if self._heard is not None:
            self._heard(receipt.committed)

    def _say(self, why: str) -> None:
        """Into the log, unless it has just been said: the same again once a minute, counted."""
        now_s = time.monotonic()
        if why == self._said and now_s - self._said_at_s < _SAY_AGAIN_S:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more since)" if self._unsaid else ""
        log.error("a batch was not committed, its sender keeps it and tries again: %s%s", why, more)
        self._said, self._said_at_s, self._unsaid = why, now_s, 0
