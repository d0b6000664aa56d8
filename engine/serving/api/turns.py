"""Work that takes long, off the loop and in fair turns. Owns a few threads and who waits for them.

Of one tenant one piece of work runs at a time, and tenants take turns; what waits is bounded for
each and in all, so that one tenant's flood costs another at most a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 2
EACH = 8  # pieces of work of one tenant, running or waiting
MOST = 64  # in all


class TurnRefused(Exception):
    """Too much waits. `own`: the tenant's own; else everybody's."""

    def __init__(self, own: bool, limit: int) -> None:
        super().__init__(f"{limit} prompts are being read already")
        self.own = own
        self.limit = limit


class Turns:
    """For one event loop."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH, most: int = MOST) -> None:
        self._at_once, self._each, self._most = at_once, each, most
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="front-turn")
        self._running: set[str] = set()
        # Whoever has just had a turn stands last.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._waits = 0

    def full_for(self, tenant: str) -> TurnRefused | None:
        """Why one more of this tenant's is not taken."""
        own = len(self._waiting.get(tenant, ())) + (tenant in self._running)
        if own >= self._each:
            return TurnRefused(True, self._each)
        if self._waits + len(self._running) >= self._most:
            return TurnRefused(False, self._most)
        return None

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """What `work` returns, done on a thread in its tenant's turn. Raises TurnRefused, and what
        `work` raises."""
        full = self.full_for(tenant)
        if full is not None:
            raise full
        loop = asyncio.get_running_loop()
        gate: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(gate)
        self._waits += 1
        self._go_on()
        try:
            await gate
        except asyncio.CancelledError:
            if gate.done() and not gate.cancelled():
                self._ended(tenant)
            else:
                self._give_up(tenant, gate)
            raise
        done = self._threads.submit(work)

        def ended(_: object) -> None:
            # The turn ends with the work, not with whoever waits for it.
            with contextlib.suppress(RuntimeError):  # the loop is over: there are no turns left
                loop.call_soon_threadsafe(self._ended, tenant)

        done.add_done_callback(ended)
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        """What has not begun is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _go_on(self) -> None:
        """Those whose turn it is begin."""
        while len(self._running) < self._at_once:
            tenant = next((t for t in self._waiting if t not in self._running), None)
            if tenant is None:
                return
            gates = self._waiting[tenant]
            gate = gates.popleft()
            if not gates:
                del self._waiting[tenant]
            self._waits -= 1
            self._running.add(tenant)
            gate.set_result(None)

    def _ended(self, tenant: str) -> None:
        self._running.discard(tenant)
        if tenant in self._waiting:
            self._waiting.move_to_end(tenant)
        self._go_on()

    def _give_up(self, tenant: str, gate: asyncio.Future[None]) -> None:
        gates = self._waiting.get(tenant)
        if gates is not None and gate in gates:
            gates.remove(gate)
            self._waits -= 1
            if not gates:
                del self._waiting[tenant]
