"""What a policy is: an order over waiting tenants and a choice of whom to preempt.

A policy is made for one scheduler from its present queues and counters; switching live is making
the next one. It keeps only what its own order needs; the shadow counters go on under any of them.
Tiers stand above every policy: a lower tier number goes first, equals share by the policy, and
victims come from the largest number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

from engine.config import PolicyKnobs
from engine.scheduling.policies.counters import Counters
from engine.scheduling.policies.order import Entry, Order
from engine.scheduling.policies.queues import TenantQueue
from engine.scheduling.request import Request

Bar = tuple[int, float]  # tier, and how much the tenant has had


class Policy(Order):
    """The base of all policies; `queues` is read, never written.

    The scheduler's calls, each at the instant the thing has happened:

    * a request arrives: `queues.append`; if it says so `counters.enters`, then `arrived`;
    * it returns after preemption: `queues.insert`; if it says so `counters.returns`, then
      `arrived`; else `changed`;
    * it is admitted: `queues.remove`, `counters.left_queue`; if that says so `counters.leaves` and
      `emptied`; its charges (before or after); then `admitted`, and last `scan.admitted`;
    * it ends while waiting: the same, with `changed` for charges and `admitted`; then `ended`;
    * a counter falls by a refund: `changed`, whether or not the tenant waits.
    """

    __slots__ = ("counters", "tiers")

    name: ClassVar[str]

    def __init__(
        self,
        queues: Mapping[str, TenantQueue],
        counters: Counters,
        tiers: Mapping[str, int],
        knobs: PolicyKnobs,
    ) -> None:
        super().__init__(queues)
        self.counters = counters
        self.tiers = tiers

    def begin(self) -> None:
        """Everybody who waits already takes its place; called once, when the policy is made."""
        for tenant in self.members:
            self.stands(tenant)

    # -- what has happened

    def arrived(self, tenant: str) -> None:
        """It has waiting requests now, and had none (`counters.enters` or `returns` came before).
        By a return, its only waiting request has been preempted: `preemptions` > 0."""
        self.stands(tenant)

    def emptied(self, tenant: str) -> None:
        """None of its requests waits any more."""

    def changed(self, tenant: str) -> None:
        """Its head is an earlier one, or its counter fell. No matter if nothing of it waits."""
        if tenant in self.members:
            self.stands(tenant)

    def elsewhere(self, active: Collection[str], fell: Collection[str]) -> None:
        """Other replicas of the pool have charged the active ones and given back to those that
        fell; the shadow counters hold it already. Whose order stands on them needs no more; who
        counts requests (round-robin) or arrivals (fcfs) goes by what is here alone."""
        for tenant in fell:
            self.changed(tenant)

    def admitted(self, request: Request) -> None:
        """It has left the queue for a slot, and its prompt is charged."""

    def produced_first(self, request: Request) -> None:
        """A token was sampled at the end of a prefill; `request.produced` counts it."""

    def joined_decode(self, request: Request) -> None:
        """It gets a token in every decode step from now on."""

    def left_decode(self, request: Request) -> None:
        """It does no more; `request.produced` is up to date."""

    def stepped(self, steps: int) -> None:
        """So many decode steps have passed (`counters.stepped` came before)."""

    def ended(self, request: Request, finished: bool = True) -> None:
        """It is over; `finished`: it came to its own end, so that its length means something."""

    # -- what is asked (`scan()` is the base class's)

    def bar(self, filling: Sequence[Request]) -> Bar | None:
        """What a waiting head must stand below to take of the step's tokens before the prefills
        under way: the tier and the share of the foremost of them. None: there are none.

        Their prompts are charged already, so they are not starved by who passes: each that does
        raises its own counter."""
        if not filling:
            return None
        tier_of, had = self.tiers.get, self.had
        return min((tier_of(r.tenant, 0), had(r.tenant)) for r in filling)

    def passes(self, head: Request, bar: Bar | None) -> bool:
        """Whether a waiting head goes before the prefills whose bar this is."""
        tenant = head.tenant
        return bar is None or (self.tiers.get(tenant, 0), self.had(tenant)) < bar

    def had(self, tenant: str) -> float:
        """How much a tenant has had, by which it goes before another's prefills, both of one tier.
        The same for all where the policy does not care."""
        return 0.0

    def victim(self, running: Sequence[Request]) -> Request | None:
        """Whose sequence gives its pages back when a running one must grow; None = nobody can.

        `running` in order of admission, `computed` up to date."""
        if not running:
            return None
        if self.tiers:
            tier_of = self.tiers.get
            last = max(tier_of(r.ask.tenant, 0) for r in running)
            running = [r for r in running if tier_of(r.ask.tenant, 0) == last]
        return self.gives_way(running)

    @abstractmethod
    def gives_way(self, running: Sequence[Request]) -> Request:
        """The victim among sequences of one tier; at least one, in order of admission."""

    def suppose_prompt(self, request: Request, supposed: float) -> float:
        """What is supposed of a tenant after this request too, where prompts are charged."""
        if request.charged_prompt:
            return supposed
        return supposed + self.counters.prompt_charge(request.ask.tenant, len(request.ask.prompt))


def of_who_has_most(running: Sequence[Request], had: Callable[[str], float]) -> Request:
    """The sequence that gives way: of the tenant that has had most, the one with least to redo."""
    tenants = {r.ask.tenant for r in running}
    most = max(tenants, key=lambda t: (had(t), t))
    return least_to_redo([r for r in running if r.ask.tenant == most])


class ByMeasure(Policy):
    """A policy whose tenants stand by how much they have had: the least goes next, the most
    gives way."""

    __slots__ = ()

    @abstractmethod
    def measure(self, tenant: str) -> float:
        """How much the tenant has had, by weight."""

    def rank(self, name: str, sequence: int, supposed: float) -> Entry:
        return (self.tiers.get(name, 0), self.measure(name) + supposed, sequence, name)

    def suppose(self, request: Request, supposed: float) -> float:
        return self.suppose_prompt(request, supposed)

    def had(self, tenant: str) -> float:
        return self.measure(tenant)

    def gives_way(self, running: Sequence[Request]) -> Request:
        return of_who_has_most(running, self.measure)


def least_to_redo(candidates: Sequence[Request]) -> Request:
    """Of several sequences the one whose preemption wastes least; ties: the latest arrival."""
    return min(candidates, key=lambda r: (r.computed, -r.sequence))
