"""`tenantscope console`: which source is looked at, once or for as long as the reader stays.

stdout is data, stderr narration. Exit codes: 0 nothing is wrong, 1 an incident is open (with
`--once`) or it failed, 2 usage, 3 the source does not answer or holds nothing yet, 130 interrupted.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from console.panels import Snapshot
    from console.settings import ConsoleSettings
    from console.sight import Edge, Sight

DEFAULT_STORE = "tenantscope-store"
ONCE_LINES = 60
NOTHING_YET = 3  # no engine was heard: nobody can say that all is well


@click.command("console")
@click.option(
    "--store",
    "folder",
    envvar="TENANTSCOPE_STORE",
    metavar="DIR",
    help="A store's folder, a serve's runtime folder, or a Parquet file or folder."
    f"  [default: {DEFAULT_STORE}]",
)
@click.option(
    "--connect",
    "address",
    metavar="ADDR",
    help="The address of a live store, or of a worker (unix:/path/worker.sock).",
)
@click.option(
    "--replay",
    "speed",
    type=float,
    metavar="SPEED",
    help="Play the record from its beginning, so many times as fast.",
)
@click.option("--incident", metavar="NAME", help="A sample incident's record instead of a store.")
@click.option("--pool", metavar="NAME", help="Which pool; else the one heard last.")
@click.option("--at", metavar="TIME", help="As it was then: 17:03, 2026-11-29T17:03, 5m ago, end.")
@click.option("--once", is_flag=True, help="Print the overview once; exit code 1: incident open.")
@click.option("--json", "as_json", is_flag=True, help="With --once: as JSON.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Thresholds and first look (TOML; see docs/console.md).",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
def console(
    folder: str | None, address: str | None, speed: float | None, incident: str | None,
    pool: str | None, at: str | None, once: bool, as_json: bool, config: Path | None,
    ascii_only: bool,
) -> int:  # fmt: skip
    """Who holds the pool, who is hurt, since when, what changed.

    \b
    For example:
      tenantscope console --store telemetry-store
      tenantscope console --connect 127.0.0.1:7420
      tenantscope console --incident five-pm-fanout --replay 5
      tenantscope console --once --store telemetry-store || echo "somebody is hurt"
    """
    from console.settings import ConsoleSettings, read_settings

    settings = ConsoleSettings() if config is None else read_settings(config)
    if as_json and not once:
        raise click.UsageError("--json goes with --once")
    if speed is not None and (once or not 0.0 < speed < float("inf")):
        raise click.UsageError(
            "--replay plays on a screen: leave out --once" if once
            else f"--replay {speed:g}: expected a speed above 0"
        )  # fmt: skip
    where = place_of(folder, address, incident)
    sight = sight_of(where, speed, pool)
    # A folder that is none is said at once; what does not answer yet may come back.
    opening(where)().close()
    if once:
        return _once(sight, where, at, as_json, ascii_only)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # where the screen is drawn
        raise click.UsageError("the console needs a terminal: use --once in scripts")
    return _run(sight, where, at, settings, ascii_only)


def place_of(folder: str | None, address: str | None, incident: str | None) -> str:
    """What is looked at, as `telemetry.source.open_source` takes it. Raises UsageError."""
    from click.core import ParameterSource

    given = click.get_current_context().get_parameter_source("folder")
    if given is ParameterSource.ENVIRONMENT and (address or incident):
        folder = None
    named = [x for x in (folder, address, incident) if x is not None]
    if len(named) > 1:
        raise click.UsageError("give --store DIR, --connect ADDR or --incident NAME, one of them")
    if named and not named[0].strip():
        raise click.UsageError("the place to look at is empty: give a folder or an address")
    if incident is not None:
        from sample_incidents import incident_path

        return str(incident_path(incident) / "store")
    return named[0] if named else DEFAULT_STORE


def opening(where: str) -> Any:
    """What opens the source at a place, again and again."""

    def opened() -> Any:
        from telemetry.source import open_source

        return open_source(where)

    return opened


def sight_of(where: str, speed: float | None, pool: str | None) -> Sight:
    """The feed of a place: live where a process answers for it, else the record's end."""
    from console.sight import LiveEdge, RecordEdge, ReplayEdge, Sight
    from telemetry.source import live_addresses

    edge: Edge
    if speed is not None:
        edge = ReplayEdge(speed)
    elif live_addresses(where) or Path(where).suffix == ".sock":
        edge = LiveEdge()
    else:
        edge = RecordEdge()
    return Sight(opening(where), edge, pool=pool)


def read_time(text: str, seen: Snapshot) -> float:
    """An instant as a person types it, against what is on the screen. Raises ValueError."""
    from postmortem.times import TimeError, read_time

    begin = seen.data_at if seen.trend is None or seen.data_at is None else (
        seen.data_at - seen.trend.bucket_s * len(seen.trend.share))  # fmt: skip
    now = seen.edge if seen.edge is not None else seen.now
    try:
        return read_time(text, now=now, span=(begin or now, now), zone=None)
    except TimeError as e:
        raise ValueError(str(e)) from None


def _once(sight: Sight, where: str, at: str | None, as_json: bool, ascii_only: bool) -> int:
    from console.lines import ASCII, glyphs_for
    from console.once import as_json as shape
    from console.once import is_open, open_incidents
    from console.overview import Look, plain_text
    from telemetry.plain import safe

    try:
        picture = sight.snapshot()
        if at is not None:
            try:
                picture = sight.at(read_time(at, picture))
            except ValueError as e:
                raise click.UsageError(str(e)) from None
    finally:
        sight.close()
    incidents: tuple[str, ...] = ()
    if at is None:
        source = opening(where)()
        try:
            incidents = open_incidents(source, time.time())
        finally:
            source.close()
    if as_json:
        click.echo(json.dumps(shape(picture, incidents), allow_nan=False))
    else:
        glyphs = ASCII if ascii_only else glyphs_for(sys.stdout.encoding)
        cells = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
        text = plain_text(picture, cells, ONCE_LINES, Look(glyphs=glyphs))
        encoding = sys.stdout.encoding or "utf-8"  # a name may hold what it cannot show
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False)
        for name in incidents:
            click.echo(f"open: {safe(name)}", err=True)
    if is_open(picture, incidents):
        return 1
    return 0 if picture.account is not None else NOTHING_YET


def _run(
    sight: Sight, where: str, at: str | None, settings: ConsoleSettings, ascii_only: bool
) -> int:
    from console.app import ConsoleApp
    from console.lines import ASCII, glyphs_for

    began: float | None = None
    if at is not None:
        try:
            began = read_time(at, sight.snapshot())
        except ValueError as e:
            raise click.UsageError(str(e)) from None
    plain = ascii_only or glyphs_for(sys.stdout.encoding) is ASCII
    app = ConsoleApp(sight, read_time=read_time, settings=settings, ascii_only=plain, at=began)
    return app.show()
