"""The command `postmortem`: reads arguments, prints a report. Decides nothing about the incident.

stdout is data, stderr is narration. Exit codes: 0 a report, 1 nothing to report on, 2 usage,
3 the store is busy or does not answer (trying again can help).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from postmortem.report.model import Report
    from telemetry.source import Source

NOTHING, USAGE, BUSY = 1, 2, 3
DEFAULT_STORE = "tenantscope-store"


@click.group()
def postmortem() -> None:
    """Explain an incident from what was stored.

    \b
    Example, the morning after:
      tenantscope postmortem report --store demo-store --from 17:00 --to 17:30
    """


@postmortem.command()
@click.option("--from", "begin", default="start", show_default=True, help=(
    "When the window begins: 17:00 (the last one so far), 2026-11-29T17:00, 17:00Z, unix "
    "seconds, 30m ago, 'last 30m' (before --to), or start of the store."
))  # fmt: skip
@click.option("--to", "end", default="end", show_default=True,
              help="When it ends; same forms. A time of day is the next one after --from.",
              )  # fmt: skip
@click.option("--store", "where", default=DEFAULT_STORE, show_default=True,
              envvar="TENANTSCOPE_STORE", metavar="DIR|ADDR",
              help="A store's folder, or the address of a live one.")  # fmt: skip
@click.option("--pool", default=None, help="Which pool, where the store holds several.")
@click.option("--format", "form", default="term", show_default=True,
              type=click.Choice(["term", "md", "json"]), help="How it is written.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Write to this file (replaced if it is there); - is stdout.")  # fmt: skip
def report(
    begin: str, end: str, where: str, pool: str | None, form: str, output: Path | None
) -> None:
    """Who took the pool, whom it hurt, since when, and what it was not.

    Ask for the time it hurt; what was usual is taken from before it. A store that is being
    written is asked where it is.

    \b
    Examples:
      tenantscope postmortem report --store demo-store
      tenantscope postmortem report --store demo-store --from 17:00 --to 17:30
      tenantscope postmortem report --store demo-store --from 'last 30m' --format md -o report.md
      tenantscope postmortem report --store demo-store --format json | jq .verdict.culprit
    """
    from telemetry.errors import StoreBusy, StoreUnreachable, TelemetryError
    from telemetry.source import open_source

    if not where.strip():
        raise _stop(USAGE, "--store is empty: give a store's folder or a live one's address")
    if output is not None and str(output) == "-":
        output = None
    try:
        source = open_source(where)
        try:
            made = _make(source, begin, end, pool, where)
        finally:
            source.close()
    except (StoreBusy, StoreUnreachable) as e:
        raise _stop(BUSY, str(e)) from None
    except TelemetryError as e:
        hint = "" if Path(where).is_dir() else " (--store)"
        raise _stop(NOTHING, f"{e}{hint}") from None
    text = _render(made, form, output)
    if output is None:
        _print(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as e:
        raise _stop(NOTHING, f"{output} cannot be written: {e.strerror}") from None
    click.echo(f"written to {output}", err=True)


def _make(source: Source, begin: str, end: str, pool: str | None, where: str) -> Report:
    from postmortem.report.build import build_report
    from postmortem.times import TimeError, outside, read_bounds
    from telemetry.verdict import when
    from telemetry.window import PoolChoice, read_window

    span = source.span()
    if span is None:
        raise _stop(NOTHING, f"the store {where} holds no telemetry yet; is it the right folder?")
    try:
        bounds = read_bounds(begin, end, now=time.time(), span=span, zone=None)
    except TimeError as e:
        raise _stop(USAGE, str(e)) from None
    empty = outside(bounds, span, None)
    if empty is not None:
        raise _stop(NOTHING, empty)
    click.echo(f"window: {when(bounds[0])} to {when(bounds[1])} (local time)", err=True)
    try:
        window = read_window(source, *bounds, pool=pool)
    except PoolChoice as e:
        raise _stop(USAGE, f"{e} (--pool)") from None
    if not window.asked:
        covers = f"the store covers {when(span[0])} to {when(span[1])}"
        raise _stop(NOTHING, f"no bucket lies in this window; {covers}")
    return build_report(window)


def _render(made: Report, form: str, output: Path | None) -> str:
    from postmortem.report import json, markdown, terminal

    if form == "json":
        return json.render(made)
    if form == "md":
        return markdown.render(made)
    import shutil

    wide = output is None and sys.stdout is not None and sys.stdout.isatty()
    return terminal.render(made, width=shutil.get_terminal_size((80, 24)).columns if wide else 80)


def _print(text: str) -> None:
    """To stdout, whatever its encoding can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    click.echo(text, nl=False)


def _stop(code: int, message: str) -> SystemExit:
    from telemetry.plain import safe

    click.echo(f"postmortem: {safe(message)}", err=True)
    return SystemExit(code)
