"""Who goes next: a lazy heap of names by rank, and a walk through it that puts everything back.

Used at both levels: tenants by a policy, groups inside a tenant. Owns the heap; knows no charges:
a rank is whatever the subclass says it is, as long as it only grows or `stands` is called when it
falls. An entry is then never above its name's rank, and is put right when it comes to the top:
O(log n) a rank that changed, whenever that was, and nothing at all in a step nobody looks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from engine.scheduling.request import Request

# (tier, key, second key: an arrival or a turn, name); the smallest goes next.
Entry = tuple[int, float, int, str]


class Walk(Protocol):
    """One pass over waiting requests in order; each step tells what became of the head."""

    def head(self) -> Request | None: ...

    def admitted(self) -> None: ...

    def passed(self) -> None: ...

    def supposed(self) -> None: ...

    def close(self) -> None: ...


class Member(Protocol):
    """What is ranked: a queue that is not empty."""

    @property
    def first(self) -> int: ...

    def __len__(self) -> int: ...

    def head(self) -> Request | None: ...

    def walk(self) -> Walk: ...


class Order(ABC):
    """Names in order of rank. `members` holds those that wait, and is read, never written."""

    __slots__ = ("chosen", "heap", "live", "members", "open")

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.members = members
        self.heap: list[Entry] = []
        self.live: dict[str, Entry] = {}  # of each name the one entry that counts
        self.open: Scan | None = None
        self.chosen: Entry | None = None  # the head of the open scan, as it stood

    @abstractmethod
    def rank(self, name: str, sequence: int, supposed: float) -> Entry:
        """Where the name stands with a request of that `sequence` to offer, after `supposed`."""

    @abstractmethod
    def suppose(self, request: Request, supposed: float) -> float:
        """What is supposed of its name once this request is supposed to be admitted too."""

    def stands(self, name: str) -> None:
        """The name has begun to wait, or its rank may have fallen."""
        entry = self.rank(name, self.members[name].first, 0.0)
        old = self.live.get(name)
        if old is None or entry < old:
            self.live[name] = entry
            heappush(self.heap, entry)
            if len(self.heap) > 2 * len(self.live) + 64:
                self.heap[:] = [e for e in self.heap if self.live.get(e[3]) is e]
                heapify(self.heap)

    def top(self) -> Entry | None:
        """The entry of whoever goes next, put right."""
        heap, live, members = self.heap, self.live, self.members
        while heap:
            entry = heap[0]
            name = entry[3]
            if live.get(name) is not entry:
                heappop(heap)
                continue
            member = members.get(name)
            if member is None:
                heappop(heap)
                del live[name]
                continue
            true = self.rank(name, member.first, 0.0)
            if true <= entry:
                return entry
            live[name] = true
            heapreplace(heap, true)
        return None

    def scan(self) -> Scan:
        """A walk from the front. One at a time: an open one is closed by the next."""
        if self.open is not None:
            self.open.close()
        self.open = scan = Scan(self)
        return scan


class _Done:
    """A walk at its end."""

    __slots__ = ()

    def head(self) -> Request | None:
        return None

    def admitted(self) -> None: ...

    def passed(self) -> None: ...

    def supposed(self) -> None: ...

    def close(self) -> None: ...


_DONE = _Done()


class Scan:
    """One pass over the waiting requests in order of rank.

    `head()` is the next candidate, the same until told what became of it: `admitted()` (the caller
    has removed it from its queue and charged it), `passed()` (it stays, its tenant's next one may
    be considered), `left()` (it stays, and its tenant's others too) or `supposed()` (as if it had
    been admitted, for looking ahead). `close()` when done. O(log n) a head; starting costs nothing.
    """

    __slots__ = (
        "_aside",
        "_local",
        "_name",
        "_order",
        "_request",
        "_supposed",
        "_walks",
        "_within",
    )

    def __init__(self, order: Order) -> None:
        self._order = order
        self._local: list[Entry] = []  # names with a request passed or supposed, by rank
        self._walks: dict[str, Walk] = {}
        self._supposed: dict[str, float] = {}
        self._aside: list[Entry] = []  # entries of those names, to be put back
        self._request: Request | None = None
        self._name = ""
        self._within = False  # the head comes from a walk

    def head(self) -> Request | None:
        if self._request is not None:
            return self._request
        order = self._order
        entry = order.top()
        while entry is not None and entry[3] in self._walks:
            self._aside.append(heappop(order.heap))
            entry = order.top()
        if self._local:
            local = self._local_top()
            if local is not None and (entry is None or local < entry):
                self._name, self._within = local[3], True
                order.chosen = local
                self._request = self._walks[local[3]].head()
                return self._request
        if entry is None:
            return None
        self._name, self._within = entry[3], False
        order.chosen = entry
        self._request = order.members[entry[3]].head()
        return self._request

    def admitted(self) -> None:
        self._request = None
        if self._within:
            self._walks[self._name].admitted()
            self._renew()

    def passed(self) -> None:
        if self._request is None:
            return
        self._request = None
        walk = self._walk()
        walk.passed()
        self._renew()

    def supposed(self) -> None:
        request, name = self._request, self._name
        if request is None:
            return
        self._request = None
        walk = self._walk()
        self._supposed[name] = self._order.suppose(request, self._supposed.get(name, 0.0))
        walk.supposed()
        self._renew()

    def left(self) -> None:
        """The head stays, and so does the rest of its name's requests: the next head is
        another name's."""
        if self._request is None:
            return
        self._request = None
        walk = self._walk()
        if self._within:
            heappop(self._local)
        walk.close()
        self._walks[self._name] = _DONE

    def close(self) -> None:
        """Put everything back; the scan is over."""
        order = self._order
        if order.open is not self:
            return
        order.open = None
        self._request = None
        for entry in self._aside:
            if order.live.get(entry[3]) is entry:
                heappush(order.heap, entry)
        for walk in self._walks.values():
            walk.close()
        self._walks = {}
        self._local = []
        self._aside = []

    def _walk(self) -> Walk:
        """The walk through the head's own queue, standing at the head."""
        if self._within:
            return self._walks[self._name]
        order, name = self._order, self._name
        if order.heap and order.heap[0] is order.live.get(name):
            self._aside.append(heappop(order.heap))
        member = order.members[name]
        walk = self._walks[name] = _DONE if len(member) == 1 else member.walk()
        walk.head()
        return walk

    def _renew(self) -> None:
        """The walk of `_name` has moved: its entry in the local heap follows."""
        name = self._name
        request = self._walks[name].head()
        if request is None:
            if self._within:
                heappop(self._local)
            return
        entry = self._order.rank(name, request.sequence, self._supposed.get(name, 0.0))
        if self._within:
            heapreplace(self._local, entry)
        else:
            heappush(self._local, entry)

    def _local_top(self) -> Entry | None:
        local = self._local
        while local:
            entry = local[0]
            name = entry[3]
            request = self._walks[name].head()
            if request is None:
                heappop(local)
                continue
            true = self._order.rank(name, request.sequence, self._supposed.get(name, 0.0))
            if true <= entry:
                return entry
            heapreplace(local, true)
        return None
