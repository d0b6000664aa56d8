"""The one view that a pool's replicas have of who had what, in virtual time. Owns its instants.

While anybody waits, each replica tells every 50 ms of the clock what it charged since the last
time, and the others have it before their next plan: as workers tell each other through the front,
without the way there. While nobody waits there is nobody to choose, and once a second will do; who
comes then finds all of it told. At instants of its own, so that steps jumped over or made one by
one come to the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.shared_view import EVERY_S
from engine.simulation.replica import Replica
from engine.simulation.world import World

IDLE_EVERY = 20  # of the instants, while nobody waits


class Sharing:
    """Between one pool's replicas. `every_s`: seconds from one exchange to the next."""

    def __init__(self, replicas: Sequence[Replica], world: World, every_s: float = EVERY_S) -> None:
        self._replicas = replicas
        self._world = world
        self._every_s = every_s
        self._next = 0  # number of the instant that is arranged; 0: none is

    def wanted(self) -> None:
        """A request is about to be handed to a replica: it may have to wait."""
        soon = self._number_after_now()
        if self._next == soon:
            return
        self._exchange()
        self._arrange(soon)

    def _number_after_now(self) -> int:
        # The quotient of an instant of its own may fall short of it by a rounding.
        return int(self._world.clock.now() / self._every_s + 1e-6) + 1

    def _arrange(self, number: int) -> None:
        self._next = number
        self._world.at(number * self._every_s, lambda: self._is_due(number))

    def _is_due(self, number: int) -> None:
        if number != self._next:  # somebody came meanwhile, and an earlier one took its place
            return
        self._next = 0
        self._exchange()
        # With nothing under way all has been told, and the world may come to its end.
        if any(r.tokens for r in self._replicas):
            waits = any(r.up and r.core.status().waiting for r in self._replicas)
            self._arrange(number + (1 if waits else IDLE_EVERY))

    def _exchange(self) -> None:
        up = [r for r in self._replicas if r.up]
        told = [(r, r.core.scheduler.counters.take_charges()) for r in up]
        for teller, charges in told:
            for other in up:
                if charges and other is not teller:
                    other.core.charged_elsewhere(charges)
