"""The parts of a store as one connection has them: opened, closed, moved aside. Owns no locks.

The caller sees to it that nobody writes, nor asks, while a part changes its form. Whatever a
connection failed at, the files are the truth: `begin` starts again from them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path

import duckdb

from telemetry.errors import StoreBusy, StoreError
from telemetry.records import EventRecord
from telemetry.store import migrations, parts, quarantine, sql, unreadable
from telemetry.store.parts import Part, Select

log = logging.getLogger(__name__)

_MEMORY_LIMIT = "1GB"
_MOST_THREADS = 4  # it shares the machine with what it watches
# A reader opens a day file for milliseconds; the writer outwaits it.
_PATIENCE_S = 5.0
STORE = "store"  # the engine, run and pool of events that are the store's own


class Shelf:
    """One folder's parts on one connection. `news` are the store's own events, not yet written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.con = connect(folder)
        self._fresh = True
        self.parts: dict[str, Part] = {}
        self.sound = False  # the connection has every part that is in the folder
        self.news: list[EventRecord] = []
        self._told = 0

    def begin(self) -> None:
        """Open every part from its files, on a connection that knows nothing yet.

        Raises duckdb.Error, OSError, StoreError: then it is to be tried again.
        """
        self.sound = False
        if not self._fresh:
            with contextlib.suppress(duckdb.Error):
                self.con.close()
            self.con = connect(self.folder)
        self._fresh = False
        self.parts = {}
        for part in parts.list_parts(self.folder):
            self._take(part)
        self.refresh()
        self.sound = True

    def refresh(self) -> None:
        parts.define_views(self.con, self.parts.values())

    def is_open(self, name: str) -> bool:
        part = self.parts.get(name)
        return part is not None and part.file is not None

    def open_part(self, name: str) -> None:
        """Have the part attached for writing: as it is, loaded back from Parquet, or new."""
        if self.is_open(name):
            return
        part = self.parts.get(name)
        file = self.folder / f"{name}.duckdb"
        if part is not None:
            log.info("late rows for %s: opening it again", name)
        if not file.exists():
            parts.create(self.con, name, file, part)
        self._take(Part(name, file=file))
        self.refresh()
        if part is not None and part.folder is not None:
            parts.remove_folder(part.folder)

    def close_part(self, name: str, select: Select | None = None) -> None:
        """Write an open part as Parquet, then drop its DuckDB file. With `select`, only what that
        leaves of it. Cut short anywhere, the file stands and is the one to trust."""
        part = self.parts[name]
        if part.file is None:
            return
        folder = self.folder / name
        parts.write_parquet(self.con, name, folder, select)
        self.parts[name] = Part(name, folder=folder)
        self.refresh()
        self.con.execute(sql.detach(name))
        parts.remove_file(part.file)
        if not any(folder.glob("*.parquet")):
            parts.remove_folder(folder)
            del self.parts[name]

    def move_aside(
        self, file: Path, part: str, table: str | None, error: Exception, lacks: str = ""
    ) -> None:
        """Quarantine a file, loudly. Begin again after it."""
        size = file.stat().st_size
        lacks = lacks or table or quarantine.EVERYTHING
        aside = quarantine.move(self.folder, file, part, table, lacks, error)
        words = unreadable.damage(error)
        log.error(
            "CORRUPT: %s cannot be read (%s). It was moved to %s; the store goes on without it, "
            "and answers about %s lack %s. Bring the file back from a backup, or remove it "
            "from %s/ to accept the loss.",
            file,
            words,
            aside.path,
            part,
            lacks,
            quarantine.FOLDER,
        )
        self.tell(
            "quarantine",
            f"{part}: {lacks} cannot be read, moved to {aside.path.name}: {words}",
            size,
        )

    def move_damaged_aside(self) -> bool:
        """Read everything through and quarantine what is damaged inside; whether there was any."""
        found = [(p, parts.damaged(self.con, p, self.folder)) for p in self.parts.values()]
        for part, damaged in found:
            for table, file, error in damaged:
                if part.file is None:
                    self.move_aside(file, part.name, table.name, error)
            if part.file is not None and damaged:
                self.rescue(part.name, damaged[0][2])
        self.sound = False
        return any(damaged for _, damaged in found)

    def rescue(self, name: str, error: Exception) -> None:
        """Quarantine an open part's file; tables of it that can still be read stay, as Parquet."""
        file, part = self.folder / f"{name}.duckdb", self.parts.get(name)
        if not file.exists():
            return
        bad = parts.damaged(self.con, part, self.folder) if part is not None else []
        lacks = ""
        if bad:
            lost = [table.name for table, _, _ in bad]
            try:
                folder = self.folder / name
                if not parts.write_parquet(self.con, name, folder, leave_out=lost):
                    parts.remove_folder(folder)
                lacks = ", ".join(lost)
            except duckdb.Error as e:
                log.error("nothing of %s could be saved: %s", file, unreadable.damage(e))
        with contextlib.suppress(duckdb.Error):
            self.con.execute(sql.detach(name))  # with it goes the lock on the file
        self.move_aside(file, name, None, error, lacks)

    def tell(self, kind: str, detail: str, value: float | None = None) -> None:
        """Note an event of the store's own; it is written when the store next can."""
        self._told += 1
        now = time.time()
        self.news.append(
            EventRecord(
                engine=STORE,
                run_id=STORE,
                pool=STORE,
                event_id=f"{kind}-{now:.6f}-{self._told}",
                at=now,
                kind=kind,
                detail=detail,
                value=value,
            )
        )

    def _take(self, part: Part) -> None:
        """Add a part; what of it cannot be read is moved aside."""
        if part.file is None:
            self._take_closed(part)
        else:
            self._take_open(part.name, part.file)

    def _take_closed(self, part: Part) -> None:
        assert part.folder is not None
        migrations.manifest_tables(part.folder)
        bad = []
        for table in sql.tables_of(part.name):
            file = part.parquet(table)
            if file is None:
                continue
            try:
                parts.check_parquet(self.con, file)
            except duckdb.Error as e:
                if not parts.is_corrupt(e, self.folder):
                    raise StoreError(unreadable.sentence(file, e)) from e
                bad.append(table.name)
                self.move_aside(file, part.name, table.name, e)
        if bad:
            parts.drop_tables(part.folder, bad)
        if part.folder.exists():
            self.parts[part.name] = part

    def _take_open(self, name: str, file: Path) -> None:
        try:
            self._attach(name, file)
            migrations.bring_forward(self.con, name, file)
        except duckdb.Error as e:
            if not parts.is_corrupt(e, self.folder):
                raise StoreError(unreadable.sentence(file, e)) from e
            with contextlib.suppress(duckdb.Error):
                self.con.execute(sql.detach(name))
            self.move_aside(file, name, None, e)
            return
        self.parts[name] = Part(name, file=file)

    def _attach(self, name: str, file: Path) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self.con.execute(sql.attach(name, file, read_only=False))
                return
            except duckdb.Error as e:
                if not parts.is_locked(e):
                    raise
                if time.monotonic() > deadline:
                    raise StoreBusy(
                        f"{file} is held open by another process: close what reads it. "
                        f"({parts.first_line(e)})"
                    ) from None
                time.sleep(0.05)


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    con = duckdb.connect(":memory:", config={"memory_limit": _MEMORY_LIMIT, "threads": threads})
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"SET temp_directory = {sql.literal(folder / '.spill')}")
    return con
