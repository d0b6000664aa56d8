"""How a store lies in its folder: parts, open or closed. Owns names, moves and Parquet; no merge.

A part is a UTC day, or `runs`. Open, it is `<part>.duckdb`; closed, it is a folder `<part>/` with
one Parquet file a table that has rows. Where both stand, a close or a re-opening was cut short and
the DuckDB file is the one to trust: a close removes it last, a re-opening puts it there whole.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry import ingest, sql
from telemetry.errors import StoreError
from telemetry.instants import DAY_S, day_start
from telemetry.tables import TABLES, Table

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

_SIGNS_OF_CORRUPTION = (
    "not a valid DuckDB",
    "orrupt",
    "not read enough bytes",
    # ... and of Parquet
    "Footer length",
    "No magic bytes",
    "too small to be a Parquet",
    "TProtocolException",
)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")  # DuckDB's way to name a file
_DRAFTS = (".closing", ".opening", ".opening.wal")


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


def check_path(folder: Path) -> None:
    """Raises StoreError for a folder whose name DuckDB misreads: it would lose its files."""
    name = str(folder)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise StoreError(f"{name!a} is not UTF-8: choose another folder for the store") from None
    if "?" in name:
        raise StoreError(
            f"{name!r} has a '?', which DuckDB takes for the end of a file's name: "
            "choose another folder for the store"
        )
    if any(part.find("=") > 0 for part in folder.parts):
        raise StoreError(
            f"{name!r} has a part of the form name=value, which DuckDB takes for a column of every "
            "closed day in it: choose another folder for the store"
        )


def is_corrupt(error: Exception, folder: Path) -> bool:
    """Whether DuckDB's complaint is about what is in a file of the folder, not about reaching it.

    A healthy file must never be moved aside for what its folder is called: only the words around
    the path count, and of them the first line (the others repeat the statement).
    """
    text = _QUOTED.sub("", str(error).replace(f"{folder}/", "")).partition("\n")[0]
    return any(sign in text for sign in _SIGNS_OF_CORRUPTION)


def is_invalidated(error: Exception) -> bool:
    """Whether DuckDB refuses a file that is sound until it is opened anew: a checkpoint failed,
    as it does when the disk is full."""
    return "has been invalidated" in str(error)


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
    # From here on the folder may stand beside the file; the file is the one to trust.
    if folder.exists():
        shutil.rmtree(folder)
    draft.rename(folder)
    _sync(folder.parent)


def create(con: duckdb.DuckDBPyConnection, name: str, file: Path, closed: Part | None) -> None:
    """Make the file of a part, empty or loaded back from the `closed` one: whole, or not at all.
    Leaves nothing attached. A file cut short by a full disk never stands under the part's name."""
    draft = file.with_name(f".{file.name}.opening")
    remove_file(draft)
    try:
        con.execute(sql.attach(name, draft, read_only=False))
        try:
            ingest.create_tables(con, name)
            for table in sql.tables_of(name):
                source = closed.parquet(table) if closed is not None else None
                if source is not None:
                    con.execute(sql.copy_in(name, table, source))
        finally:
            con.execute(sql.detach(name))  # with a checkpoint: all of it is in the one file
        _sync(draft)
        draft.rename(file)
        _sync(file.parent)
    finally:
        remove_file(draft)


def remove_drafts(folder: Path) -> None:
    """Remove what a close or an opening that was cut short has left: it only takes room."""
    for path in folder.glob(".*"):
        if path.name.endswith(_DRAFTS):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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
