"""Looks, when a core has nothing to do, whether every page is where the books say. Changes nothing
but for a line to the operator and an event."""

from __future__ import annotations

import sys

from engine.chronicle import Chronicle
from engine.scheduling.scheduler import Scheduler

CHECK_EVERY_S = 60.0  # of idleness


class Integrity:
    def __init__(self, scheduler: Scheduler, chronicle: Chronicle, now_s: float) -> None:
        self._scheduler = scheduler
        self._chronicle = chronicle
        self._checked_s = now_s

    def check(self, now_s: float) -> None:
        """Under the ledger's lock, when a plan was empty."""
        if now_s - self._checked_s < CHECK_EVERY_S or self._scheduler.waiting:
            return
        self._checked_s = now_s
        try:
            self._scheduler.check_integrity()
        except ValueError as e:
            print(f"the pool's books are wrong: {e}", file=sys.stderr, flush=True)
            self._chronicle.event("fault", f"the pool's books are wrong: {e}")
