"""Many rows into a minute table at once, column by column. Owns how values become numpy arrays.

DuckDB scans a dictionary of arrays where it lies: for a thousand rows of a hundred columns that
takes a fraction of appending them value by value. No transaction and no merge is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from telemetry.conventions import LATENCY_BOUNDS_S
from telemetry.store import sql
from telemetry.tables import Table

if TYPE_CHECKING:
    import duckdb

FEW = 64  # rows; so few are appended faster than a hundred columns are bound
_BUCKETS = len(LATENCY_BOUNDS_S) + 1
_NO_COUNTS = (0,) * _BUCKETS
_NUMBERS: dict[str, Any] = {"BIGINT": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}

Values = tuple[Any, ...]


def insert(con: duckdb.DuckDBPyConnection, part: str, table: Table, rows: Sequence[Values]) -> None:
    """Write rows, values in the order of `sql.stored_columns`, into the part's table."""
    # By name: in a file of an older version the columns stand in another order.
    names = sql.stored_columns(table)
    if table.log or len(rows) < FEW:
        appender = con.appender(sql.in_part(part, table.name), columns=names)
        appender.append_rows(rows)
        appender.flush()
        return
    insert_columns(con, part, table, list(zip(*rows, strict=True)))


def insert_columns(
    con: duckdb.DuckDBPyConnection, part: str, table: Table, columns: Sequence[Sequence[Any]]
) -> None:
    """The same of rows that lie by column, in that order."""
    # DuckDB finds it by its name.
    incoming: dict[str, Any] = {}
    for (name, kind), values in zip(sql.stored_types(table), columns, strict=True):
        incoming |= arrays(name, kind, values)
    con.execute(_insert(part, table)).fetchall()
    del incoming


def arrays(name: str, kind: str, values: Sequence[Any]) -> dict[str, Any]:
    """A column as one array, masked where values are absent; a histogram as one of whether it is
    there and one a bucket."""
    if kind == "BIGINT[]":
        there = np.array([v is not None for v in values])
        counts = np.array([_NO_COUNTS if v is None else v for v in values], dtype=np.int64)
        buckets = np.ascontiguousarray(counts.T)
        return {name: there} | {_bucket(name, i): buckets[i] for i in range(_BUCKETS)}
    if kind == "VARCHAR":
        return {name: np.array(values, dtype=object)}
    if kind == "TIMESTAMP":
        return {name: np.array(values, dtype="datetime64[us]")}
    numbers = _NUMBERS[kind]
    if None not in values:
        return {name: np.array(values, dtype=numbers)}
    absent = [v is None for v in values]
    filled = np.array([0 if v is None else v for v in values], dtype=numbers)
    return {name: np.ma.MaskedArray(filled, mask=absent)}


def _bucket(name: str, index: int) -> str:
    return f"{name}_{index}"


@cache
def _insert(part: str, table: Table) -> str:
    into, given = [], []
    for name, kind in sql.stored_types(table):
        into.append(f'"{name}"')
        if kind == "BIGINT[]":
            buckets = ", ".join(f'"{_bucket(name, i)}"' for i in range(_BUCKETS))
            given.append(f'CASE WHEN "{name}" THEN list_value({buckets}) END')
        else:
            given.append(f'"{name}"')
    target = sql.in_part(part, table.name)
    return f"INSERT INTO {target} ({', '.join(into)}) SELECT {', '.join(given)} FROM incoming"
