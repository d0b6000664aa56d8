"""Rows of an engine in this process, as a source: what a store would answer. Owns no judgement."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from telemetry.tables import TABLE_OF


class Kept:
    """The rows of a simulation, as a source: what a store would answer. Of a row that came more
    than once, open and then sealed, or from front and worker, the columns that came last."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[tuple[Any, ...], Any]] = {}

    def submit(self, batch: Any) -> None:
        for row in (*batch.minutes, *batch.logs):
            table = TABLE_OF[type(row)]
            rows = self._rows.setdefault(table.name, {})
            key = tuple(getattr(row, k) for k in table.key)
            was = rows.get(key)
            rows[key] = row if was is None or table.name not in _TWICE else _over(was, row)

    def read(self, table: str, start: float, end: float) -> list[Any]:
        rows = self._rows.get(table, {}).values()
        if table in ("engine_run", "adapter"):
            return [*rows]
        return [r for r in rows if start <= _at(r) < end]


_TWICE = frozenset(("tenant_minute", "request"))  # written by the front and by a worker


def _over(was: Any, row: Any) -> Any:
    """The row, with what the one before knew and this one does not."""
    known = {
        f.name: value
        for f in fields(row)
        if getattr(row, f.name) is None and (value := getattr(was, f.name)) is not None
    }
    return replace(row, **known) if known else row


def _at(row: Any) -> float:
    for name in ("bucket_start", "arrived", "at"):
        if hasattr(row, name):
            return float(getattr(row, name))
    raise TypeError(f"{type(row).__name__} has no instant")
