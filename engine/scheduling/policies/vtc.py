"""VTC, and the same without its lift. The tenant that has had least, by weight, goes next.

Owns no numbers: the counters are the shadow counters that every policy keeps.
"""

from __future__ import annotations

from engine.scheduling.policies.base import ByMeasure
from engine.scheduling.policies.order import Entry


class Vtc(ByMeasure):
    """The waiting tenant with the smallest counter; its earliest request first."""

    __slots__ = ()
    name = "vtc"

    def measure(self, tenant: str) -> float:
        return self.counters.value(tenant)

    def rank(self, name: str, sequence: int, supposed: float) -> Entry:
        # As the base class's, a call less: this one is asked most.
        return (self.tiers.get(name, 0), self.counters.value(name) + supposed, sequence, name)


class Lcf(ByMeasure):
    """Least counter first: VTC without the lift. Who was idle takes the pool until it has caught
    up with everything the others were served meanwhile."""

    __slots__ = ()
    name = "lcf"

    def measure(self, tenant: str) -> float:
        return self.counters.unlifted(tenant)
