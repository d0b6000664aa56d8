"""One third party, one signal: a thread that sends, tries again and gives up. Owns the thread.

What waits belongs to the feed, the call to the transport. A third party that is slow, refuses or
hangs holds up its own lane and nobody else; whatever it does, the end is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from telemetry.outbound.queue import Feed, Payload, Snapshots
from telemetry.outbound.wire import Fate, Reply, Transport

log = logging.getLogger(__name__)

# Why points or spans were dropped.
NO_ROOM, REFUSED, REJECTED, TOO_OLD, SHUTDOWN, FAULT = (
    "no_room", "refused", "rejected", "too_old", "shutdown", "fault",
)  # fmt: skip
DROPS: tuple[str, ...] = (NO_ROOM, REFUSED, REJECTED, TOO_OLD, SHUTDOWN, FAULT)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait between tries, in seconds: doubling from the first to the longest, with
    jitter; and after how long a request is given up."""

    first_s: float = 0.5
    longest_s: float = 30.0
    give_up_s: float = 300.0
    most_asked_s: float = 120.0  # a third party may ask for a longer wait; it gets this one


def pause_s(failures: int, asked_s: float | None, roll: float, pace: Pace) -> float:
    """The wait before the next try. `roll` in [0, 1) is the jitter: half the wait is fixed."""
    wait = min(pace.longest_s, pace.first_s * 2.0 ** min(failures - 1, 30))
    wait *= 0.5 + 0.5 * roll
    return wait if asked_s is None else max(wait, min(asked_s, pace.most_asked_s))


@dataclass(frozen=True, slots=True)
class LaneStats:
    """Points (or spans) since the start. `replaced` are snapshots that a newer one took the place
    of: not a loss, the newer one holds all of it."""

    endpoint: str
    signal: str
    sent: int
    waiting: int
    dropped: Mapping[str, int]
    replaced: int
    retries: int
    last_ok_unix_s: float | None
    last_error: str  # empty after a success


class Lane:
    """Started by the constructor; ended by `begin_stop`, `join`, `cut_off`, `join`, `end`."""

    def __init__(
        self,
        endpoint: str,
        signal: str,
        feed: Feed,
        transport: Transport,
        timeout_s: float,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint, self.signal = endpoint, signal
        self._feed = feed
        self._transport = transport
        self._timeout_s = timeout_s
        self._pace = pace or Pace()
        self._clock = clock
        self._sent = self._replaced = self._retries = 0
        self._dropped: Counter[str] = Counter()
        self._last_ok: float | None = None
        self._last_error = ""
        self._rejects = False
        self._in_hand = 0
        self._until: float | None = None  # set by `begin_stop`: send what waits, not beyond this
        self._wake = threading.Condition()
        self._told = False
        self._thread = threading.Thread(
            target=self._run, name=f"export-{signal}-{endpoint}"[:60], daemon=True
        )
        self._thread.start()

    def put(self, payload: Payload) -> None:
        """For a lane with a queue; never blocks."""
        assert not isinstance(self._feed, Snapshots)
        self._feed.put(payload)
        with self._wake:
            self._told = True
            self._wake.notify()

    def begin_stop(self, flush_s: float) -> None:
        """From now on: one try each for what waits, for so long at most."""
        with self._wake:
            if isinstance(self._feed, Snapshots):
                self._feed.last()
            self._until = self._clock() + flush_s
            self._wake.notify()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def cut_off(self) -> None:
        """End a call under way."""
        with contextlib.suppress(RuntimeError):  # of HTTP: it says so when one was
            self._transport.close()

    def end(self) -> None:
        """Count and say what was not sent. After `begin_stop`, and a `join` that may have failed:
        a call that cannot be cut off is left behind."""
        self._dropped[SHUTDOWN] += self._in_hand
        if not isinstance(self._feed, Snapshots):
            self._dropped[SHUTDOWN] += self._feed.discard()
        if self._dropped[SHUTDOWN]:
            log.warning(
                "%s: %d %s were not sent before the end", self.endpoint, self._dropped[SHUTDOWN],
                _things(self.signal),
            )  # fmt: skip

    def stats(self) -> LaneStats:
        dropped = {why: self._dropped[why] for why in DROPS}
        dropped[NO_ROOM] += self._feed.dropped()
        return LaneStats(
            self.endpoint,
            self.signal,
            self._sent,
            self._feed.waiting() + self._in_hand,
            dropped,
            self._replaced,
            self._retries,
            self._last_ok,
            self._last_error,
        )

    # --- the thread ---

    def _run(self) -> None:
        while True:
            ending = self._until is not None  # asked first: what was put before it still goes
            payload: Payload | None = None
            try:
                payload = self._feed.take(self._clock())
                if payload is not None:
                    self._deliver(payload)
            except Exception:
                # A fault of one request must not end the lane.
                log.exception("%s: a request for %s failed", self.endpoint, self.signal)
                self._drop(FAULT, self._in_hand)
                self._in_hand = 0
            if self._until is not None and self._clock() >= self._until:
                return
            if payload is None and ending:
                return
            if payload is None:
                self._rest(self._feed.due_s(self._clock()))

    def _deliver(self, payload: Payload) -> None:
        """Until it is taken, refused or given up, or a newer one has replaced it."""
        began = self._clock()
        failures = 0
        self._in_hand = payload.items
        while True:
            reply = self._transport.send(payload.data, self._time_left_s())
            if reply.fate is not Fate.LATER:
                self._settle(payload, reply)
                return
            failures += 1
            self._fails(reply.why)
            if self._until is not None:
                self._drop(SHUTDOWN, payload.items)
                break
            if self._clock() - began >= self._pace.give_up_s:
                self._drop(TOO_OLD, payload.items)
                break
            self._pause(pause_s(failures, reply.after_s, random.random(), self._pace))
            newer = self._feed.newer(self._clock())
            if newer is not None:
                self._replaced += 1
                payload, began = newer, self._clock()
                self._in_hand = payload.items
            else:
                self._retries += 1
        self._in_hand = 0

    def _settle(self, payload: Payload, reply: Reply) -> None:
        self._in_hand = 0
        if reply.fate is Fate.NEVER:
            self._drop(REFUSED, payload.items)
            self._fails(reply.why)
            return
        rejected = min(reply.rejected, payload.items)
        self._sent += payload.items - rejected
        self._drop(REJECTED, rejected)
        if rejected and not self._rejects:  # said once, until it takes a whole one
            log.warning(
                "%s took all but %d %s: %s", self.endpoint, rejected, _things(self.signal),
                reply.why,
            )  # fmt: skip
        self._rejects = rejected > 0
        self._last_ok = time.time()
        if self._last_error:
            log.info("%s takes %s again", self.endpoint, self.signal)
        self._last_error = ""

    def _fails(self, why: str) -> None:
        if not self._last_error:  # said once, until it works again
            log.warning("%s does not take %s: %s", self.endpoint, self.signal, why)
        self._last_error = why or "it did not say why"

    def _drop(self, why: str, items: int) -> None:
        self._dropped[why] += items

    def _time_left_s(self) -> float:
        if self._until is None:
            return self._timeout_s
        return max(0.01, min(self._timeout_s, self._until - self._clock()))

    def _pause(self, seconds: float) -> None:
        """What is put meanwhile does not cut the wait short; the end does."""
        with self._wake:
            self._wake.wait_for(lambda: self._until is not None, seconds)

    def _rest(self, seconds: float | None) -> None:
        with self._wake:
            self._wake.wait_for(lambda: self._told or self._until is not None, seconds)
            self._told = False


def _things(signal: str) -> str:
    return "spans" if signal == "traces" else "points"
