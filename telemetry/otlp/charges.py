"""The cells of a bucket's interference matrix as one value. Owns how they become rows.

A minute of a thousand tenants has some forty thousand cells. What decodes and merges them needs no
object a cell; who counts or explains along asks for the rows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain, repeat
from typing import Any

from telemetry.records import Batch, InterferenceMinute

Cell = tuple[str, str]  # kind, holder
Cells = dict[Cell, float]
Group = tuple[float, str, str]  # bucket_start, victim, reason


@dataclass(frozen=True, slots=True)
class Charges:
    """In a decoded batch it stands among the minute rows, for all cells of its bucket."""

    bucket_start: float
    bucket_s: float
    engine: str
    run_id: str
    pool: str
    cells: dict[tuple[str, str], Cells]  # by victim and reason

    def __len__(self) -> int:
        return sum(map(len, self.cells.values()))

    def columns(self) -> dict[str, list[Any]]:
        """What differs from cell to cell, by column of `interference_minute`."""
        counts = list(map(len, self.cells.values()))
        victims, reasons = zip(*self.cells, strict=True)
        kinds, holders = zip(*chain.from_iterable(self.cells.values()), strict=True)
        return {
            "victim": list(chain.from_iterable(map(repeat, victims, counts))),
            "reason": list(chain.from_iterable(map(repeat, reasons, counts))),
            "holder_kind": list(kinds),
            "holder": list(holders),
            "charged_s": list(chain.from_iterable(c.values() for c in self.cells.values())),
        }

    def rows(self) -> list[InterferenceMinute]:
        """A row a cell. Filled slot by slot, as `Columns.made` fills."""
        kind = InterferenceMinute
        new = object.__new__
        rows = [new(kind) for _ in range(len(self))]
        if not rows:
            return []
        varying = self.columns()
        for f in fields(kind):
            values = varying.get(f.name)
            same = repeat(getattr(self, f.name)) if values is None else values
            deque(map(getattr(kind, f.name).__set__, rows, same), maxlen=0)
        return rows


def charges_of(groups: dict[Group, Cells], keys: dict[str, Any]) -> Iterator[Charges]:
    """One a bucket. `keys` are those of the delivery: bucket_s, engine, run_id, pool."""
    buckets: dict[float, dict[tuple[str, str], Cells]] = defaultdict(dict)
    for (start, victim, reason), cells in groups.items():
        buckets[start][victim, reason] = cells
    for start, of_bucket in buckets.items():
        yield Charges(bucket_start=start, cells=of_bucket, **keys)


def in_rows(batch: Batch) -> Batch:
    """The batch with a row a cell."""
    minutes: tuple[Any, ...] = batch.minutes
    if not any(type(row) is Charges for row in minutes):
        return batch
    return replace(batch, minutes=tuple(each_row(minutes)))


def each_row(minutes: Iterable[Any]) -> Iterator[Any]:
    for row in minutes:
        if type(row) is Charges:
            yield from row.rows()
        else:
            yield row
