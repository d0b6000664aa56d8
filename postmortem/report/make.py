"""Makes a report from a source: reads the window, asks what is not read, runs the what-if if told.

Owns what is read and in which order; decides nothing about the incident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

from postmortem.report.build import build_report
from postmortem.report.model import Report
from postmortem.report.parts import Context, Prevented
from postmortem.report.pseudonyms import pseudonyms, requests_seen_by, seen_by
from postmortem.report.requests import Requests, of_store, suspects
from postmortem.summed import Sums, uncollected
from telemetry.ask.rows_report import WhatifRequests
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
    reads = Sums(source, of=WhatifRequests) if replayed else Sums(source, start - BEFORE_S)
    window = read_window(reads, start, end, pool=wanted.pool)
    if not window.asked:
        raise NotThere("no bucket lies in this window")
    found = _what_if(source, window, wanted.budget_s, hear) if wanted.budget_s is not None else None

    def gather(case: Case) -> Requests:
        return of_store(source, case, suspects(case))

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
