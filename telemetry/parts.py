"""How a store lies in its folder: parts, open or closed. Owns names, moves and Parquet; no merge.

A part is a UTC day, or `runs`. Open, it is `<part>.duckdb`; closed, it is a folder `<part>/` with
one Parquet file a table that has rows. Where both stand, a close or a re-opening was cut short and
the DuckDB file is the one to trust: a close removes it last, a re-opening puts it there whole.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry import ingest, sql
from telemetry.instants import DAY_S, day_start
from telemetry.tables import TABLES, Table

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

_SIGNS_OF_CORRUPTION = ("not a valid DuckDB", "orrupt", "not read enough bytes", "Footer length")


@dataclass(frozen=True, slots=True)
class Part:
    """One part as it lies on disk: exactly one of `file` (open) and `folder` (closed) is set."""

    name: str
    file: Path | None = None
    folder: Path | None = None

    def parquet(self, table: Table) -> Path | None:
        """The table's Parquet file, if the part is closed and has one."""
        if self.folder is None:
            return None
        path = self.folder / f"{table.name}.parquet"
        return path if path.is_file() else None

    def touches(self, start_s: float, end_s: float) -> bool:
        """Whether rows of [start_s, end_s) can be in it. The runs are in every window."""
        if self.name == sql.RUNS_PART:
            return True
        first = day_start(self.name)
        return first < end_s and start_s < first + DAY_S


def list_parts(folder: Path) -> list[Part]:
    """The parts in a folder, by name. Other files are not the store's business."""
    parts: dict[str, Part] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and sql.is_part(path.name):
            parts.setdefault(path.name, Part(path.name, folder=path))
        elif path.suffix == ".duckdb" and sql.is_part(path.stem):
            parts[path.stem] = Part(path.stem, file=path)
    return [parts[name] for name in sorted(parts)]


def is_corrupt(error: Exception) -> bool:
    """Whether DuckDB's complaint is about what is in the file, not about reaching it."""
    text = str(error)
    return any(sign in text for sign in _SIGNS_OF_CORRUPTION)


def is_locked(error: Exception) -> bool:
    text = str(error)
    return "Could not set lock" in text or "Unique file handle conflict" in text


def quarantine(path: Path, error: Exception) -> Path:
    """Move a part that cannot be read aside, its write-ahead log with it; returns where to."""
    number = 1
    while (aside := path.with_name(f"{path.name}.quarantined-{number}")).exists():
        number += 1
    path.rename(aside)
    wal = path.with_name(f"{path.name}.wal")
    if wal.exists():
        wal.rename(aside.with_name(f"{aside.name}.wal"))
    log.error("%s cannot be read and was moved to %s: %s", path, aside.name, error)
    return aside


def define_views(con: duckdb.DuckDBPyConnection, parts: Iterable[Part]) -> None:
    """Give the connection one view a table over the parts; open ones are attached already."""
    listed = list(parts)
    for table in TABLES.values():
        here = [p for p in listed if table in sql.tables_of(p.name)]
        files = [f for p in here if (f := p.parquet(table)) is not None]
        con.execute(sql.view(table, [p.name for p in here if p.file is not None], files))


def write_parquet(con: duckdb.DuckDBPyConnection, name: str, folder: Path) -> None:
    """Write an attached part as the closed part `folder`: whole, or not at all."""
    draft = folder.with_name(f".{folder.name}.closing")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for table in sql.tables_of(name):
        [(rows,)] = con.execute(sql.count(name, table)).fetchall()
        if rows:
            target = draft / f"{table.name}.parquet"
            con.execute(sql.copy_out(name, table, target)).fetchall()
            _sync(target)
    _sync(draft)
    if folder.exists():
        shutil.rmtree(folder)
    draft.rename(folder)
    _sync(folder.parent)


def reopen(con: duckdb.DuckDBPyConnection, part: Part, file: Path) -> None:
    """Load a closed part back into `file`, whole, or not at all. Leaves nothing attached."""
    draft = file.with_name(f".{file.name}.opening")
    remove_file(draft)
    con.execute(sql.attach(part.name, draft, read_only=False))
    try:
        ingest.create_tables(con, part.name)
        for table in sql.tables_of(part.name):
            source = part.parquet(table)
            if source is not None:
                con.execute(sql.copy_in(part.name, table, source))
    finally:
        con.execute(sql.detach(part.name))
    draft.rename(file)


def check_parquet(con: duckdb.DuckDBPyConnection, part: Part) -> None:
    """Raises duckdb.Error when a Parquet file of a closed part cannot be read."""
    for table in sql.tables_of(part.name):
        file = part.parquet(table)
        if file is not None:
            con.execute(sql.count_parquet(file)).fetchall()


def remove_folder(folder: Path) -> None:
    """Remove a closed part."""
    shutil.rmtree(folder)


def remove_file(file: Path) -> None:
    """Remove a DuckDB file and its write-ahead log, if there."""
    file.unlink(missing_ok=True)
    file.with_name(f"{file.name}.wal").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
