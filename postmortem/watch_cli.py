"""The command `postmortem watch`: looks at a store again and again, writes drafts. Owns the loop.

Exit codes: 0 (`--once`: drafts written), 1 (`--once`: none), 2 usage, 3 (`--once`: the store is
busy or does not answer), 130 interrupted.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postmortem.asking import (
    BUSY,
    NOTHING,
    USAGE,
    Where,
    asked,
    narrate,
    pool_option,
    say,
    span_of,
    stop,
    where,
    where_options,
)
from postmortem.report_cli import render_as
from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from postmortem.report.model import Report
    from postmortem.watch import Closed, Watch
    from telemetry.source import Source

FORMS = ("md", "html", "json")


@click.command()
@where_options
@pool_option
@click.option("--out", "drafts", default="drafts", show_default=True, metavar="DIR",
              type=NamedPath(file_okay=False, path_type=Path), help="Where drafts are written.",
              )  # fmt: skip
@click.option("--format", "form", default="md", show_default=True, type=click.Choice(FORMS))
@click.option("--since", default="1h ago", show_default=True,
              help="Incidents that closed before this are left alone.")  # fmt: skip
@click.option("--every-s", default=10.0, show_default=True, type=Finite(0.1, 3600),
              help="Seconds between two looks.")  # fmt: skip
@click.option("--once", is_flag=True, help="One look, then end.")
def watch(
    folder: str | None,
    address: str | None,
    pool: str | None,
    drafts: Path,
    form: str,
    since: str,
    every_s: float,
    once: bool,
) -> None:
    """Write a draft report when an incident closes: the facts, with blanks for people.

    A draft that is there is never written over. Ctrl-C ends it.

    \b
    Examples:
      tenantscope postmortem watch --store demo-store --out drafts
      tenantscope postmortem watch --store demo-store --since start --once
      tenantscope postmortem watch --connect 127.0.0.1:7420 --format html
    """
    place = where(folder, address)
    if once:
        with asked(place) as source:
            span_of(source, place)
            watcher = _watcher(source, place, drafts, form, since, pool)
            written = _look(watcher, source)
        if not written:
            narrate("no incident has closed since")
            raise SystemExit(NOTHING)
        return
    _follow(place, drafts, form, since, pool, every_s)


def _follow(
    place: Where, drafts: Path, form: str, since: str, pool: str | None, every_s: float
) -> None:
    """Looks until it is interrupted. A store that is away for a while is told once."""
    watcher: Watch | None = None
    away, pause = False, threading.Event()
    while True:
        try:
            with asked(place) as source:
                watcher = watcher or _watcher(source, place, drafts, form, since, pool)
                _look(watcher, source)
            away = False
        except SystemExit as e:
            # `asked` has said why. What trying again cannot help ends it.
            if e.code != BUSY:
                raise
            if not away:
                narrate(f"looking again every {every_s:g} s; Ctrl-C ends this")
            away = True
        pause.wait(every_s)


def _look(watcher: Watch, source: Source) -> int:
    """Tells every draft's path on stdout, and on stderr what could not be made."""
    written = 0
    # An engine's clock, or a simulated one, may be ahead of this machine's.
    span = source.span()
    now = max(time.time(), time.time() if span is None else span[1])
    for draft in watcher.look(source, now):
        if draft.path is None:
            narrate(f"{draft.closed.id}: no draft: {draft.why}")
        else:
            written += 1
            say(f"{draft.path}\n")
    return written


def _watcher(
    source: Source, place: Where, folder: Path, form: str, since: str, pool: str | None
) -> Watch:
    from postmortem.report.make import Wanted, make_report
    from postmortem.report.parts import Context
    from postmortem.times import TimeError, read_time
    from postmortem.watch import Watch

    span = source.span() or (time.time(), time.time())
    try:
        begin = read_time(since, now=time.time(), span=span, zone=None)
    except TimeError as e:
        raise stop(USAGE, f"--since: {e}") from None
    context = Context(place.place, place.live, True)

    def make(source: Source, closed: Closed) -> Report:
        return make_report(source, closed.start, closed.end, Wanted(closed.pool), context=context)

    return Watch(folder, form, make, lambda r: render_as(r, form), since=begin, pool=pool)
