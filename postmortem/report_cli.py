"""The command `postmortem report`: reads arguments, writes a report. Decides nothing about the
incident.

Exit codes: 0 a report, 1 nothing to report on, 2 usage, 3 the store is busy or does not answer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postmortem.asking import (
    NOTHING,
    USAGE,
    Where,
    asked,
    bounds_of,
    narrate,
    pool_option,
    say,
    span_of,
    span_options,
    stop,
    where,
    where_options,
    width,
)
from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from postmortem.report.model import Report
    from telemetry.source import Source

FORMS = ("term", "md", "html", "json")


@click.command()
@span_options
@where_options
@pool_option
@click.option("--format", "form", default="term", show_default=True, type=click.Choice(FORMS),
              help="How it is written. html is one page with charts that needs no network.",
              )  # fmt: skip
@click.option("-o", "--output", type=NamedPath(dir_okay=False, path_type=Path), default=None,
              help="Write to this file (replaced if it is there); - is stdout.")  # fmt: skip
@click.option("--for", "reader", default=None, metavar="TENANT",
              help="For this tenant's eyes: the others are called tenant A, tenant B, ...",
              )  # fmt: skip
@click.option("--what-if", "replay", is_flag=True,
              help="Replay it under other policies too, and name the cheapest remedy.",
              )  # fmt: skip
@click.option("--budget-s", default=60.0, show_default=True,
              type=Finite(0, min_open=True), help="What --what-if may take.",
              )  # fmt: skip
def report(
    begin: str,
    end: str,
    folder: str | None,
    address: str | None,
    pool: str | None,
    form: str,
    output: Path | None,
    reader: str | None,
    replay: bool,
    budget_s: float,
) -> None:
    """Who took the pool, whom it hurt, since when, and what it was not.

    Ask for the time it hurt; what was usual is taken from before it. A store that is being
    written is asked where it is.

    \b
    Examples:
      tenantscope postmortem report --store demo-store
      tenantscope postmortem report --store demo-store --from 17:00 --to 17:30
      tenantscope postmortem report --store demo-store --from 'last 30m' --format html -o r.html
      tenantscope postmortem report --store demo-store --for acme --format md -o for-acme.md
      tenantscope postmortem report --store demo-store --what-if --format html -o report.html
      tenantscope postmortem report --store demo-store --format json | jq .verdict.culprit
    """
    from postmortem.report.make import Wanted

    place = where(folder, address)
    if output is not None and str(output) == "-":
        output = None
    wanted = Wanted(pool, reader, budget_s if replay else None)
    with asked(place) as source:
        made = _make(source, begin, end, place, wanted)
    text = render_as(made, form, width() if output is None else 80)
    if output is None:
        say(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as e:
        raise stop(NOTHING, f"{output} cannot be written: {e.strerror}") from None
    narrate(f"written to {output}")


def _make(source: Source, begin: str, end: str, place: Where, wanted: object) -> Report:
    from postmortem.report.make import NotThere, Wanted, make_report
    from postmortem.report.parts import Context
    from telemetry.verdict import when
    from telemetry.window import PoolChoice

    assert isinstance(wanted, Wanted)
    span = span_of(source, place)
    bounds = bounds_of(begin, end, span)
    context = Context(place.place, place.live, wanted.pool is not None)
    line = _Line()
    try:
        return make_report(source, *bounds, wanted, context=context, hear=line.told)
    except PoolChoice as e:
        raise stop(USAGE, f"{e} (--pool)") from None
    except NotThere as e:
        covers = f"the store covers {when(span[0])} to {when(span[1])}"
        raise stop(NOTHING, f"{e}; {covers}") from None
    finally:
        line.end()


def render_as(made: Report, form: str, columns: int = 80) -> str:
    """The report's text in one of FORMS."""
    from postmortem.report import json, markdown, terminal

    if form == "json":
        return json.render(made)
    if form == "md":
        return markdown.render(made)
    if form == "html":
        from postmortem.report import html

        return html.render(made, say=narrate)
    return terminal.render(made, width=columns)


class _Line:
    """A line on stderr that tells how far the replays are, when somebody looks."""

    def __init__(self) -> None:
        self._drawn = False
        self._looked_at = sys.stderr is not None and sys.stderr.isatty()

    def told(self, told: object) -> None:
        if not self._looked_at:
            return
        self._drawn = True
        done, of = getattr(told, "done", 0), getattr(told, "of", 0)
        click.echo(f"\r\x1b[Kreplays: {done} of {of}", err=True, nl=False)

    def end(self) -> None:
        if self._drawn:
            click.echo("\r\x1b[K", err=True, nl=False)
