"""A source for windows of many rows: what a report or a replay takes of them, and nothing else.

Owns which columns of a request are asked for, and what is read only once. Judges nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from telemetry.source import Source
from telemetry.window import Reads

_MINUTES = frozenset(("tenant_minute", "engine_minute"))


class Life(NamedTuple):
    """A row of `report_lives`: of a request what findings look at, and nothing else."""

    pool: str
    tenant: str
    arrived: float
    ended: float | None
    adapter: str | None


class Replayed(NamedTuple):
    """A row of `whatif_requests`: of a request what a replay needs, under the names of
    `RequestRecord`."""

    engine: str
    run_id: str
    pool: str
    tenant: str
    adapter: str | None
    outcome: str
    reject_reason: str | None
    is_retry: bool | None
    arrived: float
    first_token: float | None
    last_token: float | None
    ended: float | None
    prompt_tokens: int | None
    max_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    wait_front_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    max_gap_s: float | None


_QUERY: dict[type[Any], str] = {Life: "report_lives", Replayed: "whatif_requests"}


class _Charge(NamedTuple):
    """A row of `report_matrix`, which has what a window takes of a row of the matrix: there are
    hundreds of thousands, and a tuple is made in a tenth of the time."""

    bucket_start: float
    bucket_s: float
    pool: str
    victim: str
    reason: str
    holder_kind: str
    holder: str
    charged_s: float | None


class Sums:
    """Of requests comes what `of` holds, of those from `since` on: what else is told of them is
    asked for in sums. The matrix is added up over engines before it comes. Of minutes that were
    read only what lies before them is read again: a window is read twice to see how long its
    buckets are. `hurry` is called before every question, and may raise."""

    def __init__(
        self,
        source: Source,
        since: float = float("-inf"),
        of: type[Life] | type[Replayed] = Life,
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
            out += map(_Charge._make, answer.rows)
        return out


def replayable(source: Reads, hurry: Callable[[], None] = lambda: None) -> Reads:
    """The source as a replay reads its window; one that answers no queries as it is."""
    if not hasattr(source, "query"):
        return source
    return Sums(cast(Source, source), of=Replayed, hurry=hurry)


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
