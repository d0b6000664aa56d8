"""What a person calls a worker, wherever one is named. Pure; knows no process and no address."""

from __future__ import annotations

from collections.abc import Iterable


class WorkerNames:
    """For workers that are spoken of together, each a pool and which of its replicas (from 0)."""

    def __init__(self, workers: Iterable[tuple[str, int]]) -> None:
        known = tuple(workers)
        self._alone = len(known) == 1
        self._several = frozenset(pool for pool, replica in known if replica > 0)

    def label(self, pool: str, replica: int) -> str:
        """Where it stands in a table: POOL, or POOL/2 for the second of several."""
        return f"{pool}/{replica + 1}" if pool in self._several else pool

    def name(self, pool: str, replica: int) -> str:
        """In a sentence: "worker" where there is but one, else "worker POOL" or "worker POOL/2"."""
        return "worker" if self._alone else f"worker {self.label(pool, replica)}"
