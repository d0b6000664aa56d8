"""Virtual token counters, one a tenant: charges, lifts, refunds. Algorithm 2 of VTC.

Owns the counters and who stands among the waiting; knows no requests, queues or policies.
Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024. Kept under every
policy, so that the imbalance is visible under FCFS too. Counters are for scheduling: they are
divided by weight; *service* (unweighted) is the ledger's.

Nothing here is done a step or a row: a tenant's decode rows are a rate, and its counter is
base + rate * (steps since the rate was set).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace

WP = 1.0  # charge of a prompt token
WQ = 2.0  # charge of an output token

# What is left of a difference of sums that should be nothing: no service, and not told.
_DUST = 1e-12


class StepClock:
    """Decode steps passed so far. Shared by all counters of one pool, so that a step is one
    addition, however many tenants keep counters for their own keys or adapters."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


class _Account:
    """One tenant's: `charged` and `lift` at step `mark`; `rate` is added to `charged` a step.
    Of `charged`, `elsewhere` is other replicas'; of the rest, `told` has been told to them."""

    __slots__ = (
        "charged",
        "elsewhere",
        "entry",
        "lift",
        "mark",
        "rate",
        "tier",
        "told",
        "waiting",
        "weight",
    )

    def __init__(self, weight: float, tier: int, mark: int) -> None:
        self.weight = weight
        self.tier = tier
        self.charged = 0.0
        self.elsewhere = 0.0
        self.told = 0.0
        self.lift = 0.0
        self.rate = 0.0
        self.mark = mark
        self.waiting = False
        self.entry: float | None = None  # the value its entry in the heap has, if it has one


