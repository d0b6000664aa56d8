"""The waiting requests, a queue a tenant: first come first, or a fair share each group inside.

Owns the order inside a tenant and its groups' counters; knows nothing of other tenants' rank.
A *group* is `request.group`: an adapter or a key of the tenant (DESIGN 4: two levels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.scheduling.policies.counters import Counters, StepClock
from engine.scheduling.policies.order import Entry, Order, Scan, Walk
from engine.scheduling.request import Request


class _Node:
    """A place in a line. One taken out keeps its `after`, so that a walk goes on from it."""

    __slots__ = ("after", "before", "request")

    def __init__(self, request: Request) -> None:
        self.request: Request | None = request
        self.before: _Node | None = None
        self.after: _Node | None = None


class Line:
    """Requests in order of arrival (`sequence`). Everything O(1) but `insert`, which looks past
    the requests that arrived earlier and still wait (others overtook them: few)."""

    __slots__ = ("_back", "_front", "_nodes")

    def __init__(self) -> None:
        self._front: _Node | None = None
        self._back: _Node | None = None
        self._nodes: dict[int, _Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, request: Request) -> bool:
        return request.sequence in self._nodes

    def __iter__(self) -> Iterator[Request]:
        node = self._front
        while node is not None:
            if node.request is not None:
                yield node.request
            node = node.after

    @property
    def first(self) -> int:
        """`sequence` of the earliest. Raises IndexError when nobody waits."""
        front = self._front
        if front is None or front.request is None:
            raise IndexError("nobody waits in this line")
        return front.request.sequence

    def head(self) -> Request | None:
        return None if self._front is None else self._front.request

    def append(self, request: Request) -> None:
        """The latest arrival."""
        node = self._nodes[request.sequence] = _Node(request)
        back = self._back
        node.before = back
        if back is None:
            self._front = node
        else:
            back.after = node
        self._back = node

    def insert(self, request: Request) -> None:
        """One that comes back after preemption: to its place by arrival."""
        after = self._front
        while after is not None and after.request is not None:
            if after.request.sequence > request.sequence:
                break
            after = after.after
        if after is None:
            self.append(request)
            return
        node = self._nodes[request.sequence] = _Node(request)
        before = after.before
        node.before, node.after = before, after
        after.before = node
        if before is None:
            self._front = node
        else:
            before.after = node

    def remove(self, request: Request) -> None:
        """Out of the line. Raises KeyError when it is not in it."""
        node = self._nodes.pop(request.sequence)
        before, after = node.before, node.after
        if before is None:
            self._front = after
        else:
            before.after = after
        if after is None:
            self._back = before
        else:
            after.before = before
        node.request = None

    def walk(self) -> Walk:
        return _LineWalk(self._front)

    # What a queue shared by groups wants to know, and one without groups does not.

    def charged(self, request: Request, tokens: int) -> None:
        """Its admission was charged so many prompt tokens; negative: refunded."""

    def produced(self, request: Request, tokens: int = 1) -> None:
        """It got output tokens outside the decode cohort (the last chunk of a prefill)."""

    def decoding(self, request: Request, by: int) -> None:
        """It joined (1) or left (-1) the decode cohort."""


class _LineWalk:
    """From the front to the back, whoever is taken out on the way."""

    __slots__ = ("_node",)

    def __init__(self, node: _Node | None) -> None:
        self._node = node

    def head(self) -> Request | None:
        node = self._node
        while node is not None and node.request is None:
            node = node.after
        self._node = node
        return None if node is None else node.request

    def admitted(self) -> None:
        self.head()

    def passed(self) -> None:
        if self._node is not None:
            self._node = self._node.after

    supposed = passed

    def close(self) -> None:
        self._node = None


class _GroupOrder(Order):
    """VTC over the groups of one tenant."""

    __slots__ = ("_counters",)

    def __init__(self, lines: Mapping[str, Line], counters: Counters) -> None:
        super().__init__(lines)
        self._counters = counters

    def rank(self, name: str, sequence: int, supposed: float) -> Entry:
        return (0, self._counters.value(name) + supposed, sequence, name)

    def suppose(self, request: Request, supposed: float) -> float:
        if request.charged_prompt:
            return supposed
        return supposed + self._counters.prompt_charge(request.group, len(request.ask.prompt))


class SharedQueue:
    """A tenant's queue whose groups share by VTC, with the lift, each first come first.

    Outlives its emptiness: the groups' counters go on while their requests run.
    """

    __slots__ = ("_all", "_counters", "_lines", "_order")

    def __init__(self, steps: StepClock) -> None:
        self._counters = Counters({}, steps=steps)
        self._lines: dict[str, Line] = {}
        self._all = Line()
        self._order = _GroupOrder(self._lines, self._counters)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, request: Request) -> bool:
        return request in self._all

    def __iter__(self) -> Iterator[Request]:
        """In order of arrival, not of turn: `walk` is the order of turn."""
        return iter(self._all)

    @property
    def first(self) -> int:
        return self._all.first

    def head(self) -> Request | None:
        top = self._order.top()
        return None if top is None else self._lines[top[3]].head()

    def append(self, request: Request) -> None:
        self._all.append(request)
        group = request.group
        line = self._lines.get(group)
        if line is None:
            self._counters.enters(group)
            line = self._lines[group] = Line()
        line.append(request)
        self._order.stands(group)

    def insert(self, request: Request) -> None:
        self._all.insert(request)
        group = request.group
        line = self._lines.get(group)
        if line is None:
            self._counters.returns(group)
            line = self._lines[group] = Line()
        line.insert(request)
        self._order.stands(group)

    def remove(self, request: Request) -> None:
        self._all.remove(request)
        group = request.group
        line = self._lines[group]
        line.remove(request)
        self._counters.left_queue(group)
        if not line:
            del self._lines[group]
            self._counters.leaves(group)

    def walk(self) -> Scan:
        return self._order.scan()

    def counter(self, group: str) -> float:
        """The group's counter inside the tenant."""
        return self._counters.value(group)

    def charged(self, request: Request, tokens: int) -> None:
        if tokens >= 0:
            self._counters.charge_prompt(request.group, tokens)
            return
        self._counters.refund_prompt(request.group, -tokens)
        if request.group in self._lines:
            self._order.stands(request.group)

    def produced(self, request: Request, tokens: int = 1) -> None:
        self._counters.charge_output(request.group, tokens)

    def decoding(self, request: Request, by: int) -> None:
        self._counters.decoding(request.group, by)


