"""A simulation's telemetry into a store of its own: the engine's rows, by the engine's way in.

The same OTLP bytes as front and worker send, without a network. Owns the store while it is open.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType

import duckdb

from engine.errors import WorkloadError
from telemetry.errors import TelemetryError
from telemetry.pipeline.exporter import Inline
from telemetry.records import Batch
from telemetry.store.store import Store


class Whole:
    """A context in which Ctrl-C waits until the end. DuckDB turns one that falls into a commit
    into an error of its own."""

    def __enter__(self) -> None:
        self._came = False
        # Only the main thread has signals; where the handler is not Python's there is none to keep.
        mine = threading.current_thread() is threading.main_thread()
        self._usual = signal.getsignal(signal.SIGINT) if mine else None
        if callable(self._usual):
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True

    def __exit__(self, *_: object) -> None:
        if callable(self._usual):
            signal.signal(signal.SIGINT, self._usual)
            if self._came:
                self._usual(signal.SIGINT, None)


class StoreOut:
    """A context: `submit` returns when the rows are committed. Left by an error or an interrupt
    it takes away what it wrote: half a simulation would read like a whole one."""

    def __init__(self, folder: Path) -> None:
        """Raises WorkloadError for a file, and when something is in the folder already: the rows
        of two simulations, at the same instants, would be added up."""
        if folder.exists() and not folder.is_dir():
            raise WorkloadError(f"{folder} is a file: a simulation is written to a new folder")
        if folder.is_dir() and any(folder.iterdir()):
            raise WorkloadError(
                f"{folder} is not empty: a simulation is written to a folder of its own, its rows "
                "would be added to what is there; name a new one"
            )
        self._folder, self._made = folder, not folder.exists()
        self._store = Store.open(folder)
        self._inline = Inline(self._store.take)

    def submit(self, batch: Batch) -> None:
        with Whole():
            self._inline.submit(batch)

    def __enter__(self) -> StoreOut:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            with Whole():
                self._store.close()
            return
        # It goes away, and an interrupt may have left it in the middle of a commit: what closing
        # it has to complain of would only hide the error that is on its way.
        with contextlib.suppress(TelemetryError, duckdb.Error, OSError):
            self._store.close()
        self._take_away()

    def _take_away(self) -> None:
        """The folder was empty or not there, so all in it is this run's."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if not self._made:
            self._folder.mkdir(exist_ok=True)
