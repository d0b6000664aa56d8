"""A source for windows of many rows: what a report or a replay takes of them, and nothing else.

Owns which columns of a request are asked for, and what is read only once. Judges nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from telemetry.ask.reading import filled
from telemetry.ask.rows_report import ReportLives, WhatifRequests
from telemetry.coded import CodedMatrix
from telemetry.records import TenantMinute
from telemetry.source import Source
from telemetry.window import Reads

_MINUTES = frozenset(("tenant_minute", "engine_minute"))


_QUERY: dict[type[Any], str] = {ReportLives: "report_lives", WhatifRequests: "whatif_requests"}


class Sums:
    """Of requests comes what `of` holds, of those from `since` on: what else is told of them is
    asked for in sums. Of tenants' minutes come the columns of `report_minutes`, and the matrix
    comes as columns. Of minutes that were read only what lies before them is read again: a window
    is read twice to see how long its buckets are. `hurry` is called before every question, and may
    raise."""

    def __init__(
        self,
        source: Source,
        since: float = float("-inf"),
        of: type[ReportLives] | type[WhatifRequests] = ReportLives,
        hurry: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._since = since
        self._of = of
        self._hurry = hurry
        self._last: dict[str, tuple[float, float, list[Any]]] = {}
        self._pools: set[str] = set()

    def read(self, table: str, start: float, end: float) -> list[Any]:
        self._hurry()
        if table == "request":
            answer = self._source.query(_QUERY[self._of], start=max(start, self._since), end=end)
            return _named(self._of, answer.rows)
        if table == "interference_minute":
            return self._charges(start, end)
        if table not in _MINUTES:
            return self._source.read(table, start, end)
        was = self._last.get(table)
        if was is None or was[1] != end or start > was[0]:
            rows = self._minutes(table, start, end)
        elif start < was[0]:
            rows = [*self._minutes(table, start, was[0]), *was[2]]
        else:
            rows = was[2]
        self._last[table] = (start, end, rows)
        if table == "engine_minute":
            self._pools.update(r.pool for r in rows)
        return rows

    def span(self) -> tuple[float, float] | None:
        return self._source.span()

    def _minutes(self, table: str, start: float, end: float) -> list[Any]:
        if table != "tenant_minute":
            return self._source.read(table, start, end)
        answer = self._source.query("report_minutes", start=start, end=end)
        return filled(TenantMinute, answer.columns, answer.rows)

    def _charges(self, start: float, end: float) -> list[Any]:
        out: list[Any] = []
        for pool in sorted(self._pools):
            self._hurry()
            answer = self._source.query("report_matrix", start=start, end=end, pool=pool)
            out.append(CodedMatrix.of_rows(pool, answer.rows))
        return out


def _named(kind: type[Any], rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Rows of a query as its named tuples, without counting the columns of each."""
    new = tuple.__new__
    return [new(kind, row) for row in rows]


def replayable(source: Reads, hurry: Callable[[], None] = lambda: None) -> Reads:
    """The source as a replay reads its window; one that answers no queries as it is."""
    if not hasattr(source, "query"):
        return source
    return Sums(cast(Source, source), of=WhatifRequests, hurry=hurry)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the cycle collector: hundreds of thousands of rows are made, none in a cycle, and
    looking for one takes as long as making them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