TenantQueue = Line | SharedQueue


class Queues(dict[str, TenantQueue]):
    """Tenant -> its queue, of those with waiting requests only.

    `share_by`: tenant -> "adapter" or "key" for those whose groups share; the others ("none", or
    absent) are first come first. Put requests in and out by the methods here.
    """

    def __init__(self, steps: StepClock, share_by: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._shared = {t: SharedQueue(steps) for t, by in (share_by or {}).items() if by != "none"}
        self.waiting = 0

    def shares(self, tenant: str, steps: StepClock) -> None:
        """Its groups share from now on. Only before it has any request here."""
        self._shared.setdefault(tenant, SharedQueue(steps))

    def append(self, request: Request) -> bool:
        """An arrival. True: nothing of its tenant waited (`Counters.enters` is due)."""
        queue, began = self._begin(request.ask.tenant)
        queue.append(request)
        self.waiting += 1
        return began

    def insert(self, request: Request) -> bool:
        """A return after preemption. True: nothing of its tenant waited (`Counters.returns`)."""
        queue, began = self._begin(request.ask.tenant)
        queue.insert(request)
        self.waiting += 1
        return began

    def remove(self, request: Request) -> bool:
        """Admitted, or ended while it waited. True: nothing of its tenant waits any more.

        Raises KeyError when the request does not wait."""
        tenant = request.ask.tenant
        queue = self[tenant]
        queue.remove(request)
        self.waiting -= 1
        if queue:
            return False
        del self[tenant]
        return True

    # The counters inside tenants that share by group; no-ops for the others.

    def charged(self, request: Request, tokens: int) -> None:
        """Its admission was charged so many prompt tokens; negative: refunded."""
        if self._shared and (queue := self._shared.get(request.ask.tenant)) is not None:
            queue.charged(request, tokens)

    def produced(self, request: Request, tokens: int = 1) -> None:
        """It got output tokens outside the decode cohort (the last chunk of a prefill)."""
        if self._shared and (queue := self._shared.get(request.ask.tenant)) is not None:
            queue.produced(request, tokens)

    def decoding(self, request: Request, by: int) -> None:
        """It joined (1) or left (-1) the decode cohort."""
        if self._shared and (queue := self._shared.get(request.ask.tenant)) is not None:
            queue.decoding(request, by)

    def of(self, tenant: str) -> TenantQueue:
        """The tenant's queue, put into the mapping if it was not: it is about to be filled."""
        queue = self.get(tenant)
        if queue is None:
            shared = self._shared.get(tenant)
            queue = self[tenant] = Line() if shared is None else shared
        return queue

    def _begin(self, tenant: str) -> tuple[TenantQueue, bool]:
        began = tenant not in self
        return self.of(tenant), began
