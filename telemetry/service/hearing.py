"""Who hears of every committed delivery: a list, called in order. Owns nothing that they do.

Called after COMMIT and acknowledgement, by the ingest thread and by whoever else in the process
writes rows (the alerts). A listener must be quick (hand over and return), safe to call from several
threads, and may fail: what is in the store is safe, and the others still hear.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from telemetry.otlp.decode import Decoded
from telemetry.records import Batch

log = logging.getLogger(__name__)


class Listener(Protocol):
    """Counts along, watches, forwards: whatever follows the store as it fills."""

    def hear(self, batches: Sequence[Batch], now: float, refused: int = 0) -> None:
        """`batches` are committed; `now` is unix seconds; `refused` points came with them."""
        ...


class Hub:
    """The listeners of one store process. `add` before the server starts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._listeners: list[tuple[str, Listener, bool]] = []

    def add(self, name: str, listener: Listener, *, cells: bool = True) -> None:
        """Without `cells` a bucket's interference matrix comes as one value (`Charges`) among the
        minute rows: for who does not read it, tens of thousands of rows are not made."""
        self._listeners.append((name, listener, cells))

    def hear(self, decoded: Decoded) -> None:
        now = self._clock()
        for name, listener, cells in self._listeners:
            try:
                batches = decoded.batches if cells else decoded.packed
                listener.hear(batches, now, decoded.refused)
            except Exception:
                # Only who counts along has missed it.
                log.exception("%s did not take a committed delivery", name)
