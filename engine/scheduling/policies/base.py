"""What a policy is: an order over waiting requests and a choice of whom to preempt.

A policy holds no state of its own: queues and counters are values handed in, so that policies
can be switched live and the shadow counters go on under any of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.scheduling.policies.counters import Counters
from engine.scheduling.request import Request

Queues = Mapping[str, deque[Request]]


class Scan(Protocol):
    """One pass over the waiting requests in policy order.

    `head()` is the next candidate; then either `admitted()` (the caller has removed it from its
    queue and charged it) or `passed()` (it stays, the tenant's next one may be considered).
    `supposed()` goes on as if it had been admitted, for looking ahead.
    """

    def head(self) -> Request | None: ...

    def admitted(self) -> None: ...

    def passed(self) -> None: ...

    def supposed(self) -> None: ...


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    def scan(self, queues: Queues, counters: Counters) -> Scan: ...

    def overtakes(self, head: Request, filling: Sequence[Request], counters: Counters) -> bool:
        """Whether a waiting head may take of the step's tokens before the prefills under way."""
        ...

    def victim(self, running: Sequence[Request], counters: Counters) -> Request | None:
        """Whose sequence gives its pages back when a running one must grow; None = nobody can."""
        ...


def least_to_redo(candidates: Sequence[Request]) -> Request | None:
    """Of several sequences the one whose preemption wastes least; ties: the latest arrival."""
    return min(candidates, key=lambda r: (r.computed, -r.sequence), default=None)
