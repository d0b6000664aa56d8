"""Which adapters are brought in for the heads of the queue, and which are kept for them.

Owns the load orders of one plan and the pins; knows no running sequences' pages. The first head in
policy order comes first: nothing is fetched for others into the room that it needs to start, and
when nothing runs the others' pins go before it waits. Otherwise prefetching and admission could
evict each other's adapters for ever while nobody runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from engine.memory.pool import Short
from engine.memory.residency import Eviction, LoadOrder, Place, Residency
from engine.scheduling.policies.order import Scan
from engine.scheduling.request import Request, State


class Prefetch:
    """One scheduler's. `pages_for` tells the pages a request needs to start."""

    def __init__(
        self,
        residency: Residency,
        heads: int,
        pages_for: Callable[[Request], int],
        evicted: Callable[[list[Eviction]], None],
    ) -> None:
        self._residency = residency
        self._heads = heads
        self._pages_for = pages_for
        self._evicted = evicted
        self._first: Request | None = None
        self._most_loads = 1
        self._fetching: set[str] = set()
        self._orders: list[LoadOrder] = []

    def begin(self, step_s: float) -> None:
        """A new plan: the next request that is looked at is the first head. `step_s`: about how
        long it will be until the one after."""
        self._first = None
        # What the link carries until then, and one more: loads that stand longer in its queue
        # would hold pages for nothing, that adapters in use could have.
        load_s = self._residency.load_s
        self._most_loads = self._heads + 1 if not load_s else 1 + math.ceil(step_s / load_s)
        self._fetching.clear()

    def look_at(self, request: Request) -> None:
        if self._first is None:
            self._first = request

    def on_device(self, adapter: str) -> bool:
        return self._residency.place(adapter) is Place.DEVICE

    def fetch(
        self, request: Request, adapter: str, now: float, *, idle: bool, grace: bool = True
    ) -> bool:
        """Order the adapter unless it is there, on its way, or beyond the plan's bound. `idle`:
        nothing runs, so that room can only come from the pins of others. `grace`: adapters in use a
        moment ago stay. False: pages are short."""
        residency = self._residency
        if adapter not in self._fetching:
            if len(self._fetching) >= max(1, self._heads):
                return True
            if residency.loading >= self._most_loads and not residency.is_coming(adapter):
                return True
        self._fetching.add(adapter)
        residency.pin(adapter)
        keep = 0
        if self._first is not None and self._first.state is not State.RUNNING:
            keep = self._pages_for(self._first)
        outcome = self._order(request, adapter, now, keep, grace=grace and not idle)
        if isinstance(outcome, Short) and idle and request is self._first:
            residency.keep_only({adapter})
            outcome = self._order(request, adapter, now, keep, grace=False)
        return not isinstance(outcome, Short)

    def _order(
        self, request: Request, adapter: str, now: float, keep: int, *, grace: bool
    ) -> LoadOrder | Short | None:
        outcome, evictions = self._residency.try_order(
            adapter, request.tenant, now, keep_free=keep, grace=grace
        )
        self._evicted(evictions)
        if isinstance(outcome, LoadOrder):
            self._orders.append(outcome)
        return outcome

    def lacks(self, request: Request, pages: int, spare: int) -> int:
        """Pages by which `make_room` would surely fail; 0 = it would do."""
        return self._residency.lacks(pages + spare, sparing=request.ask.adapter)

    def make_room(
        self, request: Request, pages: int, spare: int, now: float, *, idle: bool
    ) -> bool:
        """Room for `pages` and `spare` more, by evicting adapters nobody uses or waits for. With
        nothing running, the first head needs no spare, and only its own pin stays."""
        key = request.ask.adapter
        short, evictions = self._residency.make_room(
            pages + spare, request.tenant, now, sparing=key
        )
        if short is not None and idle and request is self._first:
            self._residency.keep_only({key} if key is not None else set())
            short, evictions = self._residency.make_room(pages, request.tenant, now, sparing=key)
        self._evicted(evictions)
        return short is None

    def look_ahead(
        self, scan: Scan, examined: Iterable[Request], now: float, *, idle: bool
    ) -> None:
        """Bring in the adapters of the first heads in policy order, while the step runs, and keep
        those and no others from eviction: else a long queue would evict its own head's."""
        wanted: set[str] = set()
        for _ in range(self._heads):
            request = scan.head()
            if request is None:
                break
            self.look_at(request)
            adapter = request.ask.adapter
            if adapter is not None:
                self.fetch(request, adapter, now, idle=idle)
                wanted.add(adapter)
            scan.supposed()
        waiting = {r.ask.adapter for r in examined if r.ask.adapter in self._fetching}
        self._residency.keep_only(wanted | {a for a in waiting if a is not None})

    def take_orders(self) -> tuple[LoadOrder, ...]:
        orders, self._orders = tuple(self._orders), []
        return orders
