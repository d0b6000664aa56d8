"""Puts decoded batches into one part of a store. Owns the merge; knows no files and no bytes.

The connection has the part attached under its name; the caller owns the transaction, so that a
batch and its acknowledgement stand or fall together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from telemetry.conventions import Emitter, Kind
from telemetry.instants import day_of, naive_utc
from telemetry.otlp.charges import Charges
from telemetry.otlp.cumulative import added
from telemetry.records import Batch, InterferenceMinute
from telemetry.store import ingest_columns, ingest_matrix, ingest_newer, sql
from telemetry.tables import TABLE_OF, TABLES, Table

if TYPE_CHECKING:
    import duckdb

Key = tuple[Any, ...]
Values = tuple[Any, ...]


# Where a delivery may hold a small part of a bucket: the column that tells its rows apart.
_NAMED_BY = {"tenant_minute": "tenant", "adapter_minute": "adapter"}
# The field that places a row of a type in time; None: it belongs to a run.
INSTANT_OF: dict[type[Any], str | None] = {
    kind: sql.instant_column(table) for kind, table in TABLE_OF.items()
} | {Charges: "bucket_start"}


def table_of(kind: type[Any]) -> str:
    """The name of the table that rows of a type are kept in."""
    return TABLE_OF[InterferenceMinute if kind is Charges else kind].name


_OF_MATRIX = (InterferenceMinute, Charges)


def part_of(row: Any) -> str:
    """The part a row is kept in: the UTC day of its instant, or the part of the runs."""
    instant = INSTANT_OF[type(row)]
    return sql.RUNS_PART if instant is None else day_of(getattr(row, instant))


def by_part(batches: Iterable[Batch]) -> dict[str, list[tuple[Batch, list[Any]]]]:
    """What each touched part is to take: (batch, its rows there), oldest part first."""
    parts: dict[str, dict[int, tuple[Batch, list[Any]]]] = defaultdict(dict)
    for index, batch in enumerate(batches):
        lists: dict[str, list[Any]] = {}
        of_instant: dict[float | None, list[Any]] = {}  # thousands of rows share a few instants
        for row in (*batch.minutes, *batch.logs):
            instant = INSTANT_OF[type(row)]
            at = None if instant is None else getattr(row, instant)
            into = of_instant.get(at)
            if into is None:
                into = of_instant[at] = lists.setdefault(part_of(row), [])
            into.append(row)
        for name, rows in lists.items():
            parts[name][index] = (batch, rows)
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
    matrix: list[InterferenceMinute | Charges] = []
    others: list[Any] = []
    for row in rows:
        (matrix if type(row) in _OF_MATRIX else others).append(row)
    taken = 0
    if matrix:
        taken, by_key = ingest_matrix.merge(con, part, batch, matrix)
        others += by_key
    by_table = _by_table(others)
    for name, new in by_table.items():
        _merge_table(con, part, TABLES[name], batch, new)
    _drop_superseded(con, part, batch, by_table)
    return taken + sum(len(new) for new in by_table.values())


def _by_table(rows: Iterable[Any]) -> dict[str, dict[Key, Values]]:
    """Rows as they are stored, by key; of one key twice the later."""
    by_type: dict[type[Any], list[Any]] = defaultdict(list)
    for row in rows:
        by_type[type(row)].append(row)
    by_table: dict[str, dict[Key, Values]] = {}
    for kind, some in by_type.items():
        table = TABLE_OF[kind]
        by_table[table.name] = {_key(table, v): v for v in _values(table, some)}
    return by_table


def add(con: duckdb.DuckDBPyConnection, part: str, batch: Batch, rows: Iterable[Any]) -> list[Any]:
    """Add `rows`, increases, to what `part` holds; returns them as they stand now, only the columns
    that were given. Runs inside the caller's transaction, which is to hold what keeps an increase
    from being added again."""
    by_table: dict[str, dict[Key, tuple[Any, Values]]] = defaultdict(dict)
    for row in rows:
        table = TABLE_OF[type(row)]
        [values] = _values(table, (row,))
        by_table[table.name][_key(table, values)] = row, values
    now: list[Any] = []
    for name, new in by_table.items():
        table = TABLES[name]
        window = _window(table, batch, [values for _, values in new.values()])
        stored = con.execute(sql.stored_rows(part, table), window).fetchall()
        old = {key: r[1:] for r in stored if (key := _key(table, r[1:])) in new}
        sums: dict[Key, Values] = {}
        for key, (row, values) in new.items():
            if key in old:
                values = tuple(
                    v if c.kind is Kind.KEY else _added(o, v, c.kind)
                    for c, o, v in zip(table.columns, old[key], values, strict=False)
                )
            sums[key] = values
            given = {
                c.name: tuple(v) if c.kind is Kind.HIST and v is not None else v
                for c, v in zip(table.columns, values, strict=True)
                if c.kind is not Kind.KEY and getattr(row, c.name) is not None
            }
            now.append(replace(row, **given))
        _merge_table(con, part, table, batch, sums, in_order=True)
    return now


def _added(old: Any, new: Any, kind: Kind) -> Any:
    if new is None:
        return None  # absent: the merge leaves what is stored
    return added(None if old is None else tuple(old) if kind is Kind.HIST else old, new, kind)


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
    con: duckdb.DuckDBPyConnection,
    part: str,
    table: Table,
    batch: Batch,
    new: dict[Key, Values],
    *,
    in_order: bool = False,
) -> None:
    """`in_order`: what is new was made of what is stored, whatever the marks say."""
    window = _window(table, batch, new.values())
    mark = sql.mark(batch.sealed, batch.seq)
    named_by = _NAMED_BY.get(table.name)
    if named_by is not None:
        [at] = _positions(table.name, (named_by,))
        window["names"] = list({values[at] for values in new.values()})
        many = len(new) >= ingest_columns.FEW and not in_order
        if many and ingest_newer.overwrite(
            con, part, table, new, window, named_by, batch.emitter, mark
        ):
            return
    stored = con.execute(sql.stored_rows(part, table, named_by), window).fetchall()
    old = {key: (r[0], r[1:]) for r in stored if (key := _key(table, r[1:])) in new}
    own, other = len(table.columns), len(table.columns) + 1
    if batch.emitter is Emitter.WORKER:
        own, other = other, own
    gone, written = [], []
    for key, values in new.items():
        row: Values = values
        if not table.log:
            row = _stored(values, {own: mark, other: None})
            if key in old:
                held = old[key][1][own]
                later = max(mark, held) if in_order and held is not None else mark
                row = merged(old[key][1], values, later, own, other)
        if key in old:
            if row == old[key][1]:
                continue
            gone.append(old[key][0])
        written.append(row)
    if gone:
        con.execute(sql.delete_rows(part, table), {"ids": gone})
    if written:
        ingest_columns.insert(con, part, table, written)


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


def _values(table: Table, rows: Iterable[Any]) -> Iterator[Values]:
    """Rows as the store keeps them: instants as naive UTC, histograms as lists."""
    of_row, instants, histograms = _shape(table.name)
    for row in rows:
        values = list(of_row(row))
        for i in instants:
            if values[i] is not None:
                values[i] = naive_utc(values[i])
        for i in histograms:
            if values[i] is not None:
                values[i] = list(values[i])
        yield tuple(values)


@cache
def _shape(table: str) -> tuple[Callable[[Any], Values], tuple[int, ...], tuple[int, ...]]:
    """How to read a row, and where its instants and histograms stand."""
    columns = TABLES[table].columns
    return (
        attrgetter(*(c.name for c in columns)),
        tuple(i for i, c in enumerate(columns) if c.sql == "TIMESTAMP"),
        tuple(i for i, c in enumerate(columns) if c.kind is Kind.HIST),
    )


def _key(table: Table, values: Values) -> Key:
    return _key_of(table.name)(values)


@cache
def _key_of(table: str) -> Callable[[Values], Key]:
    return itemgetter(*_positions(table, TABLES[table].key))


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
