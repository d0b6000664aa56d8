"""A newer delivery of many minute rows over what stands: merged by column. Owns no transaction.

The rule is `ingest.merged`'s. Of a row under a lower mark of the same writer only what the delivery
lacks is still needed: so those columns are read, and not the hundred of a tenant-minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from telemetry.conventions import Emitter
from telemetry.store import ingest_columns, sql
from telemetry.tables import Table

if TYPE_CHECKING:
    import duckdb

Key = tuple[Any, ...]
Values = tuple[Any, ...]


def overwrite(
    con: duckdb.DuckDBPyConnection,
    part: str,
    table: Table,
    new: dict[Key, Values],
    window: dict[str, Any],
    named_by: str,
    emitter: Emitter,
    mark: int,
) -> bool:
    """Write `new`, rows by key, under `mark`. False, and nothing done, when one of them stands
    there under that mark or a higher one of the same writer.

    `window` are the parameters of `sql.stored_rows` with `named_by`.
    """
    own, other = f"{emitter.value}_mark", f"{_other(emitter).value}_mark"
    columns: list[list[Any]] = [list(values) for values in zip(*new.values(), strict=True)]
    names = table.column_names
    lacking = [i for i, values in enumerate(columns) if None in values]
    wanted = (*table.key, own, other, *(names[i] for i in lacking))
    text = sql.stored_rows(part, table, named_by, wanted)
    row_of = {key: i for i, key in enumerate(new)}
    stored = []
    width = len(table.key)
    for row in con.execute(text, window).fetchall():
        at = row_of.get(row[1 : 1 + width])
        if at is None:
            continue
        held = row[1 + width]
        if held is not None and held >= mark:
            return False
        stored.append((at, row))
    others: list[int | None] = [None] * len(new)
    for at, row in stored:
        others[at] = row[2 + width]
        for i, value in zip(lacking, row[3 + width :], strict=True):
            if columns[i][at] is None:
                columns[i][at] = value
    if stored:
        con.execute(sql.delete_rows(part, table), {"ids": [row[0] for _, row in stored]})
    marks: dict[str, list[int | None]] = {own: [mark] * len(new), other: others}
    is_open = mark < sql.SEALED_MARK
    provisional = [is_open or (m is not None and m < sql.SEALED_MARK) for m in others]
    columns += [list(marks[f"{e.value}_mark"]) for e in _WRITERS]
    columns.append(provisional)
    ingest_columns.insert_columns(con, part, table, columns)
    return True


_WRITERS = (Emitter.FRONT, Emitter.WORKER)  # in the order of their marks


def _other(emitter: Emitter) -> Emitter:
    return Emitter.FRONT if emitter is Emitter.WORKER else Emitter.WORKER
