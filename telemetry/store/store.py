"""The store: a folder of parts, one writer. Owns transactions and the life of parts; no sockets.

OTLP bytes come in, each request one transaction a touched part, and are acknowledged by returning
after the commit. Any thread may call; writers take turns, readers read side by side.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from telemetry.ask import reading, windowed
from telemetry.ask.reading import Result
from telemetry.ask.turns import Turns
from telemetry.conventions import Emitter
from telemetry.errors import StoreError
from telemetry.instants import DAY_S, day_start
from telemetry.otlp.arriving import Arriving, Work
from telemetry.otlp.decode import Decoded, decode_logs, decode_metrics
from telemetry.records import Batch
from telemetry.store import ingest, migrations, owner, parts, quarantine, sql, unreadable
from telemetry.store.late import LateDays
from telemetry.store.receipts import Receipt, StoreInfo
from telemetry.store.shelf import STORE, Shelf

__all__ = ["Receipt", "Store", "StoreInfo"]

log = logging.getLogger(__name__)
T = TypeVar("T")

# A day is closed when no emitter can be expected to deliver for it any more.
GRACE_S = 3600.0


class Store:
    """One folder, opened for writing. Use `Store.open`."""

    def __init__(
        self, folder: Path, lock: owner.Lock, clock: Callable[[], float] | None = None
    ) -> None:
        self.folder = folder
        self._lock = lock
        self._writing = threading.RLock()
        self._reading = Turns(self._cut_short_sql)
        self._asking: dict[duckdb.DuckDBPyConnection, str] = {}  # cursor -> question
        self._batches = self._rows = self._refused = 0
        self._last_ingest_unix_s = 0.0
        self._closed = False
        self._late = LateDays()
        self._unknown = self._repeated = self._baselines = 0
        self._shelf = Shelf(folder)
        self._arriving = Arriving(folder, self._select, clock)

    @classmethod
    def open(cls, folder: Path | str, clock: Callable[[], float] | None = None) -> Store:
        """Open, or create, the store in a folder. Raises StoreBusy when another process has it,
        StoreError when the folder cannot be a store or cannot be reached.

        With a `clock` (unix seconds) rows more than a day ahead of it, or of days that are kept no
        more, are refused. Without one any date will do.

        A file that cannot be read is moved into `quarantine/`, loudly; the rest opens.
        """
        folder = Path(folder)
        parts.check_path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = owner.Lock(folder)
        except OSError as e:
            raise StoreError(f"cannot open a store in {folder}: {e.strerror}") from None
        owner.withdraw(folder)  # a killed owner's address; nobody answers there any more
        store = cls(folder, lock, clock)
        try:
            parts.remove_drafts(folder)
            store._begin()
        except (duckdb.Error, OSError) as e:
            store.close()
            raise StoreError(f"cannot open the store in {folder}: {unreadable.in_short(e)}") from e
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
            plan = self._arriving.plan(decoded)
            rows, told = 0, list(plan.batches)
            for name, work in plan.parts.items():
                merged, summed = self._commit(name, work)
                rows += merged
                told += summed
            refused, reasons = plan.tally.refused, tuple(plan.tally.reasons)
            self._batches += 1
            self._rows += rows
            self._refused += refused
            self._unknown += plan.kept
            self._repeated += plan.repeated
            self._baselines += plan.baselines
            self._last_ingest_unix_s = time.time()
        if refused:
            log.warning("refused %d points: %s", refused, "; ".join(reasons))
        return Receipt(
            rows,
            refused,
            reasons,
            plan.accepted,
            plan.kept,
            plan.repeated,
            plan.baselines,
            Decoded(tuple(told), refused, reasons, accepted=plan.accepted),
        )

    def _select(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of a SELECT over the views, for who writes."""
        return self._read(lambda: self._shelf.con.execute(text, parameters).fetchall())

    def _commit(self, name: str, work: Work) -> tuple[int, list[Batch]]:
        """Whatever a connection failed at, the files are the truth: begin again from them, once."""
        try:
            return self._write(name, work)
        except (duckdb.Error, OSError) as e:
            log.debug("%s: %s; opening the files again", name, e)
            spoiled = e if parts.is_corrupt(e, self.folder) else None
        try:
            if spoiled is not None:
                with self._reading:
                    self._shelf.rescue(name, spoiled)
            self._begin()
            return self._write(name, work)
        except (duckdb.Error, OSError) as e:
            self._shelf.sound = False
            raise StoreError(f"{name} in {self.folder}: {e}") from e

    def _write(self, name: str, work: Work) -> tuple[int, list[Batch]]:
        if not self._shelf.sound:
            self._begin()
        is_open = self._shelf.is_open(name)
        self._late.came(name, was_closed=not is_open and name in self._shelf.parts)
        if not is_open:
            with self._reading:
                self._shelf.open_part(name)
        return self._transaction(name, work)

    def _transaction(self, name: str, work: Work) -> tuple[int, list[Batch]]:
        """Returns how many rows were merged, and the batches of added rows as they now stand."""
        con = self._shelf.con
        con.execute("BEGIN")
        try:
            rows = sum(ingest.merge(con, name, batch, some) for batch, some in work.merges)
            summed = [
                replace(batch, minutes=tuple(ingest.add(con, name, batch, some)))
                for batch, some in work.adds
            ]
            con.execute("COMMIT")
        except BaseException:
            try:
                con.execute("ROLLBACK")
            except duckdb.Error:
                log.debug("the failed commit has ended the transaction already")
            raise
        return rows + sum(len(b.minutes) for b in summed), summed

    # --- out ---

    def run(self, name: str, parameters: dict[str, Any]) -> Result:
        """Answer a question (see `telemetry.ask.reading.run`). Raises QueryError, StoreError."""

        def ask() -> Result:
            cursor = self._shelf.con.cursor()
            self._asking[cursor] = name
            try:
                # Looked up while no part can change its form.
                near = windowed.touched(self._shelf.parts.values(), name, parameters)
                return reading.run(cursor, name, parameters, lambda text: windowed.over(text, near))
            finally:
                del self._asking[cursor]
                cursor.close()

        answer = self._read(ask)
        lacks = quarantine.partial(self.folder, *reading.window(parameters))
        return replace(answer, partial=lacks) if lacks else answer

    def _read(self, ask: Callable[[], T]) -> T:
        try:
            spoiled = False
            if self._shelf.sound:
                try:
                    with self._reading.shared():
                        return ask()
                except duckdb.Error as e:
                    spoiled = parts.is_corrupt(e, self.folder)
                    if not spoiled and not parts.is_invalidated(e):
                        raise
            with self._writing, self._reading:
                if spoiled and not self._shelf.move_damaged_aside():
                    log.debug("nothing damaged was found; opening the files again")
                self._begin()
                return ask()
        except (duckdb.Error, OSError) as e:
            raise StoreError(
                f"the store {self.folder} cannot answer: {unreadable.in_short(e)}"
            ) from e

    def _cut_short_sql(self) -> None:
        """A person's own questions may take long; they give way to who changes the parts."""
        self._interrupt([c for c, name in list(self._asking.items()) if name == reading.SQL])

    def _interrupt(self, cursors: list[duckdb.DuckDBPyConnection]) -> None:
        for cursor in cursors:
            with suppress(duckdb.Error):  # its question has ended meanwhile
                cursor.interrupt()

    def info(self) -> StoreInfo:
        return StoreInfo(
            str(self.folder),
            os.getpid(),
            self._batches,
            self._rows,
            self._refused,
            self._last_ingest_unix_s,
            self._unknown,
            self._repeated,
            self._baselines,
        )

    # --- the life of parts ---

    def days(self) -> dict[str, bool]:
        """Days that have rows, and whether each is closed."""
        listed = sorted(self._shelf.parts.items())
        return {n: p.file is None for n, p in listed if n != sql.RUNS_PART}

    def close_day(self, day: str) -> None:
        """Write a day as Parquet, then drop its DuckDB file. Late rows open it again.

        Raises StoreError for a day that the store does not have, and when there is no room: the
        day then stays open.
        """
        if day not in self._shelf.parts:
            there = ", ".join(self._shelf.parts)
            raise StoreError(f"no {day} in {self.folder}: there are {there}")
        with self.alone(f"{day} in {self.folder} cannot be closed") as shelf:
            shelf.close_part(day)
            self._late.closed(day)

    def close_old_days(self, now_unix_s: float) -> list[str]:
        """Close the open days that ended more than the grace ago; returns their names. A day that
        late rows have opened again waits until none have come for a while."""
        old = [d for d, closed in self.days().items() if not closed]
        old = [d for d in old if day_start(d) + DAY_S + GRACE_S < now_unix_s]
        with self._writing:
            old = [d for d in old if not self._late.waits(d, now_unix_s)]
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
        with self.alone(f"{self.folder} cannot be exported to {target}") as shelf:
            for name, part in shelf.parts.items():
                if part.folder is not None:
                    _copy_files(part.folder, target / name)
                else:
                    parts.write_parquet(shelf.con, name, target / name)
        return target

    # --- upkeep ---

    @contextmanager
    def alone(self, failing: str) -> Iterator[Shelf]:
        """The parts, while nobody writes nor asks. What DuckDB or the disk refuses meanwhile is
        raised as StoreError, beginning with `failing`."""
        with self._writing, self._reading, self._upkeep(failing) as shelf:
            yield shelf

    @contextmanager
    def still(self, failing: str) -> Iterator[Shelf]:
        """The parts, while nobody writes; questions go on. Nothing on disk may change its form."""
        with self._writing, self._upkeep(failing) as shelf:
            yield shelf

    @contextmanager
    def _upkeep(self, failing: str) -> Iterator[Shelf]:
        if self._closed:
            raise StoreError(f"the store {self.folder} is closed")  # another process may have it
        try:
            if not self._shelf.sound:
                self._begin()
            yield self._shelf
        except (duckdb.Error, OSError) as e:
            self._shelf.sound = False
            raise StoreError(f"{failing}: {e}") from e
        self._write_news()

    def close(self) -> None:
        """Checkpoint and let go of the folder; a question still running is cut off. Safe twice."""
        while not self._reading.acquire(timeout=1.0):
            self._interrupt(list(self._asking))
        self._reading.release()
        with self._writing, self._reading:
            self._closed = True
            try:
                self._shelf.con.close()
            except duckdb.Error as e:
                log.error("closed without a checkpoint, the write-ahead logs hold the rest: %s", e)
            finally:
                self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Open every part from its files. Raises duckdb.Error, OSError, StoreError."""
        if self._closed:
            raise StoreError(f"the store {self.folder} is closed")  # another process may have it
        with self._reading:
            self._shelf.begin()
            self._write_news()

    def _write_news(self) -> None:
        """Write the store's own events; where there is no room they wait for the next time."""
        news = tuple(self._shelf.news)
        if not news:
            return
        told = Batch(STORE, STORE, STORE, Emitter.WORKER, True, 1, logs=news)
        try:
            for name, deliveries in ingest.by_part([told]).items():
                with self._reading:
                    self._shelf.open_part(name)
                self._transaction(name, Work(merges=deliveries))
        except (duckdb.Error, OSError, StoreError) as e:
            log.error("the store's own events wait to be written: %s", e)
            return
        del self._shelf.news[: len(news)]


def _copy_files(source: Path, target: Path) -> None:
    target.mkdir()
    for file in sorted((*source.glob("*.parquet"), *source.glob(migrations.MANIFEST))):
        (target / file.name).write_bytes(file.read_bytes())
