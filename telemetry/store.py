"""The store: a folder of parts, one writer. Owns transactions and the life of parts; no sockets.

OTLP bytes come in, each request one transaction a touched part, and are acknowledged by returning
after the commit. Any thread may call; writers take turns, and so do readers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from telemetry import ingest, owner, parts, reading, sql
from telemetry.errors import StoreBusy, StoreError
from telemetry.instants import DAY_S, day_start
from telemetry.otlp_decode import Decoded, decode_logs, decode_metrics
from telemetry.parts import Part
from telemetry.reading import Result
from telemetry.records import Batch

log = logging.getLogger(__name__)
T = TypeVar("T")

# A day is closed when no emitter can be expected to deliver for it any more.
GRACE_S = 3600.0
_MEMORY_LIMIT = "1GB"
_MOST_THREADS = 4  # it shares the machine with what it watches
# A reader opens a day file for milliseconds; the writer outwaits it.
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one request: rows merged, points or records refused and why."""

    rows: int
    refused: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """Counts since the store was opened; `last_ingest_unix_s` is 0 before the first batch."""

    path: str
    pid: int
    batches: int
    rows: int
    refused_points: int
    last_ingest_unix_s: float


class Store:
    """One folder, opened for writing. Use `Store.open`."""

    def __init__(self, folder: Path, lock: owner.Lock) -> None:
        self.folder = folder
        self._lock = lock
        self._writing = threading.RLock()
        self._reading = threading.RLock()
        self._asking: duckdb.DuckDBPyConnection | None = None
        self._parts: dict[str, Part] = {}
        self._batches = self._rows = self._refused = 0
        self._last_ingest_unix_s = 0.0
        self._closed = False
        self._sound = False  # the connection has every part that is in the folder
        self._con = _connect(folder)

    @classmethod
    def open(cls, folder: Path | str) -> Store:
        """Open, or create, the store in a folder. Raises StoreBusy when another process has it,
        StoreError when the folder cannot be a store or cannot be reached.

        A day file that cannot be read is moved aside (`*.quarantined-N`), loudly; the rest opens.
        """
        folder = Path(folder)
        parts.check_path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = owner.Lock(folder)
        except OSError as e:
            raise StoreError(f"cannot open a store in {folder}: {e.strerror}") from None
        owner.withdraw(folder)  # a killed owner's address; nobody answers there any more
        store = cls(folder, lock)
        try:
            parts.remove_drafts(folder)
            store._begin()
        except (duckdb.Error, OSError) as e:
            store.close()
            raise StoreError(f"cannot open the store in {folder}: {e}") from e
        except BaseException:
            store.close()
            raise
        return store

    # --- in ---

    def ingest_metrics(self, data: bytes) -> Receipt:
        """Merge an ExportMetricsServiceRequest. Returns after the commit.

        Raises MalformedBatch when the bytes are no such request, StoreError when they could not
        be committed (sending them again is safe).
        """
        return self.ingest(decode_metrics(data))

    def ingest_logs(self, data: bytes) -> Receipt:
        """Merge an ExportLogsServiceRequest; see `ingest_metrics`."""
        return self.ingest(decode_logs(data))

    def take(self, metrics: bytes | None, logs: bytes | None) -> None:
        """Merge either or both: the sink of a process that has its store inside."""
        if metrics is not None:
            self.ingest_metrics(metrics)
        if logs is not None:
            self.ingest_logs(logs)

    def ingest(self, decoded: Decoded) -> Receipt:
        """Merge what a decoder made of a request."""
        with self._writing:
            rows = 0
            for name, deliveries in ingest.by_part(decoded.batches).items():
                rows += self._commit(name, deliveries)
            self._batches += 1
            self._rows += rows
            self._refused += decoded.refused
            self._last_ingest_unix_s = time.time()
        if decoded.refused:
            log.warning("refused %d points: %s", decoded.refused, "; ".join(decoded.reasons))
        return Receipt(rows, decoded.refused, decoded.reasons)

    def _commit(self, name: str, deliveries: list[tuple[Batch, list[Any]]]) -> int:
        """Whatever a connection failed at, the files are the truth: begin again from them, once."""
        try:
            return self._write(name, deliveries)
        except (duckdb.Error, OSError) as e:
            log.debug("%s: %s; opening the files again", name, e)
            spoiled = (name, e) if parts.is_corrupt(e, self.folder) else None
        try:
            self._begin(spoiled)
            return self._write(name, deliveries)
        except (duckdb.Error, OSError) as e:
            self._sound = False
            raise StoreError(f"{name} in {self.folder}: {e}") from e

    def _write(self, name: str, deliveries: list[tuple[Batch, list[Any]]]) -> int:
        if not self._sound:
            self._begin()
        self._open_part(name)
        return self._transaction(name, deliveries)

    def _transaction(self, name: str, deliveries: list[tuple[Batch, list[Any]]]) -> int:
        self._con.execute("BEGIN")
        try:
            rows = sum(ingest.merge(self._con, name, batch, some) for batch, some in deliveries)
            self._con.execute("COMMIT")
        except BaseException:
            try:
                self._con.execute("ROLLBACK")
            except duckdb.Error:
                log.debug("the failed commit has ended the transaction already")
            raise
        return rows

    # --- out ---

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        """Answer a question (see `telemetry.reading.run`). Raises QueryError, StoreError."""

        def ask() -> Result:
            self._asking = cursor = self._con.cursor()
            try:
                return reading.run(cursor, name, parameters)
            finally:
                self._asking = None
                cursor.close()

        return self._read(ask)

    def _read(self, ask: Callable[[], T]) -> T:
        try:
            if self._sound:
                try:
                    with self._reading:
                        return ask()
                except duckdb.Error as e:
                    if not parts.is_invalidated(e):
                        raise
            with self._writing, self._reading:
                self._begin()
                return ask()
        except (duckdb.Error, OSError) as e:
            raise StoreError(f"the store {self.folder} cannot answer: {e}") from e

    def info(self) -> StoreInfo:
        return StoreInfo(
            str(self.folder),
            os.getpid(),
            self._batches,
            self._rows,
            self._refused,
            self._last_ingest_unix_s,
        )

    # --- the life of parts ---

    def days(self) -> dict[str, bool]:
        """Days that have rows, and whether each is closed."""
        return {n: p.file is None for n, p in sorted(self._parts.items()) if n != sql.RUNS_PART}

    def close_day(self, day: str) -> None:
        """Write a day as Parquet, then drop its DuckDB file. Late rows open it again.

        Raises StoreError for a day that the store does not have, and when there is no room: the
        day then stays open.
        """
        if day not in self._parts:
            raise StoreError(f"no {day} in {self.folder}: there are {', '.join(self._parts)}")
        with self._writing, self._reading:
            part = self._parts[day]
            if part.file is None:
                return
            folder = self.folder / day
            try:
                parts.write_parquet(self._con, day, folder)
                self._parts[day] = Part(day, folder=folder)
                self._refresh()
                self._con.execute(sql.detach(day))
                parts.remove_file(part.file)
            except (duckdb.Error, OSError) as e:
                self._sound = False
                raise StoreError(f"{day} in {self.folder} cannot be closed: {e}") from e

    def close_old_days(self, now_unix_s: float) -> list[str]:
        """Close the open days that ended more than the grace ago; returns their names."""
        old = [d for d, closed in self.days().items() if not closed]
        old = [d for d in old if day_start(d) + DAY_S + GRACE_S < now_unix_s]
        for day in old:
            self.close_day(day)
        return old

    def export(self, folder: Path | str) -> Path:
        """Write all parts, closed, to another folder: Parquet that anyone can read.

        Raises StoreError when the folder has something in it.
        """
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise StoreError(f"{target} is not empty: export to a new folder")
        target.mkdir(parents=True, exist_ok=True)
        with self._writing, self._reading:
            for name, part in self._parts.items():
                if part.folder is not None:
                    _copy_files(part.folder, target / name)
                else:
                    parts.write_parquet(self._con, name, target / name)
        return target

    def close(self) -> None:
        """Checkpoint and let go of the folder; a question still running is cut off. Safe twice."""
        if self._reading.acquire(timeout=1.0):
            self._reading.release()
        elif (asking := self._asking) is not None:
            asking.interrupt()
        with self._writing, self._reading:
            self._closed = True
            try:
                self._con.close()
            except duckdb.Error as e:
                log.error("closed without a checkpoint, the write-ahead logs hold the rest: %s", e)
            finally:
                self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, spoiled: tuple[str, Exception] | None = None) -> None:
        """Open every part from its files, on a connection that knows nothing yet; a spoiled one is
        moved aside before. Raises duckdb.Error, OSError, StoreError: then it is to be tried again.
        """
        if self._closed:
            raise StoreError(f"the store {self.folder} is closed")  # another process may have it
        with self._reading:
            self._sound = False
            with contextlib.suppress(duckdb.Error):
                self._con.close()
            if spoiled is not None:
                name, error = spoiled
                file = self.folder / f"{name}.duckdb"
                if file.exists():
                    parts.quarantine(file, error)
            self._con = _connect(self.folder)
            self._parts = {}
            for part in parts.list_parts(self.folder):
                self._take(part)
            self._refresh()
            self._sound = True

    def _open_part(self, name: str) -> None:
        """Have the part attached for writing: as it is, loaded back from Parquet, or new."""
        part = self._parts.get(name)
        if part is not None and part.file is not None:
            return
        file = self.folder / f"{name}.duckdb"
        with self._reading:
            if part is not None:
                log.info("late rows for %s: opening it again", name)
            if not file.exists():
                parts.create(self._con, name, file, part)
            self._take(Part(name, file=file))
            self._refresh()
            if part is not None and part.folder is not None:
                parts.remove_folder(part.folder)

    def _take(self, part: Part) -> None:
        """Add a part to the store; one that cannot be read is moved aside."""
        if part.file is None:
            try:
                parts.check_parquet(self._con, part)
            except duckdb.Error as e:
                if not parts.is_corrupt(e, self.folder):
                    raise StoreError(f"cannot open {part.folder}: {e}") from e
                parts.quarantine(self.folder / part.name, e)
                return
        else:
            try:
                self._attach(part.name, part.file)
            except duckdb.Error as e:
                if not parts.is_corrupt(e, self.folder):
                    raise StoreError(f"cannot open {part.file}: {e}") from e
                parts.quarantine(part.file, e)
                return
            ingest.create_tables(self._con, part.name)
        self._parts[part.name] = part

    def _attach(self, name: str, file: Path) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._con.execute(sql.attach(name, file, read_only=False))
                return
            except duckdb.Error as e:
                if not parts.is_locked(e):
                    raise
                if time.monotonic() > deadline:
                    raise StoreBusy(
                        f"{file} is held open by another process: close what reads it. "
                        f"({str(e).splitlines()[0]})"
                    ) from None
                time.sleep(0.05)

    def _refresh(self) -> None:
        parts.define_views(self._con, self._parts.values())


def _connect(folder: Path) -> duckdb.DuckDBPyConnection:
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    con = duckdb.connect(":memory:", config={"memory_limit": _MEMORY_LIMIT, "threads": threads})
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"SET temp_directory = {sql.literal(folder / '.spill')}")
    return con


def _copy_files(source: Path, target: Path) -> None:
    target.mkdir()
    for file in sorted(source.glob("*.parquet")):
        (target / file.name).write_bytes(file.read_bytes())
