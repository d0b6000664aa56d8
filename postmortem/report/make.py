"""Makes a report from a source: reads the window, asks what is not read, runs the what-if if told.

Owns what is read and in which order; decides nothing about the incident.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, NamedTuple

from postmortem.report.build import build_report
from postmortem.report.model import Report
from postmortem.report.parts import Context, Prevented
from postmortem.report.pseudonyms import pseudonyms, requests_seen_by, seen_by
from postmortem.report.requests import Life, Requests, of_rows, of_store, suspects
from telemetry.case import Case
from telemetry.errors import TelemetryError
from telemetry.source import Source
from telemetry.verdict import TENANT, judge
from telemetry.window import Window, read_window, tenants_of

Hear = Callable[[Any], None]
BEFORE_S = 600.0  # an incident may have begun before the window: so much of its requests is read


class NotThere(TelemetryError):
    """What was asked for is not in this window; the message says what is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which report. `budget_s` None = no what-if is run; else the seconds it may take."""

    pool: str | None = None
    reader: str | None = None
    budget_s: float | None = None


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
    """A source for windows of many rows. Of requests comes what findings look at, from `since` on:
    what is told of them is asked for in sums. The matrix is added up over engines before it comes.
    Of minutes that were read only what lies before them is read again: a window is read twice to
    see how long its buckets are."""

    def __init__(self, source: Source, since: float) -> None:
        self._source = source
        self._since = since
        self._last: dict[str, tuple[float, float, list[Any]]] = {}

    def read(self, table: str, start: float, end: float) -> list[Any]:
        if table == "request":
            answer = self._source.query("report_lives", start=max(start, self._since), end=end)
            return [Life._make(row) for row in answer.rows]
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
        return rows

    def _charges(self, start: float, end: float) -> list[Any]:
        known = self._last.get("engine_minute")
        out: list[Any] = []
        for pool in sorted({r.pool for r in known[2]}) if known is not None else ():
            answer = self._source.query("report_matrix", start=start, end=end, pool=pool)
            out += map(_Charge._make, answer.rows)
        return out


_MINUTES = frozenset(("tenant_minute", "engine_minute"))


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


def make_report(
    source: Source,
    start: float,
    end: float,
    wanted: Wanted = Wanted(),
    *,
    context: Context = Context(),
    zone: tzinfo | None = None,
    hear: Hear | None = None,
) -> Report:
    """The report on [start, end). Raises PoolChoice, NotThere and StoreError."""
    with uncollected():
        return _make(source, start, end, wanted, context, zone, hear)


def _make(
    source: Source,
    start: float,
    end: float,
    wanted: Wanted,
    context: Context,
    zone: tzinfo | None,
    hear: Hear | None,
) -> Report:
    replayed = wanted.budget_s is not None
    reads = source if replayed else Sums(source, start - BEFORE_S)
    window = read_window(reads, start, end, pool=wanted.pool)
    if not window.asked:
        raise NotThere("no bucket lies in this window")
    found = _what_if(source, window, wanted.budget_s, hear) if wanted.budget_s is not None else None

    def gather(case: Case) -> Requests:
        return of_rows(case) if replayed else of_store(source, case, suspects(case))

    if wanted.reader is None:
        return build_report(window, zone=zone, gather=gather, prevented=found, context=context)
    return _for(source, window, wanted.reader, found, zone)


def _for(
    source: Source, window: Window, reader: str, found: Prevented | None, zone: tzinfo | None
) -> Report:
    """Under other names from the first line on."""
    from postmortem.report.prevented import unnamed

    if reader not in tenants_of(window.buckets):
        raise NotThere(f"no tenant {reader!r} in this window (--for)")
    names = pseudonyms(window, reader)

    def gather(case: Case) -> Requests:
        # The spans are the case's, the names are the store's.
        real = replace(case, window=replace(case.window, pool=window.pool))
        return requests_seen_by(of_store(source, real, (reader,)), names)

    report = build_report(
        seen_by(window, names),
        zone=zone,
        gather=gather,
        prevented=None if found is None else unnamed(found),
    )
    return replace(report, one_for=reader)


def _what_if(source: Source, window: Window, budget_s: float, hear: Hear | None) -> Prevented:
    from postmortem.report.prevented import prevented
    from postmortem.whatif import Options, what_if, without_excess

    verdict = judge(window)
    options = Options(seeds=1, budget_s=budget_s)
    found = what_if(source, window.start, window.end, options=options, window=window, hear=hear)
    claim = None
    left_s = budget_s - found.wall_s
    if verdict.kind == TENANT and verdict.tenant is not None and found.baselines and left_s > 1:
        claim = without_excess(
            source, window.start, window.end, verdict.tenant,
            options=Options(seeds=1, budget_s=left_s), window=window,
        )  # fmt: skip
    return prevented(found, claim)
