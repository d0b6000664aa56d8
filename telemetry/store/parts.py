"""How a store lies in its folder: parts, open or closed. Owns names, moves and Parquet; no merge.

A part is a UTC day, or `runs`. Open, it is `<part>.duckdb`; closed, it is a folder `<part>/` with
one Parquet file a table that has rows. Where both stand, a close or a re-opening was cut short and
the DuckDB file is the one to trust: a close removes it last, a re-opening puts it there whole.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import StoreError
from telemetry.instants import DAY_S, day_start
from telemetry.store import migrations, owner, sql, unreadable
from telemetry.tables import TABLES, Table

if TYPE_CHECKING:
    import duckdb

_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")  # DuckDB's way to name a file
_DRAFTS = (".closing", ".opening", ".opening.wal", ".backup")
Select = Callable[[Table, str], str]  # (table, row source) -> the row source to write


@dataclass(frozen=True, slots=True)
class Part:
    """One part as it lies on disk: exactly one of `file` (open) and `folder` (closed) is set."""

    name: str
    file: Path | None = None
    folder: Path | None = None
    without: frozenset[str] = frozenset()  # tables that a reader leaves out: they are damaged

    def parquet(self, table: Table) -> Path | None:
        """The table's Parquet file, if the part is closed and has one."""
        if self.folder is None or table.name in self.without:
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


def check_outside(target: Path) -> None:
    """Raises StoreError for a path right in a store's folder, or of a file of one of its parts."""
    folder = Path(os.path.realpath(target)).parent
    name = target.name.removesuffix(".wal")
    is_file = name.endswith(".duckdb") and sql.is_part(name.removesuffix(".duckdb"))
    is_table = sql.is_part(folder.name) and target.is_file() and target.stem in TABLES
    if is_file or is_table or (folder / owner.LOCK).exists():
        raise StoreError(f"{target} is in a store's folder: choose a path outside of it")


def is_corrupt(error: Exception, folder: Path) -> bool:
    """Whether DuckDB's complaint is about what is in a file of the folder, not about reaching it.

    A healthy file must never be moved aside for what its folder is called: only the words around
    the path count, and of them the first line (the others repeat the statement).
    """
    # The first line first: an apostrophe of DuckDB's own is no quote that the statement closes.
    text = _QUOTED.sub("", str(error).replace(f"{folder}/", "").partition("\n")[0])
    return any(sign in text for sign in unreadable.SIGNS)


def is_invalidated(error: Exception) -> bool:
    """Whether DuckDB refuses a file that is sound until it is opened anew: a checkpoint failed,
    as it does when the disk is full."""
    return "has been invalidated" in str(error)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_locked(error: Exception) -> bool:
    text = str(error)
    return "Could not set lock" in text or "Unique file handle conflict" in text


def define_views(
    con: duckdb.DuckDBPyConnection,
    parts: Iterable[Part],
    tables: Container[str] | None = None,
) -> None:
    """Give the connection one view a table over the parts; open ones are attached already.
    `tables`: only of these, None = of all."""
    listed = list(parts)
    # A file of an older version, opened only to read, may lack a table.
    have = {p.name: migrations.tables_in(con, p.name) for p in listed if p.file is not None}
    for table in TABLES.values():
        if tables is not None and table.name not in tables:
            continue
        here = [p for p in listed if table in sql.tables_of(p.name)]
        files = [f for p in here if (f := p.parquet(table)) is not None]
        attached = [
            p.name
            for p in here
            if table.name in have.get(p.name, ()) and table.name not in p.without
        ]
        con.execute(sql.view(table, attached, files))


