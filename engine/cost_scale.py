"""Fits the scale of a core's cost model to the first steps it serves. Owns the moment, not the fit.

The model is measured at warm-up, when nothing else runs on the machine; `Trim` decides by how much
it was off.
"""

from __future__ import annotations

from engine.chronicle import Chronicle
from engine.costs import Trim
from engine.scheduling.scheduler import Scheduler


class CostScale:
    """`trim` None: the model stays as it is."""

    def __init__(self, trim: Trim | None, scheduler: Scheduler, chronicle: Chronicle) -> None:
        self._trim = trim
        self._scheduler = scheduler
        self._chronicle = chronicle

    def stepped(self, duration_s: float, expected_s: float) -> None:
        """A step took so long. Under the ledger's lock."""
        if self._trim is None or expected_s <= 0:
            return
        factor = self._trim.offer(duration_s, expected_s)
        if factor is None:
            return
        self._scheduler.costs = self._scheduler.costs.scaled(factor)
        self._chronicle.event(
            "costs", f"cost model scaled by {factor:.2f} after the first served steps"
        )
        self._chronicle.costs(self._scheduler.costs)
