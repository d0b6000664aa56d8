"""FCFS: the earliest arrival goes next, whoever sent it. The baseline everybody runs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from engine.scheduling.policies.base import Queues, Scan
from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Request


class _FcfsScan:
    """A heap of tenants by the arrival of the request under their cursor."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._cursor: dict[str, int] = {}
        self._heap = [(q[0].sequence, t) for t, q in queues.items() if q]
        heapq.heapify(self._heap)

    def head(self) -> Request | None:
        if not self._heap:
            return None
        tenant = self._heap[0][1]
        return self._queues[tenant][self._cursor.get(tenant, 0)]

    def admitted(self) -> None:
        self._again(self._heap[0][1])

    def passed(self) -> None:
        tenant = self._heap[0][1]
        self._cursor[tenant] = self._cursor.get(tenant, 0) + 1
        self._again(tenant)

    def supposed(self) -> None:
        self.passed()

    def _again(self, tenant: str) -> None:
        heapq.heappop(self._heap)
        queue, cursor = self._queues[tenant], self._cursor.get(tenant, 0)
        if cursor < len(queue):
            heapq.heappush(self._heap, (queue[cursor].sequence, tenant))


@dataclass(frozen=True, slots=True)
class Fcfs:
    name: str = "fcfs"

    def scan(self, queues: Queues, counters: Counters) -> Scan:
        return _FcfsScan(queues)

    def overtakes(self, head: Request, filling: Sequence[Request], counters: Counters) -> bool:
        return not filling

    def victim(self, running: Sequence[Request], counters: Counters) -> Request | None:
        """The latest admitted, as counterless policies do. `running` is in order of admission."""
        return running[-1] if running else None
