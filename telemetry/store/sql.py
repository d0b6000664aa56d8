"""The SQL that follows from the vocabulary: DDL, merge, reads, views. Builds text, runs nothing.

Only names of the closed vocabulary and day names of a fixed form enter the text; values travel as
parameters. Everything a person wrote by hand is a file in `telemetry/queries`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

from telemetry.conventions import Column, Emitter
from telemetry.instants import INSTANT_OF_LOG
from telemetry.tables import TABLES, Table

# Marks order the deliveries of one emitter: a sealed one beats an open one, then the higher seq.
SEALED_MARK = 1 << 40
RUNS_PART = "runs"  # rows that belong to a run, not to a day
TABLES_OF_RUNS = ("engine_run", "adapter")
_OF_RUN = '"engine" = $engine AND "run_id" = $run_id AND "pool" = $pool'
_PART = re.compile(r"\d{4}-\d{2}-\d{2}|runs")


# A part's own word on its layout (telemetry.store.migrations); no table of the vocabulary.
VERSION_TABLE = "store_version"
TABLES_IN = "SELECT table_name FROM duckdb_tables() WHERE database_name = $part"
COLUMNS_IN = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = $part"


def create_version(part: str) -> str:
    return f'CREATE TABLE IF NOT EXISTS {_version(part)} ("version" INTEGER)'


def clear_version(part: str) -> str:
    return f"DELETE FROM {_version(part)}"


def write_version(part: str) -> str:
    """Parameter: version."""
    return f"INSERT INTO {_version(part)} VALUES ($version)"


def read_version(part: str) -> str:
    return f'SELECT "version" FROM {_version(part)}'


def _version(part: str) -> str:
    return f'{catalog(part)}."{VERSION_TABLE}"'


# How far each series of a sender was counted, since a day.
# Parameters: engine, run_id, pool, low.
STATES_OF_SENDER = (
    'SELECT "metric", "attributes", "start_ns", "time_ns", "heard_ns", "value" '
    f'FROM "series_state" WHERE {_OF_RUN} AND "at" >= $low'
)
# Parameters: low, high (exclusive).
FOREIGN_SERIES = (
    'SELECT DISTINCT "engine", "metric", "attributes" FROM "foreign_metric" '
    'WHERE "at" >= $low AND "at" < $high'
)


def mark(sealed: bool, seq: int) -> int:
    return (SEALED_MARK if sealed else 0) + seq


def is_part(name: str) -> bool:
    """Whether a name is a day, `YYYY-MM-DD`, or the part of the runs."""
    return _PART.fullmatch(name) is not None


def tables_of(part: str) -> tuple[Table, ...]:
    """The tables kept in a part."""
    return tuple(t for t in TABLES.values() if (t.name in TABLES_OF_RUNS) == (part == RUNS_PART))


def instant_column(table: Table) -> str | None:
    """The column by which rows are put into a day and a window; None: they belong to a run."""
    if table.name in TABLES_OF_RUNS:
        return None
    return INSTANT_OF_LOG[table.name] if table.log else "bucket_start"


def catalog(part: str) -> str:
    """The name an attached part goes by."""
    if not is_part(part):
        raise ValueError(f"{part!r} is not a part of a store: expected YYYY-MM-DD or runs")
    return f'"{part}"'


def in_part(part: str, table: str) -> str:
    return f'{catalog(part)}."{TABLES[table].name}"'


def literal(text: str | Path) -> str:
    """A file's name as an SQL literal, where DuckDB takes no parameter (ATTACH, COPY)."""
    return "'" + str(text).replace("'", "''") + "'"


def _stored(table: Table) -> list[tuple[str, str]]:
    """(name, SQL type) of all stored columns, delivery marks included."""
    columns = [(c.name, c.sql) for c in table.columns]
    if not table.log:
        columns += [(f"{e.value}_mark", "BIGINT") for e in (Emitter.FRONT, Emitter.WORKER)]
        columns.append(("provisional", "BOOLEAN"))
    return columns


def stored_types(table: Table) -> list[tuple[str, str]]:
    """(name, SQL type) of all stored columns, delivery marks included."""
    return _stored(table)


def stored_columns(table: Table) -> list[str]:
    return [name for name, _ in _stored(table)]


def create(part: str, table: Table) -> str:
    """Creates the table where it is missing."""
    return table.ddl().replace(f'"{table.name}"', in_part(part, table.name), 1)


def add_columns(part: str, table: Table, have: set[str]) -> list[str]:
    """Adds the columns that a table of an older version lacks."""
    return [
        f'ALTER TABLE {in_part(part, table.name)} ADD COLUMN "{name}" {kind}'
        for name, kind in _stored(table)
        if name not in have
    ]


