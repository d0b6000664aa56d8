"""Which requests a core has taken and not ended, and who of them wants to know what it waited for.

Owns ids only; what becomes of a request is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.errors import EngineError
from engine.scheduling.endings import Ending
from engine.scheduling.request import Ask
from engine.scheduling.settling import Settled
from engine.scheduling.waits import FirstWaits, Waits


class UnderWay:
    """All calls under the ledger's lock."""

    def __init__(self) -> None:
        self._alive: set[str] = set()
        self.telling: set[str] = set()  # whose waits are to be told with their first token

    def takes(self, ask: Ask) -> None:
        """Raises EngineError when a request of that id is still alive."""
        if ask.request_id in self._alive:
            raise EngineError(f"request id {ask.request_id!r} is in use: ids are used once")
        self._alive.add(ask.request_id)
        if ask.tell_waits:
            self.telling.add(ask.request_id)

    def over(self, ended: Iterable[Ending]) -> None:
        self._alive.difference_update(e.request_id for e in ended)
        if self.telling:
            self.telling.difference_update(e.request_id for e in ended)

    def first_waits(
        self, settled: Settled, waits_of: Callable[[str], Waits | None]
    ) -> dict[str, FirstWaits] | None:
        """Of those that asked and have had their first token in this step; None: nobody asks."""
        if not self.telling:
            return None
        over = {e.request_id: e.request.waits for e in settled.ended}
        told = {}
        for request_id, _ in settled.tokens:
            if request_id not in self.telling:
                continue
            self.telling.discard(request_id)
            waits = over.get(request_id) or waits_of(request_id)
            if waits is not None:
                told[request_id] = FirstWaits.of(waits)
        return told
