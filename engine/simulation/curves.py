"""Service over time: samples of every tenant's W, for the plot and the differences between tenants.

Owns the samples and how often they are taken. W is what the shadow counters charged (prompts at
their admission, output as it is generated), unweighted; once nothing is under way it is exactly
the service computed.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from engine.simulation.fairness import Differences

Floats = NDArray[np.float64]
MOST_SAMPLES = 512  # kept for the plot; beyond, every other one goes
MOST_KEPT = 1 << 20  # of all tenants together: a sample holds a number for each of them
FEWEST_SAMPLES = 64
TENANTS_A_SECOND = 128  # sampling costs a little for every tenant: more of them, less often


class Curves:
    """`sample_s` is the shortest time between two samples, in simulated seconds."""

    def __init__(self, sample_s: float = 1.0) -> None:
        self._sample_s = sample_s
        self.next_s = 0.0
        self.differences = Differences()
        self.ever_backlogged: set[int] = set()
        self.at_s: list[float] = []
        self.service: list[Floats] = []
        self._stride = 1
        self._taken = 0

    def sample(
        self, now: float, service: Floats, weights: Floats, backlogged: Collection[int]
    ) -> None:
        """`service` and `weights` by tenant number; `backlogged`: those with something waiting."""
        apart = self._sample_s * max(1.0, len(service) / TENANTS_A_SECOND)
        self.next_s = now + apart
        self.ever_backlogged.update(backlogged)
        if len(service):
            self.differences.sample(service / weights, backlogged)
        if self._taken % self._stride == 0:
            self.at_s.append(now)
            self.service.append(service)
            most = min(MOST_SAMPLES, max(FEWEST_SAMPLES, MOST_KEPT // max(1, len(service))))
            if len(self.at_s) >= most:
                del self.at_s[1::2], self.service[1::2]
                self._stride *= 2
        self._taken += 1