@lru_cache(512)  # what a delivery lacks varies
def stored_rows(
    part: str, table: Table, named_by: str | None = None, only: tuple[str, ...] | None = None
) -> str:
    """Row ids and all stored columns, or `only` those, of a run's rows. Parameters: engine, run_id,
    pool, and the instants low and high, inclusive, where the table has one; with the column
    `named_by` only rows that have one of `names` there."""
    instant = instant_column(table)
    within = f' AND "{instant}" BETWEEN $low AND $high' if instant else ""
    if named_by is not None:
        within += f' AND "{named_by}" IN (SELECT unnest($names))'
    names = ", ".join(f'"{name}"' for name in only or stored_columns(table))
    return f"SELECT rowid, {names} FROM {in_part(part, table.name)} WHERE {_OF_RUN}{within}"


def delete_rows(part: str, table: Table) -> str:
    """Parameter: ids, row ids of the same transaction."""
    return f"DELETE FROM {in_part(part, table.name)} WHERE rowid IN (SELECT unnest($ids))"


@cache
def drop_superseded(part: str, emitter: Emitter) -> str:
    """Interference rows under the highest mark of their bucket go: the matrix of a bucket is
    replaced as a whole, so a holder that left its top few does not linger.

    The engine's own row carries the mark too: it stands even when the newer matrix is empty.
    Parameters: engine, run_id, pool, low, high.
    """
    own = f'"{emitter.value}_mark"'
    matrix = in_part(part, "interference_minute")
    within = f'{_OF_RUN} AND "bucket_start" BETWEEN $low AND $high'
    marks = " UNION ALL ".join(
        f'SELECT "bucket_start", "bucket_s", {own} AS m FROM {in_part(part, t)} WHERE {within}'
        for t in ("interference_minute", "engine_minute")
    )
    return (
        f"DELETE FROM {matrix} AS i USING "
        f'(SELECT "bucket_start", "bucket_s", max(m) AS m FROM ({marks}) '
        f'GROUP BY "bucket_start", "bucket_s") AS top '
        f'WHERE {_OF_RUN} AND i."bucket_start" BETWEEN $low AND $high '
        f'AND i."bucket_start" = top."bucket_start" AND i."bucket_s" = top."bucket_s" '
        f"AND i.{own} < top.m"
    )


def _empty(table: Table, only: Sequence[str] | None = None) -> str:
    """No rows, of all the table's columns and types, or of `only` those."""
    columns = ", ".join(
        f'CAST(NULL AS {sql}) AS "{name}"'
        for name, sql in _stored(table)
        if only is None or name in only
    )
    return f"SELECT {columns} WHERE false"


def whole(table: Table, source: str) -> str:
    """A row source of any version (a table's name, `read_parquet(...)`) in today's columns."""
    names = ", ".join(f'"{name}"' for name in stored_columns(table))
    return f"(SELECT {names} FROM ({_empty(table)} UNION ALL BY NAME SELECT * FROM {source}))"


def parquet(file: Path) -> str:
    """A Parquet file as a row source."""
    return f"read_parquet({literal(file)}, hive_partitioning = false)"


def view(table: Table, parts: Sequence[str], files: Sequence[Path]) -> str:
    """One view over a table in all parts: attached files by part name, Parquet files by path.

    An empty typed row set stands first, so that the columns are there even when no part is.
    """
    sources = [_empty(table)]
    sources += [f"SELECT * FROM {in_part(p, table.name)}" for p in parts]
    if files:
        sources.append(f"SELECT * FROM {_parquets(files)}")
    return f'CREATE OR REPLACE VIEW "{table.name}" AS {" UNION ALL BY NAME ".join(sources)}'


def named_rows(
    table: Table, columns: Sequence[str], parts: Sequence[str], files: Sequence[Path]
) -> str:
    """A table as a common table expression over some parts, of these columns (of none: the first).

    Attached parts are of today's layout; what an older Parquet file lacks is absent.
    """
    wanted = list(columns) or stored_columns(table)[:1]
    names = ", ".join(f'"{c}"' for c in wanted)
    sources = [f"SELECT {names} FROM {in_part(p, table.name)}" for p in parts]
    if files or not sources:
        # The columns come first: a union takes them, and their order, from where it begins.
        closed = [_empty(table, wanted), *(["SELECT * FROM " + _parquets(files)] if files else [])]
        sources.append(f"SELECT {names} FROM ({' UNION ALL BY NAME '.join(closed)})")
    # Inlined wherever it is read: only so are its rows and columns chosen before they are read.
    return f'"{table.name}" AS NOT MATERIALIZED ({" UNION ALL ".join(sources)})'


