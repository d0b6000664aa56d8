"""A simulation's telemetry into a store of its own: the engine's rows, by the engine's way in.

The same OTLP bytes as front and worker send, without a network. Owns the store while it is open.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from engine.errors import WorkloadError
from telemetry.pipeline import Inline
from telemetry.records import Batch
from telemetry.store import Store


class StoreOut:
    """A context: `submit` returns when the rows are committed."""

    def __init__(self, folder: Path) -> None:
        """Raises WorkloadError when something is in the folder already: the rows of two
        simulations, at the same instants, would be added up."""
        if folder.is_dir() and any(folder.iterdir()):
            raise WorkloadError(
                f"{folder} is not empty: a simulation is written to a folder of its own, its rows "
                "would be added to what is there; name a new one"
            )
        self._store = Store.open(folder)
        self._inline = Inline(self._store.take)

    def submit(self, batch: Batch) -> None:
        self._inline.submit(batch)

    def __enter__(self) -> StoreOut:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()
