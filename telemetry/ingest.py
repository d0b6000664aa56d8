"""Puts decoded batches into one part of a store. Owns the merge; knows no files and no bytes.

The connection has the part attached under its name; the caller owns the transaction, so that a
batch and its acknowledgement stand or fall together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from telemetry import sql
from telemetry.conventions import Emitter
from telemetry.instants import day_of, naive_utc
from telemetry.records import Batch
from telemetry.tables import TABLE_OF, TABLES, Table

if TYPE_CHECKING:
    import duckdb

Key = tuple[Any, ...]
Values = tuple[Any, ...]


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
    """Create the tables that the attached part lacks, and the columns that an older file lacks."""
    have: dict[str, set[str]] = defaultdict(set)
    for name, column in con.execute(sql.COLUMNS_IN, {"part": part}).fetchall():
        have[name].add(column)
    for table in sql.tables_of(part):
        if table.name not in have:
            con.execute(sql.create(part, table)).fetchall()
            continue
        for statement in sql.add_columns(part, table, have[table.name]):
            con.execute(statement).fetchall()


def merge(con: duckdb.DuckDBPyConnection, part: str, batch: Batch, rows: Iterable[Any]) -> int:
    """Merge `rows` of `batch` into `part`; returns how many there were, by distinct key.

    Runs inside the caller's transaction. Rows are read, merged and written whole: for the hundred
    columns of a tenant-minute that is several times faster than an SQL MERGE over as many cases.
    """
    by_table: dict[str, dict[Key, Values]] = defaultdict(dict)
    for row in rows:
        table = TABLE_OF[type(row)]
        values = _values(table, row)
        by_table[table.name][_key(table, values)] = values
    for name, new in by_table.items():
        _merge_table(con, part, TABLES[name], batch, new)
    _drop_superseded(con, part, batch, by_table)
    return sum(len(new) for new in by_table.values())


def merged(old: Values, new: Values, mark: int, own: int, other: int) -> Values:
    """A stored minute row after a delivery of `new` columns under `mark`.

    `old` is a row as stored: columns, the two writers' marks, provisional. `own` and `other` are
    the positions of the marks of the delivery's writer and of the other one. A mark at least as
    high as the row's: present columns overwrite, absent ones stay. A lower one only fills what is
    still absent. So any order of any number of deliveries ends in one state, as long as a writer
    does not take back a column it once sent for a bucket.
    """
    held = old[own]
    newer = held is None or mark >= held
    first, second = (new, old) if newer else (old, new)
    columns = [b if a is None else a for a, b in zip(first, second, strict=False)]
    marks = {own: mark if newer else held, other: old[other]}
    return _stored(columns[: len(new)], marks)


def _stored(columns: Iterable[Any], marks: dict[int, int | None]) -> Values:
    """Columns, then the marks in their order, then whether any of them is open."""
    in_order = [marks[i] for i in sorted(marks)]
    provisional = any(m is not None and m < sql.SEALED_MARK for m in in_order)
    return (*columns, *in_order, provisional)


def _merge_table(
    con: duckdb.DuckDBPyConnection, part: str, table: Table, batch: Batch, new: dict[Key, Values]
) -> None:
    window = _window(table, batch, new.values())
    stored = con.execute(sql.stored_rows(part, table), window).fetchall()
    old = {key: (r[0], r[1:]) for r in stored if (key := _key(table, r[1:])) in new}
    mark = sql.mark(batch.sealed, batch.seq)
    own, other = len(table.columns), len(table.columns) + 1
    if batch.emitter is Emitter.WORKER:
        own, other = other, own
    gone, written = [], []
    for key, values in new.items():
        row: Values = values
        if not table.log:
            row = _stored(values, {own: mark, other: None})
            if key in old:
                row = merged(old[key][1], values, mark, own, other)
        if key in old:
            if row == old[key][1]:
                continue
            gone.append(old[key][0])
        written.append(row)
    if gone:
        con.execute(sql.delete_rows(part, table), {"ids": gone})
    if written:
        # By name: in a file of an older version the columns stand in another order.
        names = sql.stored_columns(table)
        appender = con.appender(sql.in_part(part, table.name), columns=names)
        appender.append_rows(written)
        appender.flush()


def _drop_superseded(
    con: duckdb.DuckDBPyConnection, part: str, batch: Batch, by_table: dict[str, dict[Key, Values]]
) -> None:
    """The interference matrix of a bucket is replaced as a whole."""
    windows = [
        _window(TABLES[name], batch, by_table[name].values())
        for name in ("interference_minute", "engine_minute")
        if name in by_table
    ]
    if windows:
        low, high = min(w["low"] for w in windows), max(w["high"] for w in windows)
        con.execute(
            sql.drop_superseded(part, batch.emitter), {**windows[0], "low": low, "high": high}
        )


def _values(table: Table, row: Any) -> Values:
    """A row as the store keeps it: instants as naive UTC, histograms as lists."""
    return tuple(
        value if value is None else naive_utc(value) if is_instant else value
        for value, is_instant in (
            (getattr(row, c.name), c.sql == "TIMESTAMP") for c in table.columns
        )
    )


def _key(table: Table, values: Values) -> Key:
    return tuple(values[i] for i in _positions(table.name, table.key))


@cache
def _positions(table: str, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(TABLES[table].column_names.index(n) for n in names)


def _window(table: Table, batch: Batch, rows: Iterable[Values]) -> dict[str, Any]:
    """Parameters that find the stored rows which `rows` of the batch can meet."""
    window: dict[str, Any] = {
        "engine": batch.engine,
        "run_id": batch.run_id,
        "pool": batch.pool,
    }
    instant = sql.instant_column(table)
    if instant is not None:
        [at] = _positions(table.name, (instant,))
        instants = [values[at] for values in rows]
        window |= {"low": min(instants), "high": max(instants)}
    return window