def _parquets(files: Sequence[Path]) -> str:
    listed = ", ".join(literal(f) for f in files)
    by_name = ", union_by_name = true" if len(files) > 1 else ""
    return f"read_parquet([{listed}]{by_name}, hive_partitioning = false)"


def _out(column: Column) -> str:
    if column.sql == "TIMESTAMP":
        return f'epoch_us("{column.name}") AS "{column.name}"'
    return f'"{column.name}"'


@cache
def read(table: Table) -> str:
    """All columns of a table's rows, in a fixed order; instants as whole microseconds.

    Parameters low (inclusive) and high (exclusive) where the table has an instant.
    """
    instant = instant_column(table)
    where = f' WHERE "{instant}" >= $low AND "{instant}" < $high' if instant else ""
    columns = ", ".join(_out(c) for c in table.columns)
    # An instant's alias hides its column: order by the inner table's columns, not by the aliases.
    order = ", ".join(f't."{c}"' for c in dict.fromkeys((*filter(None, [instant]), *table.key)))
    return f'SELECT {columns} FROM (SELECT * FROM "{table.name}"{where}) AS t ORDER BY {order}'


def copy_out(source: str, table: Table, target: Path) -> str:
    """Write a table's rows, from any row source, to one Parquet file, in the order in which it will
    be read."""
    order = ", ".join(
        f'"{c}"' for c in dict.fromkeys((*filter(None, [instant_column(table)]), *table.key))
    )
    return (
        f"COPY (SELECT * FROM {source} ORDER BY {order}) "
        f"TO {literal(target)} (FORMAT parquet, COMPRESSION zstd)"
    )


def copy_in(part: str, table: Table, source: Path) -> str:
    """The inverse of `copy_out`, into an existing table."""
    return (
        f"INSERT INTO {in_part(part, table.name)} BY NAME "
        f"SELECT * FROM {whole(table, parquet(source))}"
    )


def count(source: str) -> str:
    """Rows of a row source; of Parquet its footer says it."""
    return f"SELECT count(*) FROM {source}"


def read_through(source: str) -> str:
    """Reads every value of a row source: what is damaged inside shows."""
    return f"SELECT bit_xor(hash(r)) FROM {source} AS r"


def blocks(part: str, table: Table) -> str:
    """How often a table uses each block of its file."""
    return (
        f"SELECT block_id, count(*) FROM pragma_storage_info({literal(in_part(part, table.name))}) "
        "WHERE persistent AND block_id >= 0 GROUP BY block_id"
    )


def attach(part: str, file: Path, *, read_only: bool) -> str:
    mode = " (READ_ONLY)" if read_only else ""
    return f'ATTACH {literal(file)} AS "{part}"{mode}'


def attach_memory(part: str) -> str:
    return f"ATTACH ':memory:' AS \"{part}\""


def detach(part: str) -> str:
    return f'DETACH "{part}"'


def draft_name(table: Table) -> str:
    """What a table is called in a connection that only gathers rows to write them out."""
    return f"draft_{table.name}"


def draft_table(table: Table) -> str:
    """A table of the declared columns alone, without the marks of deliveries. Instants lie in it as
    they travel, in whole microseconds."""
    columns = ", ".join(
        f'"{c.name}" {"BIGINT" if c.sql == "TIMESTAMP" else c.sql}' for c in table.columns
    )
    return f'CREATE TABLE "{draft_name(table)}" ({columns})'


def drop_draft(table: Table) -> str:
    return f'DROP TABLE "{draft_name(table)}"'


def copy_draft(table: Table, target: Path, form: str) -> str:
    """Write the gathered rows to one file, `parquet` or `csv`, in order of time."""
    options = {"parquet": "FORMAT parquet, COMPRESSION zstd", "csv": "FORMAT csv, HEADER"}[form]
    order = ", ".join(
        f'"{c}"' for c in dict.fromkeys((*filter(None, [instant_column(table)]), *table.key))
    )
    columns = ", ".join(
        f'make_timestamp("{c.name}") AS "{c.name}"' if c.sql == "TIMESTAMP" else f'"{c.name}"'
        for c in table.columns
    )
    rows = f'SELECT {columns} FROM (FROM "{draft_name(table)}" ORDER BY {order})'
    return f"COPY ({rows}) TO {literal(target)} ({options})"


def view_of_nothing(file: Path) -> str:
    """No rows of a Parquet file: what columns it has."""
    return f"SELECT * FROM read_parquet({literal(file)}, hive_partitioning = false) LIMIT 0"