def write_parquet(
    con: duckdb.DuckDBPyConnection,
    name: str,
    folder: Path,
    select: Select | None = None,
    leave_out: Iterable[str] = (),
) -> list[str]:
    """Write an attached part as the closed part `folder`: whole, or not at all. Returns the tables
    that have rows.

    `select` says what of each table's rows is to be written: all of them without it. Tables to
    `leave_out` are not even looked at.
    """
    draft = folder.with_name(f".{folder.name}.closing")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    written = []
    for table in sql.tables_of(name):
        if table.name in leave_out:
            continue
        source = sql.in_part(name, table.name)
        if select is not None:
            source = select(table, source)
        if write_table(con, source, table, draft / f"{table.name}.parquet"):
            written.append(table.name)
    migrations.write_manifest(draft, written)
    sync(draft)
    # From here on the folder may stand beside the file; the file is the one to trust.
    if folder.exists():
        shutil.rmtree(folder)
    draft.rename(folder)
    sync(folder.parent)
    return written


def write_table(con: duckdb.DuckDBPyConnection, source: str, table: Table, target: Path) -> int:
    """Write a row source as one Parquet file, if it has rows; returns how many."""
    [(rows,)] = con.execute(sql.count(source)).fetchall()
    if rows:
        con.execute(sql.copy_out(source, table, target)).fetchall()
        sync(target)
    return int(rows)


def drop_tables(folder: Path, names: Iterable[str]) -> None:
    """Take tables out of a closed part; one that has none left is removed. Cut short, what is left
    can be dropped again."""
    gone = set(names)
    left = {p.stem for p in folder.glob("*.parquet")} - gone
    if not left:
        remove_folder(folder)
        return
    migrations.write_manifest(folder, left)
    for name in gone:
        (folder / f"{name}.parquet").unlink(missing_ok=True)


def create(con: duckdb.DuckDBPyConnection, name: str, file: Path, closed: Part | None) -> None:
    """Make the file of a part, empty or loaded back from the `closed` one: whole, or not at all.
    Leaves nothing attached. A file cut short by a full disk never stands under the part's name."""
    draft = file.with_name(f".{file.name}.opening")
    remove_file(draft)
    try:
        con.execute(sql.attach(name, draft, read_only=False))
        try:
            migrations.bring_forward(con, name, draft)
            for table in sql.tables_of(name):
                source = closed.parquet(table) if closed is not None else None
                if source is not None:
                    con.execute(sql.copy_in(name, table, source))
        finally:
            con.execute(sql.detach(name))  # with a checkpoint: all of it is in the one file
        sync(draft)
        draft.rename(file)
        sync(file.parent)
    finally:
        remove_file(draft)


def remove_drafts(folder: Path) -> None:
    """Remove what a close or an opening that was cut short has left: it only takes room."""
    for path in folder.glob(".*"):
        if path.name.endswith(_DRAFTS):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in folder.glob("*/.*.draft"):
        path.unlink()


def check_parquet(con: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Raises duckdb.Error when a Parquet file cannot be read, as far as its footer tells."""
    con.execute(sql.count(sql.parquet(file))).fetchall()


def damaged(
    con: duckdb.DuckDBPyConnection, part: Part, folder: Path
) -> list[tuple[Table, Path, Exception]]:
    """Read every value of a part: (table, file, DuckDB's words) of what is damaged inside."""
    import duckdb

    found: list[tuple[Table, Path, Exception]] = []
    for table in sql.tables_of(part.name):
        file = part.parquet(table) if part.file is None else part.file
        if file is None:
            continue
        source = sql.in_part(part.name, table.name) if part.file else sql.parquet(file)
        try:
            con.execute(sql.read_through(source)).fetchall()
        except duckdb.Error as e:
            if is_corrupt(e, folder):
                found.append((table, file, e))
    return found


def remove_folder(folder: Path) -> None:
    """Remove a closed part."""
    shutil.rmtree(folder)


def remove_file(file: Path) -> None:
    """Remove a DuckDB file and its write-ahead log, if there."""
    file.unlink(missing_ok=True)
    file.with_name(f"{file.name}.wal").unlink(missing_ok=True)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
