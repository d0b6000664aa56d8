"""The waiting requests of one pool: their queues, why each waits, who is told when that changes.

Owns queues and wait groups; decides no order (the policy does) and starts nothing (admission does).
Whoever is put in, taken out or moved is told to counters, policy, wait book and ledger here, so
that they cannot disagree.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from engine.scheduling.policies import make_policy
from engine.scheduling.policies.base import Policy
from engine.scheduling.policies.counters import Counters
from engine.scheduling.policies.queues import Queues
from engine.scheduling.request import Request, State
from engine.scheduling.rights import Rights
from engine.scheduling.waits import SCHEDULED, SHARED, WaitBook
from telemetry.ledger.ledger import Ledger


class Waiting:
    """`policy` may be exchanged at any time; counters and queues go on."""

    def __init__(
        self, ledger: Ledger, book: WaitBook, counters: Counters, rights: Rights, policy: str
    ) -> None:
        self._ledger = ledger
        self._book = book
        self.counters = counters
        self._rights = rights
        self.queues = Queues(counters.steps, rights.share_by)
        self.policy: Policy = self._make(policy)
        # Waiting, with a reason of their own in the present plan, and those of the one before.
        self.examined: dict[int, Request] = {}
        self._before: dict[int, Request] = {}
        self.preempted: dict[int, Request] = {}  # of those that wait
        self._due: list[tuple[float, int, str, Request]] = []
        self._due_most = 64

    def _make(self, policy: str) -> Policy:
        rights = self._rights
        return make_policy(policy, self.queues, self.counters, rights.tiers, rights.knobs)

    def use_policy(self, policy: str) -> None:
        self.policy = self._make(policy)

    @property
    def count(self) -> int:
        return self.queues.waiting

    # -- in and out

    def add(self, request: Request) -> None:
        """An arrival. It stands in the shared group already (the ledger's `joined`)."""
        ask = request.ask
        self._book.join(request.waits, request.joined_s)
        if self.queues.append(request):
            self.counters.enters(request.tenant)
            self.policy.arrived(request.tenant)
        for reason, span_s in (
            ("queue_timeout", ask.queue_timeout_s),
            ("deadline", ask.deadline_s),
        ):
            if span_s is not None:
                due = (ask.arrived_s + span_s, request.sequence, reason, request)
                heapq.heappush(self._due, due)
        if len(self._due) > self._due_most:  # long spans would keep those who ended long ago
            self._due = [d for d in self._due if d[3].state is not State.ENDED]
            heapq.heapify(self._due)
            self._due_most = 64 + 2 * len(self._due)

    def put_back(self, request: Request) -> None:
        """A return after preemption: no arrival, so no lift."""
        tenant = request.tenant
        self.preempted[request.sequence] = request
        if self.queues.insert(request):
            self.counters.returns(tenant)
            self.policy.arrived(tenant)
        else:
            self.policy.changed(tenant)
        self.move(request, SHARED)

    def take_out(self, request: Request) -> None:
        """It starts or has ended: it leaves its queue and whatever group it stood in. Of a head
        that changes by an ending the policy is still to be told (`changed`)."""
        tenant = request.tenant
        emptied = self.queues.remove(request)
        self.counters.left_queue(tenant)
        if emptied:
            self.counters.leaves(tenant)
            self.policy.emptied(tenant)
        self.examined.pop(request.sequence, None)
        self._before.pop(request.sequence, None)
        self.preempted.pop(request.sequence, None)
        self.move(request, SCHEDULED)

    def charged_elsewhere(self, charges: Mapping[str, float]) -> None:
        """What other replicas of the pool have charged since the last time, unweighted."""
        fell = self.counters.charged_elsewhere(charges)
        self.policy.elsewhere([t for t, service in charges.items() if service > 0], fell)

    # -- reasons

    def begin_plan(self) -> None:
        self._before, self.examined = self.examined, {}

    def examine(self, request: Request, group: str, reason: str) -> None:
        """The scan looked at it and it stays, for a reason of its own."""
        self._before.pop(request.sequence, None)
        self.examined[request.sequence] = request
        self.move(request, group, reason)

    def end_plan(self, shared_reason: str) -> None:
        """Whoever this plan did not look at again waits as all the others do."""
        for request in self._before.values():
            if request.state is not State.RUNNING:
                self.move(request, SHARED)
        self._before = {}
        self._book.flip(shared_reason)

    def move(self, request: Request, group: str, reason: str = "") -> None:
        """From now on it stands in another group. SCHEDULED: it does not wait."""
        waits = request.waits
        was = waits.group
        if was == group:
            return
        if was == SCHEDULED:
            self._ledger.wait_began(request.ask.request_id, request.tenant, group)
        elif group == SCHEDULED:
            self._ledger.wait_ended(request.ask.request_id, request.tenant, was)
        else:
            self._ledger.wait_moved(request.tenant, was, group)
        self._book.move(waits, group, reason)

    # -- timeouts

    @property
    def next_due_s(self) -> float | None:
        """When the next queue timeout or deadline passes, of whoever it is."""
        due = self._due
        while due and (due[0][3].state is State.ENDED):
            heapq.heappop(due)
        return due[0][0] if due else None

    def overdue(self, now: float) -> Iterable[tuple[Request, str]]:
        """Whose queue timeout or deadline has passed, with the reason; each once."""
        due = self._due
        while due and due[0][0] <= now:
            _, _, reason, request = heapq.heappop(due)
            if request.state is State.ENDED:
                continue
            if reason == "deadline" or request.first_scheduled_s is None:
                yield request, reason
