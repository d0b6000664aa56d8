"""The ledger's timer: time passes in the ledger and rows go out, whatever the step does.

A thread beside the core thread, so that a frozen step still accrues and buckets are sealed on time.
Takes the ledger's lock for as long as it takes to fold and to take; rows are made outside it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from engine.chronicle import Chronicle
from engine.clock import WALL_JUMP_S, Clock, SystemClock
from engine.scheduling.scheduler import Scheduler
from telemetry.ledger.ledger import Ledger
from telemetry.ledger.taken import Taken
from telemetry.records import Batch

TICK_S = 1.0


class LedgerTimer:
    """`emit` takes what the ledger has to send every `provisional_s`; it must not block."""

    def __init__(
        self,
        ledger: Ledger,
        scheduler: Scheduler,
        clock: Clock,
        chronicle: Chronicle,
        emit: Callable[[Batch], None],
        provisional_s: float,
    ) -> None:
        self._ledger = ledger
        self._scheduler = scheduler
        self._clock = clock
        self._chronicle = chronicle
        self._emit = emit
        self._provisional_s = provisional_s
        self._last_collect_s = clock.now()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ledger-timer", daemon=True)
        self._thread.start()

    def tick(self) -> None:
        """Let time pass in the ledger and send what is due."""
        with self._ledger.lock:
            now = self._clock.now()
            self._ledger.tick(now)
            gap = self._ledger.smallest_gap_s
            if gap is not None:
                self._scheduler.overdue(now)
            self._check_wall()
            due = now - self._last_collect_s >= self._provisional_s
            taken = self._ledger.take(now) if due or self._ledger.has_sealed else None
            if taken is not None:
                self._last_collect_s = now
        if taken is not None:
            self._send(taken)

    def stop(self) -> None:
        """No tick comes after this."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def last_words(self, event: str) -> None:
        """Write down an event and send all that is left."""
        with self._ledger.lock:
            self._ledger.tick(self._clock.now())
            self._chronicle.event("stop", event)
            taken = self._ledger.take(self._clock.now())
        self._send(taken)

    def _send(self, taken: Taken) -> None:
        """Rows are made here, outside the lock."""
        for batch in taken.batches():
            self._emit(batch)

    def _run(self) -> None:
        while not self._closing.wait(min(TICK_S, self._provisional_s)):
            try:
                self.tick()
            except Exception as e:  # a telemetry fault never touches serving, nor ends the timer
                print(f"telemetry: {e!r}", file=sys.stderr, flush=True)
                with self._ledger.lock:
                    self._chronicle.event(
                        "fault", f"the ledger's timer failed once ({type(e).__name__})"
                    )

    def _check_wall(self) -> None:
        if isinstance(self._clock, SystemClock):
            jump = self._clock.take_wall_jump_s(WALL_JUMP_S)
            if jump:
                self._chronicle.event("clock", f"the wall clock jumped by {jump:+.1f} s", jump)
