"""Policies that go round: request-level round-robin and deficit round-robin.

Owns each tenant's place in the ring and how far round it is; the tokens charged are the shadow
counters'. Instead of a pointer that visits tenants whose turn it is not, each tenant has the round
in which it is next served: the smallest (round, place) goes next, which is the same order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import floor

from engine.config import PolicyKnobs
from engine.scheduling.policies.base import Policy, of_who_has_most
from engine.scheduling.policies.counters import Counters
from engine.scheduling.policies.order import Entry
from engine.scheduling.policies.queues import TenantQueue
from engine.scheduling.request import Request


class Rounds(Policy):
    """A ring. Who begins to wait joins it at its end, in the round that is being served: rounds
    in which it had nothing waiting are forfeited."""

    __slots__ = ("_joined", "_places", "_rounds")

    def __init__(
        self,
        queues: Mapping[str, TenantQueue],
        counters: Counters,
        tiers: Mapping[str, int],
        knobs: PolicyKnobs,
    ) -> None:
        super().__init__(queues, counters, tiers, knobs)
        self._places: dict[str, int] = {}
        self._joined = 0
        self._rounds: dict[int, float] = {}  # of each tier the round being served

    @abstractmethod
    def round(self, tenant: str, supposed: float = 0.0) -> float:
        """The round in which the tenant is next served."""

    @abstractmethod
    def catch_up(self, tenant: str, current: float) -> None:
        """The tenant joins in round `current`, unless it is already beyond it."""

    def current(self, tenant: str) -> float:
        """The round that the tenant's tier is in."""
        return self._rounds.get(self.tiers.get(tenant, 0), 0.0)

    def begin(self) -> None:
        for tenant in sorted(self.members, key=lambda t: self.members[t].first):
            self._join(tenant)
            self.stands(tenant)

    def arrived(self, tenant: str) -> None:
        head = self.members[tenant].head()
        returned = head is not None and head.preemptions > 0
        if not returned or tenant not in self._places:
            self._join(tenant)
        self.stands(tenant)

    def _join(self, tenant: str) -> None:
        self._joined += 1
        self._places[tenant] = self._joined
        self.catch_up(tenant, self.current(tenant))

    def admitted(self, request: Request) -> None:
        chosen = self.chosen
        if chosen is not None and chosen[1] > self._rounds.get(chosen[0], 0.0):
            self._rounds[chosen[0]] = chosen[1]

    def rank(self, name: str, sequence: int, supposed: float) -> Entry:
        return (self.tiers.get(name, 0), self.round(name, supposed), self._places[name], name)


class RoundRobin(Rounds):
    """One request a tenant in turn, however long: the naive way to be fair. Weight w: w requests
    a round. A return after preemption takes no turn. The latest admitted gives way."""

    __slots__ = ("_passes",)
    name = "round-robin"

    def __init__(
        self,
        queues: Mapping[str, TenantQueue],
        counters: Counters,
        tiers: Mapping[str, int],
        knobs: PolicyKnobs,
    ) -> None:
        super().__init__(queues, counters, tiers, knobs)
        self._passes: dict[str, float] = {}

    def round(self, tenant: str, supposed: float = 0.0) -> float:
        return self._passes.get(tenant, 0.0) + supposed

    def catch_up(self, tenant: str, current: float) -> None:
        self._passes[tenant] = max(current, self._passes.get(tenant, 0.0))

    def suppose(self, request: Request, supposed: float) -> float:
        if request.preemptions:
            return supposed
        return supposed + 1.0 / self.counters.weight(request.ask.tenant)

    def admitted(self, request: Request) -> None:
        super().admitted(request)
        if not request.preemptions:
            tenant = request.ask.tenant
            self._passes[tenant] += 1.0 / self.counters.weight(tenant)

    def gives_way(self, running: Sequence[Request]) -> Request:
        return running[-1]


class DeficitRoundRobin(Rounds):
    """Each round grants a tenant `quantum_tokens` of service times its weight; it is served while
    its balance is positive. The prompt is charged at admission and output as it is generated, so
    the balance may go negative, by what was admitted on its last positive one and its rows' output;
    the tenant then sits rounds out until it is positive again. Debt stays when it stops waiting,
    credit does not. (Shreedhar and Varghese, Efficient Fair Queuing using Deficit Round Robin,
    1995, for requests whose cost is known only when they end.)

    With s the service charged so far, by weight, and q the quantum, the balance is positive in
    round k (from 0) as long as s < (k + 1)·q: the round is floor(s / q).
    """

    __slots__ = ("_offsets", "_quantum")
    name = "deficit-round-robin"

    def __init__(
        self,
        queues: Mapping[str, TenantQueue],
        counters: Counters,
        tiers: Mapping[str, int],
        knobs: PolicyKnobs,
    ) -> None:
        super().__init__(queues, counters, tiers, knobs)
        self._quantum = float(knobs.quantum_tokens)
        # Credit forfeited, less what was charged before this policy.
        self._offsets: dict[str, float] = {}

    def spent(self, tenant: str) -> float:
        """Service charged and credit forfeited, by weight. Who has not waited under this policy
        yet starts in the round being served: what it had before does not count."""
        offset = self._offsets.get(tenant)
        if offset is None:
            return self.current(tenant) * self._quantum
        return self.counters.unlifted(tenant) + offset

    def round(self, tenant: str, supposed: float = 0.0) -> float:
        return float(floor((self.spent(tenant) + supposed) / self._quantum))

    def catch_up(self, tenant: str, current: float) -> None:
        start = current * self._quantum
        charged = self.counters.unlifted(tenant)
        offset = self._offsets.get(tenant)
        if offset is None or charged + offset < start:
            self._offsets[tenant] = start - charged

    def suppose(self, request: Request, supposed: float) -> float:
        return self.suppose_prompt(request, supposed)

    def had(self, tenant: str) -> float:
        return self.round(tenant)

    def gives_way(self, running: Sequence[Request]) -> Request:
        return of_who_has_most(running, self.spent)
