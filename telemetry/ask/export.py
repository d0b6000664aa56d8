"""Writes a window of a store as Parquet, CSV or a Perfetto trace. Owns the files; asks a source.

What is written is written beside its place and renamed into it at the end: whole, or not there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask import pacing, perfetto
from telemetry.ask.reading import Result
from telemetry.errors import StoreError
from telemetry.source import Source
from telemetry.store import parts, sql
from telemetry.tables import TABLES, Table

if TYPE_CHECKING:
    import duckdb

PARQUET, CSV, PERFETTO = FORMATS = ("parquet", "csv", "perfetto")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_MEMORY_LIMIT = "512MB"
_MICROSECOND_S = 2e-6  # rounded to more than none at any date


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written where: rows by table (a table without rows has no file), bytes in all."""

    path: Path
    rows: dict[str, int]
    bytes: int
    partial: tuple[str, ...] = ()  # what the store could not read


def export(
    source: Source,
    form: str,
    target: Path,
    *,
    start: float,
    end: float,
    tables: Sequence[str] = (),
    force: bool = False,
) -> Exported:
    """Write the rows of [start, end); infinite bounds are allowed.

    A trace is one file; of one named table, Parquet and CSV are one file too; of several, or all,
    `target` is a folder with a file a table that has rows. Rows that belong to a run (`engine_run`,
    `adapter`) are written whatever the window. Raises StoreError when the target is there and
    `force` is not given, or is a folder with other things in it, and when there is no room.
    """
    unknown = [t for t in tables if t not in TABLES]
    if unknown:
        raise StoreError(f"no table {unknown[0]!r}: there are {', '.join(TABLES)}")
    if form == PERFETTO and tables:
        raise StoreError(f"a trace is made of {', '.join(perfetto.TABLES)}: leave out --table")
    if form not in FORMATS:
        raise StoreError(f"{form!r} is no format: use {', '.join(FORMATS)}")
    chosen = tuple(dict.fromkeys(tables)) or tuple(TABLES)
    with placed(target, force) as draft:
        known, partial = pacing.extent(source, start, end)
        window = _Window(source, known, start, end)
        if form == PERFETTO:
            rows = _write_trace(window, draft)
        else:
            rows = _write_tables(window, form, draft, chosen, alone=len(tables) == 1)
        size = written_bytes(draft)
    return Exported(target, rows, size, partial)


@contextmanager
def placed(target: Path, force: bool) -> Iterator[Path]:
    """A path beside `target` to write to; what is there at the end takes the target's place, unless
    something was raised. Raises StoreError as `export` does."""
    _check_target(target, force)
    draft = target.with_name(f".{target.name}.exporting-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(draft)
        yield draft
        _sync(draft)
        _check_target(target, force)
        _replace(draft, target)
    except OSError as e:
        raise StoreError(f"cannot write {target}: {e.strerror or e}") from e
    finally:
        _remove(draft)
        _remove(_spill(draft))


def written_bytes(path: Path) -> int:
    """What a file, or the files of a folder, hold."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(f.stat().st_size for f in files)


@dataclass(frozen=True, slots=True)
class _Window:
    source: Source
    known: dict[str, tuple[int, float, float]]
    start: float
    end: float

    def span(self, table: str) -> tuple[float, float]:
        """The part of the window in which the table has rows."""
        if sql.instant_column(TABLES[table]) is None:
            return self.start, self.end
        if table not in self.known:
            return self.start, self.start
        _, first, last = self.known[table]
        # `last` has a row: it belongs to the window, whose end does not.
        return max(self.start, first), min(self.end, last + _MICROSECOND_S)


def _write_trace(window: _Window, draft: Path) -> dict[str, int]:
    trace = perfetto.Trace()
    rows = dict.fromkeys(perfetto.TABLES, 0)
    with draft.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ms", "traceEvents": [')
        comma = "\n"
        for table in perfetto.TABLES:
            for some in pacing.pieces(window.source, table, *window.span(table)):
                rows[table] += len(some)
                for row in some:
                    for event in trace.of(row):
                        out.write(comma + _encode(event))
                        comma = ",\n"
        for event in trace.end():
            out.write(comma + _encode(event))
        out.write("\n]}\n")
    return rows


def _write_tables(
    window: _Window, form: str, draft: Path, tables: Sequence[str], *, alone: bool
) -> dict[str, int]:
    import duckdb

    spill = _spill(draft)
    _remove(spill)
    if not alone:
        draft.mkdir()
    rows = {}
    config: dict[str, Any] = {"memory_limit": _MEMORY_LIMIT, "temp_directory": str(spill)}
    try:
        with duckdb.connect(":memory:", config=config) as con:
            for name in tables:
                table = TABLES[name]
                con.execute(sql.draft_table(table))
                rows[name] = sum(
                    _append(con, table, answer)
                    for answer in pacing.answers(window.source, name, *window.span(name))
                )
                if rows[name] or alone:
                    file = draft if alone else draft / f"{name}.{form}"
                    con.execute(sql.copy_draft(table, file, form)).fetchall()
                con.execute(sql.drop_draft(table))
    except duckdb.Error as e:
        raise StoreError(f"cannot write {draft.parent}: {str(e).splitlines()[0]}") from e
    return rows


def _append(con: duckdb.DuckDBPyConnection, table: Table, answer: Result) -> int:
    if answer.columns != table.column_names:
        raise StoreError(
            f"{table.name} came with columns {answer.columns}: the two sides are of different "
            "versions"
        )
    if answer.rows:
        appender = con.appender(sql.draft_name(table))
        appender.append_rows(answer.rows)
        appender.flush()
    return len(answer.rows)


def _check_target(target: Path, force: bool) -> None:
    if sql.is_part(target.name):
        raise StoreError(f"{target} is called like a day of a store: choose another name")
    parts.check_outside(target)
    try:
        str(target).encode()
    except UnicodeEncodeError:  # DuckDB takes no other names
        raise StoreError(f"{str(target)!r} is not UTF-8 text: choose another name") from None
    if not (target.exists() or target.is_symlink()):
        return
    if not (target.is_file() or target.is_dir() or target.is_symlink()):
        # Put in its place, the export would take it away from everybody: /dev/null, a pipe.
        raise StoreError(f"{target} is a device, a pipe or a socket: name a file, or a folder")
    if not force:
        raise StoreError(f"{target} is there already: choose another name, or give --force")
    if target.is_dir() and not target.is_symlink():
        ours = {f"{t}.{form}" for t in TABLES for form in (PARQUET, CSV)}
        other = sorted(p.name for p in target.iterdir() if p.name not in ours)
        if other:
            raise StoreError(
                f"{target} holds {other[0]!r}, which no export has written: it is not replaced, "
                "choose another name"
            )


def _replace(draft: Path, target: Path) -> None:
    """Put the draft in its place; what an export had left there goes only after that."""
    aside = target.with_name(f".{target.name}.replaced-{os.getpid()}")
    both = target.is_dir() or (draft.is_dir() and target.exists())
    if both:
        target.rename(aside)
    draft.replace(target)
    if both:
        _remove(aside)
    _sync_one(target.parent)


def _sync(path: Path) -> None:
    """Flush what was written."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for file in files:
        _sync_one(file)
    if path.is_dir():
        _sync_one(path)


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _spill(draft: Path) -> Path:
    return draft.with_name(f"{draft.name}-spill")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