class Counters:
    """c_i = charges / weight + lifts, per tenant.

    `tiers`: tenants of different tiers do not share by their counters, so a lift looks at the
    waiting of the tenant's own tier only: else one starved behind a higher tier, its counter low,
    would let those above it bank credit against each other.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        tiers: Mapping[str, int] | None = None,
        steps: StepClock | None = None,
    ) -> None:
        self._weights = dict(weights)
        self._tiers = dict(tiers or {})
        self.steps = steps or StepClock()
        self._accounts: dict[str, _Account] = {}
        self._heaps: dict[int, list[tuple[float, str]]] = {}
        self._last_left: dict[int, str] = {}
        self._lifts: dict[str, int] = {}
        self._touched: set[str] | None = None  # charged since `take_charges`; None: nobody asks
        self._untold: dict[str, float] = {}  # service charged by a weight that is no longer

    # -- questions

    def weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)

    def value(self, tenant: str) -> float:
        """The tenant's counter now."""
        a = self._accounts.get(tenant)
        if a is None:
            return 0.0
        return a.charged + a.rate * (self.steps.now - a.mark) + a.lift

    def unlifted(self, tenant: str) -> float:
        """Charges only, divided by weight: the counter as if it had never been lifted."""
        a = self._accounts.get(tenant)
        return 0.0 if a is None else a.charged + a.rate * (self.steps.now - a.mark)

    def service(self, tenant: str) -> float:
        """What this replica has charged the tenant, unweighted, by the weight it has now."""
        a = self._accounts.get(tenant)
        if a is None:
            return 0.0
        return (a.charged + a.rate * (self.steps.now - a.mark) - a.elsewhere) * a.weight

    def lift(self, tenant: str) -> float:
        """Sum of the tenant's lifts."""
        a = self._accounts.get(tenant)
        return 0.0 if a is None else a.lift

    def smallest(self, tier: int | None = None) -> float | None:
        """The smallest counter among the waiting (of one tier); None when nobody waits."""
        if tier is not None:
            return self._smallest(tier)
        found = [v for v in map(self._smallest, self._heaps) if v is not None]
        return min(found, default=None)

    def prompt_charge(self, tenant: str, tokens: int) -> float:
        """What admitting `tokens` uncached prompt tokens would add."""
        return WP * tokens / self.weight(tenant)

    # -- who waits

    def enters(self, tenant: str) -> None:
        """A request arrives and nothing of the tenant waited: the lift, then it stands waiting.

        Somebody waits: lift to the smallest counter that waits. Nobody: to the counter of the
        tenant whose request left the queue last. A lift never lowers.
        """
        a = self._account(tenant)
        if not a.waiting:
            floor = self._smallest(a.tier)
            if floor is None and a.tier in self._last_left:
                floor = self.value(self._last_left[a.tier])
            own = self.value(tenant)
            if floor is not None and floor > own:
                a.lift += floor - own
                self._lifts[tenant] = self._lifts.get(tenant, 0) + 1
        self._stand(tenant, a)

    def returns(self, tenant: str) -> None:
        """A preempted request comes back and nothing else of the tenant waited: no lift."""
        self._stand(tenant, self._account(tenant))

    def leaves(self, tenant: str) -> None:
        """Nothing of the tenant waits any more."""
        self._account(tenant).waiting = False

    def left_queue(self, tenant: str) -> None:
        """A request of the tenant has left the queue, admitted or aborted."""
        self._last_left[self._account(tenant).tier] = tenant

    def take_lifts(self) -> dict[str, int]:
        """Lifts by tenant since last asked."""
        lifts, self._lifts = self._lifts, {}
        return lifts

    # -- charges

    def charge_prompt(self, tenant: str, tokens: int) -> None:
        a = self._account(tenant)
        a.charged += WP * tokens / a.weight
        if self._touched is not None:
            self._touched.add(tenant)

    def refund_prompt(self, tenant: str, tokens: int) -> None:
        """Give back the charge of prompt tokens that were never computed."""
        a = self._account(tenant)
        a.charged -= WP * tokens / a.weight
        if self._touched is not None:
            self._touched.add(tenant)
        self._fell(tenant, a)

    def charge_output(self, tenant: str, tokens: int = 1) -> None:
        """Output tokens that no decode row stands for; negative: given back."""
        a = self._account(tenant)
        a.charged += WQ * tokens / a.weight
        if self._touched is not None:
            self._touched.add(tenant)
        if tokens < 0:
            self._fell(tenant, a)

    def decoding(self, tenant: str, by: int) -> None:
        """From now on `by` more rows of the tenant (fewer: negative) get a token in each step."""
        a = self._account(tenant)
        now = self.steps.now
        if a.mark != now:
            a.charged += a.rate * (now - a.mark)
            a.mark = now
        a.rate += WQ * by / a.weight
        if abs(a.rate) < 1e-12:  # thirds of a weight do not cancel exactly
            a.rate = 0.0
        if self._touched is not None:
            self._touched.add(tenant)

    def stepped(self, steps: int = 1) -> None:
        """So many decode steps have passed: every decoding row is charged for its tokens."""
        self.steps.now += steps

    # -- one view of a pool's replicas: each tells what it charged, and adds what others did

    def share(self) -> None:
        """From now on keep in mind what `take_charges` is to tell."""
        self._touched = set()

    def take_charges(self) -> dict[str, float]:
        """Service charged here since last asked, unweighted; negative: given back. Never what other
        replicas charged: told on, it would go round for ever. Nothing without `share`."""
        taken, self._untold = self._untold, {}
        decoding = set()
        for tenant in self._touched or ():
            a = self._accounts[tenant]
            own = a.charged + a.rate * (self.steps.now - a.mark) - a.elsewhere
            service = (own - a.told) * a.weight + taken.pop(tenant, 0.0)
            a.told = own
            if a.rate:
                decoding.add(tenant)
            if abs(service) > _DUST * max(1.0, abs(own)):
                taken[tenant] = service
        if self._touched is not None:
            self._touched = decoding
        return taken

    def charged_elsewhere(self, charges: Mapping[str, float]) -> list[str]:
        """Other replicas have charged these tenants so much service, unweighted: by weight it
        counts as if it had been charged here. Returns whose counter fell: those given back to."""
        fell = []
        for tenant, service in charges.items():
            a = self._account(tenant)
            part = service / a.weight
            a.charged += part
            a.elsewhere += part
            if service < 0:
                self._fell(tenant, a)
                fell.append(tenant)
        self.active_elsewhere(t for t, service in charges.items() if service > 0)
        return fell

    def active_elsewhere(self, tenants: Iterable[str]) -> None:
        """Requests of these have just left another replica's queue. Who comes to an empty queue
        here is lifted to the least of them, as to one that left this queue: else it would hold
        against them all they were served while it asked for nothing."""
        least: dict[int, tuple[float, str]] = {}
        for tenant in tenants:
            tier, mine = self._account(tenant).tier, (self.value(tenant), tenant)
            least[tier] = min(least.get(tier, mine), mine)
        self._last_left.update((tier, tenant) for tier, (_, tenant) in least.items())

    # -- the waiting, in a lazy heap a tier: an entry is at most its tenant's counter, since
    # counters only grow (what makes one fall pushes a new entry); it is put right at the top.

    def _account(self, tenant: str) -> _Account:
        a = self._accounts.get(tenant)
        if a is None:
            a = _Account(self.weight(tenant), self._tiers.get(tenant, 0), self.steps.now)
            self._accounts[tenant] = a
        return a

    def _stand(self, tenant: str, a: _Account) -> None:
        a.waiting = True
        value = self.value(tenant)
        if a.entry is None or value < a.entry:
            a.entry = value
            heappush(self._heaps.setdefault(a.tier, []), (value, tenant))

    def fell(self, tenant: str) -> None:
        """The tenant's value may be smaller than it was (by a part kept elsewhere)."""
        self._fell(tenant, self._account(tenant))

    def follow(self, other: Counters) -> None:
        """Take over the lifts of other counters, and who left the queue last."""
        for tenant, theirs in other._accounts.items():
            self._account(tenant).lift = theirs.lift
        self._last_left = dict(other._last_left)

    def _fell(self, tenant: str, a: _Account) -> None:
        if a.waiting:
            self._stand(tenant, a)
        elif a.entry is not None and self.value(tenant) < a.entry:
            a.entry = None

    # -- other rights, while everybody goes on

    def reweigh(self, tenant: str, weight: float, owed_tokens: int = 0) -> None:
        """From now on it is charged by another weight; what it was charged stays. `owed_tokens`:
        prompt tokens charged and not computed yet, which may still be refunded. They are charged
        again by the new weight: a refund by another weight than the charge would make credit."""
        old = self.weight(tenant)
        self._weights[tenant] = weight
        a = self._accounts.get(tenant)
        if a is None or old == weight:
            return
        a.charged += a.rate * (self.steps.now - a.mark)
        a.mark = self.steps.now
        if self._touched is not None:
            self._touched.add(tenant)
            service = (a.charged - a.elsewhere - a.told) * old
            self._untold[tenant] = self._untold.get(tenant, 0.0) + service
        a.rate *= old / weight
        a.charged += WP * owed_tokens * (1 / weight - 1 / old)
        a.told = a.charged - a.elsewhere
        a.weight = weight
        self._fell(tenant, a)

    def retier(self, tenant: str, tier: int) -> None:
        """It shares with another tier from now on, and comes there as an arrival does: lifted."""
        if tier == self._tiers.get(tenant, 0):
            return
        self._tiers[tenant] = tier
        a = self._accounts.get(tenant)
        if a is None:
            return
        heap = self._heaps.get(a.tier)
        if heap:
            heap[:] = [e for e in heap if e[1] != tenant]
            heapify(heap)
        if self._last_left.get(a.tier) == tenant:
            del self._last_left[a.tier]
        waited, a.waiting, a.entry, a.tier = a.waiting, False, None, tier
        if waited:
            self.enters(tenant)

    def _smallest(self, tier: int) -> float | None:
        heap = self._heaps.get(tier)
        while heap:
            entry, tenant = heap[0]
            a = self._accounts[tenant]
            if a.entry != entry:
                heappop(heap)
                continue
            if not a.waiting:
                heappop(heap)
                a.entry = None
                continue
            value = self.value(tenant)
            if value <= entry:
                return value
            a.entry = value
            heapreplace(heap, (value, tenant))
        return None
