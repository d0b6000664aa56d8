"""A batch too large for one request, cut into several of the same mark. Pure; encodes nothing.

A store takes messages up to a limit and takes a request as a whole, so that ten thousand tenants'
minute must go in parts. All that is a tenant's stays together: its row, and its row of the matrix
(the cells in which it is the victim). What belongs to nobody, the engine's own row first of all,
goes last, and so do log rows: who finds an engine's row without a tenant's beside it reads "idle",
and while parts are still on their way that would be wrong.

Parts bear the (sealed, seq) of the batch, so they may come in any order, again, or not at all. In a
store the first of them replaces an older matrix of the bucket and the others add to it: cells of
two deliveries never stand side by side, and each victim that is there has all its cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from telemetry.conventions import Emitter
from telemetry.records import Batch, InterferenceMinute, MinuteRow, TenantMinute
from telemetry.tables import TABLES

PORTION_BYTES = 8 << 20  # of a request, about
# What a row takes on the wire, about: a point a column, in each the tenant's name; or a cell.
_COLUMNS = {e: sum(c.emitter is e for c in TABLES["tenant_minute"].columns) for e in Emitter}
_POINT_BYTES, _HISTOGRAMS_BYTES, _CELL_BYTES = 64, 1_000, 48


def portions(batch: Batch, most_bytes: int = PORTION_BYTES) -> Iterator[Batch]:
    """The batch itself where it is small enough, else its parts, made as they are asked for."""
    if _size(batch) <= most_bytes:
        yield batch
        return
    of_tenant: dict[tuple[float, str], list[MinuteRow]] = {}
    of_nobody: list[MinuteRow] = []
    columns = _COLUMNS[batch.emitter]
    sizes: dict[tuple[float, str], int] = {}
    for row in batch.minutes:
        if type(row) is InterferenceMinute:
            whose = (row.bucket_start, row.victim)
            size = _CELL_BYTES + len(row.holder)
        elif type(row) is TenantMinute:
            whose = (row.bucket_start, row.tenant)
            size = _HISTOGRAMS_BYTES + columns * (_POINT_BYTES + len(row.tenant))
        else:
            of_nobody.append(row)
            continue
        if whose in sizes:
            of_tenant[whose].append(row)
            sizes[whose] += size
        else:
            of_tenant[whose] = [row]
            sizes[whose] = size
    held: list[MinuteRow] = []
    held_bytes = 0
    for whose, size in sizes.items():
        if held and held_bytes + size > most_bytes:
            yield _part(batch, held)
            held, held_bytes = [], 0
        held += of_tenant.pop(whose)
        held_bytes += size
    yield _part(batch, held + of_nobody, batch.logs)


def _size(batch: Batch) -> int:
    """Of all rows that are somebody's, without looking whose."""
    holders = [r.holder for r in batch.minutes if type(r) is InterferenceMinute]
    tenants = [r.tenant for r in batch.minutes if type(r) is TenantMinute]
    columns = _COLUMNS[batch.emitter]
    cells = _CELL_BYTES * len(holders) + sum(map(len, holders))
    a_tenant = _HISTOGRAMS_BYTES + columns * _POINT_BYTES
    return cells + a_tenant * len(tenants) + columns * sum(map(len, tenants))


def _part(batch: Batch, minutes: list[MinuteRow], logs: tuple[Any, ...] = ()) -> Batch:
    return replace(batch, minutes=tuple(minutes), logs=logs)
