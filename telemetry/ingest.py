"""Puts decoded batches into one part of a store. Owns the merge; knows no files and no bytes.

The connection has the part attached under its name; the caller owns the transaction, so that a
batch and its acknowledgement stand or fall together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from telemetry import sql
from telemetry.instants import day_of, naive_utc
from telemetry.records import Batch
from telemetry.tables import TABLE_OF, TABLES, Table

if TYPE_CHECKING:
    import duckdb


def part_of(row: Any) -> str:
    """The part a row is kept in: the UTC day of its instant, or the part of the runs."""
    instant = sql.instant_column(TABLE_OF[type(row)])
    return sql.RUNS_PART if instant is None else day_of(getattr(row, instant))


def by_part(batches: Iterable[Batch]) -> dict[str, list[tuple[Batch, list[Any]]]]:
    """What each touched part is to take: (batch, its rows there), oldest part first."""
    parts: dict[str, dict[int, tuple[Batch, list[Any]]]] = defaultdict(dict)
    for index, batch in enumerate(batches):
        for row in (*batch.minutes, *batch.logs):
            parts[part_of(row)].setdefault(index, (batch, []))[1].append(row)
    return {name: list(parts[name].values()) for name in sorted(parts)}


def create_tables(con: duckdb.DuckDBPyConnection, part: str) -> None:
    """Create what the attached part lacks."""
    for table in sql.tables_of(part):
        for statement in sql.create(part, table):
            con.execute(statement)


class Merger:
    """Merges rows into attached parts over one connection. For one thread at a time."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        for table in TABLES.values():
            con.execute(sql.create_stage(table))

    def merge(self, part: str, batch: Batch, rows: list[Any]) -> int:
        """Merge `rows` of `batch` into `part`; returns how many were staged.

        Runs inside the caller's transaction.
        """
        by_table: dict[str, dict[tuple[Any, ...], Any]] = defaultdict(dict)
        for row in rows:
            table = TABLE_OF[type(row)]
            by_table[table.name][tuple(getattr(row, k) for k in table.key)] = row
        matrix = []
        for name, unique in by_table.items():
            table = TABLES[name]
            staged = list(unique.values())
            window = self._stage(table, staged)
            if table.log:
                delete, insert = sql.replace_logs(part, table)
                self._con.execute(delete, window)
                self._con.execute(insert)
            else:
                mark = sql.mark(batch.sealed, batch.seq)
                self._con.execute(sql.merge(part, table, batch.emitter), {"mark": mark, **window})
                if name in ("interference_minute", "engine_minute"):
                    matrix += [window["low"], window["high"]]
        if matrix:
            self._con.execute(
                sql.drop_superseded(part, batch.emitter), {"low": min(matrix), "high": max(matrix)}
            )
        return sum(len(r) for r in by_table.values())

    def _stage(self, table: Table, rows: list[Any]) -> dict[str, Any]:
        """Fill the table's stage with exactly `rows`; returns the bounds of their instants."""
        self._con.execute(f'DELETE FROM "stage_{table.name}"')
        columns = [(c.name, c.sql == "TIMESTAMP") for c in table.columns]
        appender = self._con.appender(f"stage_{table.name}")
        appender.append_rows(
            [
                tuple(
                    naive_utc(v) if is_instant and v is not None else v
                    for v, is_instant in ((getattr(row, n), i) for n, i in columns)
                )
                for row in rows
            ]
        )
        appender.flush()
        instant = sql.instant_column(table)
        if instant is None:
            return {}
        instants = [naive_utc(getattr(row, instant)) for row in rows]
        return {"low": min(instants), "high": max(instants)}
