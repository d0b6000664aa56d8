"""Puts the cells of an interference matrix into a part: a bucket's matrix is replaced as a whole.

Owns no transaction. A delivery under a lower mark than the bucket's changes nothing; under a higher
one it replaces all that stands; under the same one (a part of the same delivery, or that again) it
adds what is missing and leaves alone what is equal. So parts of two deliveries are never mixed, and
a bucket whose newest delivery has come in part holds the victims of that part, each with all its
cells. Buckets that two writers have touched are not for here (`ingest` merges those by key).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from telemetry.instants import naive_utc
from telemetry.otlp.charges import Charges, each_row
from telemetry.records import Batch, InterferenceMinute
from telemetry.store import sql, sql_matrix

if TYPE_CHECKING:
    import duckdb

_CELL = attrgetter(*sql_matrix.CELL)
_BUCKET = attrgetter("bucket_start", "bucket_s")
Bucket = tuple[Any, float]  # start as it is stored, length


class _Standing(NamedTuple):
    rows: int
    lowest: int
    highest: int
    foreign: int


_NOTHING = _Standing(0, -1, -1, 0)


def merge(
    con: duckdb.DuckDBPyConnection,
    part: str,
    batch: Batch,
    rows: Iterable[InterferenceMinute | Charges],
) -> tuple[int, list[InterferenceMinute]]:
    """Returns how many cells were taken, and the rows that have to be merged by key."""
    by_bucket = _by_bucket(rows)
    run = {"engine": batch.engine, "run_id": batch.run_id, "pool": batch.pool}
    starts = [start for start, _ in by_bucket]
    window = {**run, "low": min(starts), "high": max(starts)}
    standing: dict[str, dict[Bucket, _Standing]] = defaultdict(dict)
    found = con.execute(sql_matrix.standing(part, batch.emitter), window).fetchall()
    for table, start, bucket_s, count, lowest, highest, foreign in found:
        lowest, highest = (-1 if m is None else m for m in (lowest, highest))
        standing[table][start, bucket_s] = _Standing(count, lowest, highest, foreign)
    taken = 0
    by_key: list[InterferenceMinute] = []
    for bucket, some in by_bucket.items():
        matrix = standing[sql_matrix.MATRIX].get(bucket, _NOTHING)
        if matrix.foreign:
            by_key += each_row(some)
            continue
        columns = _columns(some)
        taken += len(columns["charged_s"])
        engine = standing[sql_matrix.ENGINE].get(bucket, _NOTHING)
        mark = sql.mark(batch.sealed, batch.seq)
        if mark >= max(matrix.highest, engine.highest):
            keys = {**run, "bucket_start": bucket[0], "bucket_s": bucket[1]}
            _replace(con, part, batch, columns, keys, mark, matrix)
    return taken, by_key


def _by_bucket(
    rows: Iterable[InterferenceMinute | Charges],
) -> dict[Bucket, list[InterferenceMinute | Charges]]:
    buckets: dict[tuple[float, float], list[InterferenceMinute | Charges]] = defaultdict(list)
    for row in rows:
        buckets[_BUCKET(row)].append(row)
    return {(naive_utc(start), s): some for (start, s), some in buckets.items()}


def _columns(some: list[InterferenceMinute | Charges]) -> dict[str, list[Any]]:
    """The cells by column, each once; of one that is there twice the later."""
    if len(some) == 1 and isinstance(one := some[0], Charges):
        return one.columns()
    cells = {_CELL(row): row.charged_s for row in each_row(some)}
    columns = dict(zip(sql_matrix.CELL, map(list, zip(*cells, strict=True)), strict=True))
    columns["charged_s"] = list(cells.values())
    return columns


def _replace(
    con: duckdb.DuckDBPyConnection,
    part: str,
    batch: Batch,
    columns: dict[str, list[Any]],
    keys: dict[str, Any],
    mark: int,
    matrix: _Standing,
) -> None:
    # DuckDB finds it by its name.
    incoming = {name: np.array(columns[name], dtype=object) for name in sql_matrix.CELL}
    incoming["charged_s"] = np.array(columns["charged_s"], dtype=np.float64)
    marked = {**keys, "mark": mark}
    if matrix.rows and matrix.lowest < mark:
        con.execute(sql_matrix.drop_older(part, batch.emitter), marked).fetchall()
    again = matrix.highest == mark
    if again:
        con.execute(sql_matrix.drop_changed(part), keys).fetchall()
    con.execute(sql_matrix.insert(part, batch.emitter, all_new=not again), marked).fetchall()
    del incoming
