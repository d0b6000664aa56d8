"""`tenantscope console export`: requests of a stretch of time as a trace, without a screen.

stdout is data: where the file is. Exit codes: 0 written, 1 nothing there or it failed, 2 usage, 3
the source does not answer.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from telemetry.named_path import NamedPath

DEFAULT_SPAN_S = 1800.0


@click.command("export")
@click.option("--store", "folder", envvar="TENANTSCOPE_STORE", metavar="DIR",
              help="A store's folder, or a serve's runtime folder.")  # fmt: skip
@click.option("--connect", "address", metavar="ADDR", help="The address of a live store.")
@click.option("--incident", metavar="NAME", help="A sample incident's record instead of a store.")
@click.option("--perfetto", is_flag=True, required=True, expose_value=False,
              help="As a trace for ui.perfetto.dev or chrome://tracing: a track a tenant, a slice"
              " a part of a request's life.")  # fmt: skip
@click.option("--from", "begin", metavar="TIME", default=None,
              help="17:00, 2026-11-29T17:00, 30m ago, start.  [default: 30m before --to]",
              )  # fmt: skip
@click.option("--to", "end", metavar="TIME", default="end", show_default=True)
@click.option("--into", metavar="DIR", default=".", show_default=True,
              type=NamedPath(file_okay=False, exists=True, path_type=Path),
              help="The folder that the file goes to; nothing there is replaced.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="What was written, as a JSON object.")
def export(
    folder: str | None, address: str | None, incident: str | None, begin: str | None,
    end: str, into: Path, as_json: bool,
) -> int:  # fmt: skip
    """Write what the console shows into a file that others can open.

    \b
    For example:
      tenantscope console export --perfetto --store telemetry-store --from 17:00 --to 17:30
      tenantscope console export --perfetto --incident five-pm-fanout --from start
    """
    from console.command import place_of
    from console.handover import files
    from console.handover.traces import write_trace
    from postmortem.times import TimeError, read_time
    from telemetry.plain import safe
    from telemetry.source import open_source

    where = place_of(folder, address, incident)
    source = open_source(where)
    try:
        span = source.span()
    finally:
        source.close()
    if span is None:
        click.echo("nothing is recorded there yet", err=True)
        return 1
    try:
        last = read_time(end, now=span[1], span=span, zone=None)
        first = last - DEFAULT_SPAN_S if begin is None else (
            read_time(begin, now=span[1], span=span, zone=None))  # fmt: skip
    except TimeError as e:
        raise click.UsageError(str(e)) from None
    if not first < last:
        raise click.UsageError("the stretch of time is empty: --from must lie before --to")
    name = files.file_name("trace", None, first, "json")
    try:
        made = write_trace(where, into, name, first, last)
    except OSError as e:
        click.echo(safe(files.why(e, into)), err=True)
        return 1
    if as_json:
        click.echo(json.dumps({"path": str(made.path), "requests": made.requests}))
    else:
        click.echo(safe(str(made.path)))
        click.echo(f"{made.requests} requests; open it in ui.perfetto.dev", err=True)
    for lack in made.partial:
        click.echo(safe(f"missing: {lack}"), err=True)
    return 0 if made.requests else 1
