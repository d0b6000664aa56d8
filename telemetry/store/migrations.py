"""Which version of the layout a part is of, and how an older one is brought forward.

Moves no files. A day file says its version in a row of `store_version`, a closed part in
`manifest.json`. Parts from before versions were written are of version 1. An open part is brought
forward when it is opened for writing; Parquet is read by column names, what an older file lacks is
absent, and it gets today's layout when it is opened again. A newer version is refused: its rows
could be misread, or lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from telemetry.errors import StoreError, StoreTooNew
from telemetry.store import sql
from telemetry.tables import TABLES

if TYPE_CHECKING:
    import duckdb

MANIFEST = "manifest.json"
_FIRST = 1


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: from the version before to `version`, as statements for an attached part."""

    version: int
    about: str
    statements: Callable[[str], tuple[str, ...]]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(2, "a part says its version", lambda part: (sql.create_version(part),)),
)


def current() -> int:
    """The version that is written."""
    return MIGRATIONS[-1].version


def bring_forward(con: duckdb.DuckDBPyConnection, part: str, file: Path) -> int:
    """Give the attached part today's layout, all of it or nothing; returns the version it had.

    Raises StoreTooNew; duckdb.Error when it cannot be written.
    """
    had = version_of(con, part, file)
    con.execute("BEGIN")
    try:
        for step in MIGRATIONS:
            if step.version > had:
                for statement in step.statements(part):
                    con.execute(statement)
        # Whoever only reads starts without what takes rows in.
        from telemetry.store import ingest

        ingest.create_tables(con, part)
        if had != current():
            con.execute(sql.clear_version(part))
            con.execute(sql.write_version(part), {"version": current()})
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise
    return had


def version_of(con: duckdb.DuckDBPyConnection, part: str, file: Path) -> int:
    """The version of an attached part; 0 for one that is new. Raises StoreTooNew."""
    names = tables_in(con, part)
    if sql.VERSION_TABLE not in names:
        return _FIRST if names & TABLES.keys() else 0
    rows = con.execute(sql.read_version(part)).fetchall()
    version = max((row[0] for row in rows), default=_FIRST)
    _check(version, file)
    return int(version)


def tables_in(con: duckdb.DuckDBPyConnection, part: str) -> set[str]:
    """Names of the tables that an attached part has."""
    return {row[0] for row in con.execute(sql.TABLES_IN, {"part": part}).fetchall()}


def write_manifest(folder: Path, tables: Iterable[str]) -> None:
    """Say what a closed part is: its version and the tables it has. Atomic."""
    draft = folder / f".{MANIFEST}.draft"
    draft.write_text(json.dumps({"version": current(), "tables": sorted(tables)}) + "\n")
    draft.replace(folder / MANIFEST)


def manifest_tables(folder: Path) -> frozenset[str]:
    """The tables that a closed part should have; none are named before version 2.

    Raises StoreTooNew, and StoreError when the manifest cannot be understood.
    """
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_text())
        version, tables = int(raw["version"]), frozenset(map(str, raw["tables"]))
    except FileNotFoundError:
        return frozenset()
    except (ValueError, KeyError, TypeError) as e:
        raise StoreError(
            f"{path} cannot be understood ({type(e).__name__}: {e}): remove it if the Parquet "
            "files beside it are right; they are then read as they are"
        ) from None
    _check(version, folder)
    return tables


def _check(version: int, path: Path) -> None:
    if version > current():
        raise StoreTooNew(
            f"{path} is of store version {version}, and this program knows versions up to "
            f"{current()}: use the newer program that wrote it, or choose another folder"
        )
