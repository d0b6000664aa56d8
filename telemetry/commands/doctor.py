"""The command `doctor`: one line a check on stdout. Exit codes: 0 in order or warned, 1 bad."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from telemetry.cli import spoken

_MARKS = {"ok": "ok  ", "warn": "WARN", "bad": "BAD "}


@click.command("doctor")
@click.option("--store", "folder", metavar="DIR", help="The store's folder.")
@click.option("--connect", "address", metavar="ADDR", help="The address of a live store.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of checks.")
def doctor(folder: str | None, address: str | None, as_json: bool) -> None:
    """Say whether telemetry is in order: a line a check, and what to do about it.

    Looks at the store's owner, how late the last minute is, gaps, clocks, open minutes, refused
    points, reported losses, the disk, spoiled files, the settings, listeners, certificates, what
    senders gave up and what the OTLP exports dropped.

    \b
    For example:
      tenantscope doctor --store telemetry-store
    """
    from telemetry import doctor as room

    where = folder or address
    if not where or (folder and address):
        raise click.UsageError("give --store DIR or --connect ADDR, one of them")
    with spoken():
        checks = room.judge(room.examine(where))
    if as_json:
        click.echo(json.dumps([asdict(c) for c in checks]))
    else:
        for check in checks:
            click.echo(f"{_MARKS[check.level]}  {check.what:<12}  {check.says}")
            if check.do:
                click.echo(f"{'':<20}-> {check.do}")
    if room.worst(checks) == room.BAD:
        sys.exit(1)
