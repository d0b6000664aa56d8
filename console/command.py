"""`tenantscope console`: which source is looked at, once or for as long as the reader stays.

stdout is data, stderr narration. Exit codes: 0 nothing is wrong, 1 it failed (with `--once`: an
incident is open), 2 usage, 3 the source does not answer (with `--once`: or anything else failed, or
its figures are old), 130 interrupted.
"""

from __future__ import annotations

import gc
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.handover.export_command import export
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from console.act.desk import Desk
    from console.app import ConsoleApp
    from console.early import Early
    from console.handover.hand import Hand
    from console.panels import Snapshot
    from console.settings import ConsoleSettings
    from console.sight import Edge, Sight

DEFAULT_STORE = "tenantscope-store"
SWITCH_S = 0.001
# A crowd's picture makes and drops a hundred thousand rows without a cycle among them: looking for
# one meanwhile would cost a tenth of it, and hold up the keys. The poller does, between pictures.
CYCLES = (300_000, 100, 100)


@click.group("console", invoke_without_command=True)
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
    "--page",
    metavar="NAME",
    help="With --once: heat, matrix, table, tenant, requests, adapters, events, policy."
    "  [default: overview]",
)
@click.option("--tenant", metavar="NAME", help="With --once --page tenant or requests: whose.")
@click.option(
    "--config",
    type=NamedPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Thresholds and first look (TOML; see docs/console.md).",
)
@click.option(
    "--admin",
    "doors",
    metavar="ADDR",
    multiple=True,
    help="An engine's operator's address, to act on it; several times for several engines."
    "  [default: TENANTSCOPE_ADMIN, else the socket beside a live store]",
)
@click.option(
    "--write-notes",
    is_flag=True,
    help="Let n write into a closed store's files; a live store takes notes anyway.",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
@click.pass_context
def console(
    ctx: click.Context, folder: str | None, address: str | None, speed: float | None,
    incident: str | None, pool: str | None, at: str | None, once: bool, as_json: bool,
    config: Path | None,
    doors: tuple[str, ...], write_notes: bool, ascii_only: bool, page: str | None,
    tenant: str | None,
) -> int:  # fmt: skip
    """Who holds the pool, who is hurt, since when, what changed.

    \b
    For example:
      tenantscope console --store telemetry-store
      tenantscope console --connect 127.0.0.1:7420
      tenantscope console --connect https://10.0.0.5:7420 --admin 10.0.0.5:9443
      tenantscope console --incident five-pm-fanout --replay 5
      tenantscope console --once --store telemetry-store || echo "somebody is hurt"
      tenantscope console --once --page heat --json --store telemetry-store
    """
    from console.early import Early
    from console.settings import ConsoleSettings, read_settings

    if ctx.invoked_subcommand is not None:
        return 0
    settings = ConsoleSettings() if config is None else read_settings(config)
    if doors and once:
        raise click.UsageError("--admin is for acting on a screen: leave out --once")
    if write_notes and (once or speed is not None or incident is not None):
        raise click.UsageError(
            "--write-notes is for a store on the screen: leave out --once, --replay and --incident"
        )
    if as_json and not once:
        raise click.UsageError("--json goes with --once")
    if page is not None or tenant is not None:
        _check_page(page, tenant, once)
    if speed is not None and (once or not 0.0 < speed < float("inf")):
        raise click.UsageError(
            "--replay plays on a screen: leave out --once" if once
            else f"--replay {speed:g}: expected a speed above 0"
        )  # fmt: skip
    where = place_of(folder, address, incident)
    sight = sight_of(where, speed, pool, first_look=not once and speed is None and at is None)
    if once:
        from console import once_command

        return once_command.once(
            sight, opening(where), read_time, at=at, shape=as_json, ascii_only=ascii_only,
            page=page or once_command.OVERVIEW, tenant=tenant,
        )  # fmt: skip
    # A folder that is none is said at once; what does not answer yet may come back.
    opening(where)().close()
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # where the screen is drawn
        raise click.UsageError("the console needs a terminal: use --once in scripts")
    gc.set_threshold(*CYCLES)
    # A key goes through three threads: while the feed's adds up a crowd, each wait for it is short.
    sys.setswitchinterval(SWITCH_S)
    feed = Early(sight)
    try:
        if at is None:
            feed.start()  # its store answers while the screen is still being loaded
        desk = _desk(where, doors, recorded=speed is not None or incident is not None)
        hand = _hand(where, address, incident, recorded=speed is not None, notes=write_notes)
        app = _app(feed, at, settings, ascii_only, desk, hand)
    except BaseException:
        feed.close()
        raise
    return app.show()


def _check_page(page: str | None, tenant: str | None, once: bool) -> None:
    from console.pages import PAGES
    from console.screens import OF_A_TENANT

    if not once:
        raise click.UsageError("--page and --tenant go with --once: on the screen press its key")
    if page is not None and page not in PAGES:
        raise click.UsageError(
            f"--page {page}: there is no such page; there are {', '.join(PAGES)}"
        )
    if page == "tenant" and tenant is None:
        raise click.UsageError("--page tenant and --tenant NAME go together")
    if tenant is not None and page not in OF_A_TENANT:
        raise click.UsageError("--tenant NAME goes with --page tenant or --page requests")


def _hand(
    where: str, address: str | None, incident: str | None, *, recorded: bool, notes: bool
) -> Hand:
    from console.handover.hand import Hand, Place

    options = ("--connect" if address else "--store", where)
    if incident is not None:
        options = ("--incident", incident)
    return Hand(Place(where, options, recorded or incident is not None, notes))


def _desk(where: str, doors: tuple[str, ...], *, recorded: bool) -> Desk:
    from console.act.hand import DoorShut
    from console.act.open import open_desk

    try:
        return open_desk(where, doors, recorded=recorded)
    except DoorShut as e:
        raise click.UsageError(str(e)) from None


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


def sight_of(
    where: str, speed: float | None, pool: str | None, *, first_look: bool = False
) -> Sight:
    """The feed of a place: live where a process answers for it, else the record's end.
    `first_look`: its first picture is a quick one."""
    from console.sight import LiveEdge, RecordEdge, ReplayEdge, Sight
    from telemetry.source import live_addresses

    edge: Edge
    if speed is not None:
        edge = ReplayEdge(speed)
    elif live_addresses(where) or Path(where).suffix == ".sock":
        edge = LiveEdge()
    else:
        edge = RecordEdge()
    return Sight(opening(where), edge, pool=pool, first_look=first_look)


def read_time(text: str, seen: Snapshot) -> float:
    """An instant as a person types it, against what is on the screen. Raises ValueError."""
    from postmortem.times import TimeError, read_time

    begin = seen.data_at
    if seen.trend is not None and seen.data_at is not None:
        # The end of the first bucket that has figures: at its start there is nothing to see yet.
        known = [i for i, x in enumerate(seen.trend.share) if x is not None]
        first = known[0] if known else 0
        bucket_s = seen.trend.bucket_s
        last = math.ceil(seen.data_at / bucket_s) * bucket_s
        begin = min(seen.data_at, last - bucket_s * (len(seen.trend.share) - first - 1))
    now = seen.edge if seen.edge is not None else seen.now
    try:
        return read_time(text, now=now, span=(begin or now, now), zone=None)
    except TimeError as e:
        raise ValueError(str(e)) from None


def _app(
    feed: Early, at: str | None, settings: ConsoleSettings, ascii_only: bool, desk: Desk,
    hand: Hand,
) -> ConsoleApp:  # fmt: skip
    from console.app import ConsoleApp
    from console.lines import ASCII, glyphs_for

    began: float | None = None
    if at is not None:
        try:
            began = read_time(at, feed.snapshot())
        except ValueError as e:
            raise click.UsageError(str(e)) from None
    plain = ascii_only or glyphs_for(sys.stdout.encoding) is ASCII
    gc.freeze()
    return ConsoleApp(feed, read_time=read_time, settings=settings, ascii_only=plain, at=began,
                      desk=desk, hand=hand)  # fmt: skip


console.add_command(export)
