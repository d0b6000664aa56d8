"""The SQL by which a bucket's interference matrix is replaced as a whole. Builds text only.

`incoming` in it is the caller's dictionary of columns, which DuckDB scans in place. Parameters:
engine, run_id, pool; bucket_start and bucket_s of one bucket, or low and high; the delivery's mark.
"""

from __future__ import annotations

from functools import cache

from telemetry.conventions import Emitter
from telemetry.store import sql

MATRIX, ENGINE = "interference_minute", "engine_minute"
CELL = ("victim", "reason", "holder_kind", "holder")  # what tells the rows of a bucket apart
_OF_RUN = '"engine" = $engine AND "run_id" = $run_id AND "pool" = $pool'
_OF_BUCKET = f'{_OF_RUN} AND "bucket_start" = $bucket_start AND "bucket_s" = $bucket_s'


def _marks(emitter: Emitter) -> tuple[str, str]:
    """The columns of this writer's mark and of the other one's."""
    other = Emitter.FRONT if emitter is Emitter.WORKER else Emitter.WORKER
    return f'"{emitter.value}_mark"', f'"{other.value}_mark"'


@cache
def standing(part: str, emitter: Emitter) -> str:
    """What stands: a row a bucket and table, with how many rows, the lowest and the highest mark,
    and how many rows another writer has touched."""
    own, other = _marks(emitter)
    return " UNION ALL ".join(
        f'SELECT \'{table}\', "bucket_start", "bucket_s", count(*), min({own}), max({own}), '
        f"count(*) FILTER ({own} IS NULL OR {other} IS NOT NULL) "
        f"FROM {sql.in_part(part, table)} "
        f'WHERE {_OF_RUN} AND "bucket_start" BETWEEN $low AND $high '
        'GROUP BY "bucket_start", "bucket_s"'
        for table in (MATRIX, ENGINE)
    )


@cache
def drop_older(part: str, emitter: Emitter) -> str:
    """Rows of the bucket under the mark go."""
    own, _ = _marks(emitter)
    return f"DELETE FROM {sql.in_part(part, MATRIX)} WHERE {_OF_BUCKET} AND {own} < $mark"


@cache
def drop_changed(part: str) -> str:
    """Rows of the bucket that come again with another value go."""
    same = " AND ".join(f'm."{c}" = i."{c}"' for c in CELL)
    return (
        f"DELETE FROM {sql.in_part(part, MATRIX)} AS m USING incoming AS i "
        f'WHERE {_OF_BUCKET} AND {same} AND m."charged_s" IS DISTINCT FROM i."charged_s"'
    )


@cache
def insert(part: str, emitter: Emitter, *, all_new: bool) -> str:
    """The incoming rows; unless `all_new`, those that do not stand there already."""
    own, _ = _marks(emitter)
    keys = ("engine", "run_id", "pool", "bucket_start", "bucket_s")
    given = {f'"{k}"': f"${k}" for k in keys}
    given |= {f'"{c}"': f'i."{c}"' for c in (*CELL, "charged_s")}
    given |= {own: "$mark", '"provisional"': f"$mark < {sql.SEALED_MARK}"}
    into = f"{sql.in_part(part, MATRIX)} ({', '.join(given)})"
    text = f"INSERT INTO {into} SELECT {', '.join(given.values())} FROM incoming AS i"
    if all_new:
        return text
    same = " AND ".join(f'm."{c}" = i."{c}"' for c in CELL)
    standing_already = f"SELECT 1 FROM {sql.in_part(part, MATRIX)} AS m WHERE {_OF_BUCKET}"
    return f"{text} WHERE NOT EXISTS ({standing_already} AND {same})"
