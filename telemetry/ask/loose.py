"""Stored rows outside a store: one day file, one Parquet file, a folder of an export. Read only.

Owns the recognising; answers every question as a store does, as far as its tables go.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from telemetry.ask import ask_sql, reading
from telemetry.ask.reading import SQL, Result
from telemetry.errors import StoreBusy, StoreError
from telemetry.store import migrations, parts, sql, unreadable
from telemetry.tables import TABLES

if TYPE_CHECKING:
    import duckdb

_DAY = "1970-01-01"  # the part a day file is attached as, whatever it is called


def is_loose(path: Path) -> bool:
    """Whether a path is such a file or folder, and no store."""
    if path.is_file():
        return path.suffix in (".duckdb", ".parquet")
    return path.is_dir() and not parts.list_parts(path) and bool(_tables_in_folder(path))


def answer(path: Path, name: str, parameters: dict[str, Any]) -> Result:
    """Answer one question. Raises QueryError, StoreBusy, StoreError."""
    import duckdb

    con = duckdb.connect(":memory:")
    try:
        con.execute("SET TimeZone = 'UTC'")
        if path.suffix == ".duckdb" and path.is_file():
            _attach(con, path)
        else:
            files = {_table_of(con, path): path} if path.is_file() else _tables_in_folder(path)
            for table in TABLES.values():
                file = files.get(table.name)
                con.execute(sql.view(table, [], [file] if file is not None else []))
        if name == SQL:
            ask_sql.seal(con, path if path.is_dir() else path.parent)
        return reading.run(con, name, parameters)
    except duckdb.Error as e:
        if parts.is_locked(e):
            raise StoreBusy(
                f"{path} is in use by another process: ask that store (its folder, or its address)"
            ) from None
        if parts.is_corrupt(e, path.parent) or unreadable.refused(e):
            raise StoreError(unreadable.sentence(path, e)) from e
        raise StoreError(f"{path} cannot be read: {unreadable.in_short(e)}") from e
    finally:
        con.close()


def _attach(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    for part in (_DAY, sql.RUNS_PART):
        con.execute(sql.attach(part, path, read_only=True))
        have = migrations.tables_in(con, part)
        if any(t.name in have for t in sql.tables_of(part)):
            parts.define_views(con, [parts.Part(part, file=path)])
            return
        con.execute(sql.detach(part))
    raise StoreError(f"{path} has none of the tables {', '.join(TABLES)}: expected a store's file")


def _tables_in_folder(folder: Path) -> dict[str, Path]:
    return {t: file for t in TABLES if (file := folder / f"{t}.parquet").is_file()}


def _table_of(con: duckdb.DuckDBPyConnection, file: Path) -> str:
    """The table whose columns a Parquet file has; its name does not matter."""
    answer = con.execute(sql.view_of_nothing(file))
    have = {d[0] for d in answer.description or ()}
    for table in sorted(TABLES.values(), key=lambda t: -len(t.columns)):
        if have >= set(table.column_names):
            return table.name
    raise StoreError(
        f"{file} has the columns of no table here ({', '.join(TABLES)}): expected one that "
        "`tenantscope export` or a store has written"
    )
