"""VTC: the waiting tenant with the smallest counter goes next; its earliest request first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from engine.scheduling.policies.base import Queues, Scan, least_to_redo
from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Request


class _VtcScan:
    """A heap of tenants by counter; each with a cursor into its queue."""

    def __init__(self, queues: Queues, counters: Counters) -> None:
        self._queues = queues
        self._counters = counters
        self._extra: dict[str, float] = {}  # charges only supposed
        self._cursor: dict[str, int] = {}
        self._heap = [self._entry(t) for t, q in queues.items() if q]
        heapq.heapify(self._heap)

    def _entry(self, tenant: str) -> tuple[float, int, str]:
        request = self._queues[tenant][self._cursor.get(tenant, 0)]
        counter = self._counters.value(tenant) + self._extra.get(tenant, 0.0)
        return (counter, request.sequence, tenant)

    def head(self) -> Request | None:
        if not self._heap:
            return None
        tenant = self._heap[0][2]
        return self._queues[tenant][self._cursor.get(tenant, 0)]

    def admitted(self) -> None:
        self._again(self._heap[0][2])

    def passed(self) -> None:
        tenant = self._heap[0][2]
        self._cursor[tenant] = self._cursor.get(tenant, 0) + 1
        self._again(tenant)

    def supposed(self) -> None:
        tenant = self._heap[0][2]
        request = self._queues[tenant][self._cursor.get(tenant, 0)]
        if not request.charged_prompt:
            charge = self._counters.prompt_charge(tenant, len(request.ask.prompt))
            self._extra[tenant] = self._extra.get(tenant, 0.0) + charge
        self.passed()

    def _again(self, tenant: str) -> None:
        heapq.heappop(self._heap)
        if self._cursor.get(tenant, 0) < len(self._queues[tenant]):
            heapq.heappush(self._heap, self._entry(tenant))


@dataclass(frozen=True, slots=True)
class Vtc:
    name: str = "vtc"

    def scan(self, queues: Queues, counters: Counters) -> Scan:
        return _VtcScan(queues, counters)

    def overtakes(self, head: Request, filling: Sequence[Request], counters: Counters) -> bool:
        """A head whose tenant has had less goes before them. Their prompts are charged already, so
        they are not starved: each that overtakes raises its own counter towards theirs."""
        own = counters.value(head.tenant)
        return all(own < counters.value(r.tenant) for r in filling)

    def victim(self, running: Sequence[Request], counters: Counters) -> Request | None:
        if not running:
            return None
        most = max(running, key=lambda r: (counters.value(r.tenant), r.tenant)).tenant
        return least_to_redo([r for r in running if r.tenant == most])
