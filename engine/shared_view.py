"""One replica's part in its pool's one view of who had what. Owns what came and is not applied yet.

What other replicas charged is kept until the next plan looks at it; what was charged here goes out
with a step's result, at most every `every_s`, and once more when nothing runs any longer. A pool of
one replica has nobody to tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.scheduling.scheduler import Scheduler

EVERY_S = 0.05


class SharedView:
    """One core's. All calls under the ledger's lock. `every_s` infinite: nothing goes out by
    itself, whoever owns the core asks the counters."""

    def __init__(self, scheduler: Scheduler, every_s: float) -> None:
        self._scheduler = scheduler
        self._every_s = every_s
        self._told_s = -math.inf
        self._came: dict[str, float] = {}
        scheduler.counters.share()

    def came(self, charges: Mapping[str, float]) -> None:
        """Other replicas have charged so much since the last time, unweighted."""
        for tenant, service in charges.items():
            self._came[tenant] = self._came.get(tenant, 0.0) + service

    def apply(self) -> None:
        """Before a plan, and before those who have just arrived take their places by it."""
        if self._came:
            came, self._came = self._came, {}
            self._scheduler.charged_elsewhere(came)

    def due(self, now_s: float) -> dict[str, float] | None:
        """What is to be told now; None: not now, or nothing."""
        if self._every_s == math.inf:
            return None
        if now_s - self._told_s < self._every_s and self._scheduler.running:
            return None
        self._told_s = now_s
        return self._scheduler.counters.take_charges() or None
