"""A source for windows of many rows: what a report or a replay takes of them, and nothing else.

Owns which columns of a request are asked for, and what is read only once. Judges nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from telemetry.ask.rows_report import ReportLives, ReportMatrix, WhatifRequests
from telemetry.source import Source
from telemetry.window import Reads

_MINUTES = frozenset(("tenant_minute", "engine_minute"))


_QUERY: dict[type[Any], str] = {ReportLives: "report_lives", WhatifRequests: "whatif_requests"}


class Sums:
    """Of requests comes what `of` holds, of those from `since` on: what else is told of them is
    asked for in sums. The matrix is added up over engines before it comes. Of minutes that were
    read only what lies before them is read again: a window is read twice to see how long its
    buckets are. `hurry` is called before every question, and may raise."""

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
            return [*map(self._of._make, answer.rows)]
        if table == "interference_minute":
            return self._charges(start, end)
        if table not in _MINUTES:
            return self._source.read(table, start, end)
        was = self._last.get(table)
        if was is None or was[1] != end or start > was[0]:
            rows = self._source.read(table, start, end)
        elif start < was[0]:
            rows = [*self._source.read(table, start, was[0]), *was[2]]
        else:
            rows = was[2]
        self._last[table] = (start, end, rows)
        if table == "engine_minute":
            self._pools.update(r.pool for r in rows)
        return rows

    def span(self) -> tuple[float, float] | None:
        return self._source.span()

    def _charges(self, start: float, end: float) -> list[Any]:
        out: list[Any] = []
        for pool in sorted(self._pools):
            self._hurry()
            answer = self._source.query("report_matrix", start=start, end=end, pool=pool)
            out += map(ReportMatrix._make, answer.rows)
        return out


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
