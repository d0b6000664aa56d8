"""The commands of `store` that keep it in order: size, retention, backup, restore, forget.

Each works on a closed folder and through the store process that has it. Exit codes as in
`telemetry.cli`: 0 done, 1 failed, 2 usage, 3 busy.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from telemetry.cli import safe, say_partial, spoken, table
from telemetry.named_path import NamedPath, NamedPlace

if TYPE_CHECKING:
    from telemetry.ask.reading import Result

_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of the table.")
_STORE = click.option("--store", "folder", metavar="DIR", help="The store's folder.")
_CONNECT = click.option("--connect", "address", metavar="ADDR", help="The address of a live store.")
_DRY = click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")


@click.command("size")
@click.argument("where", type=NamedPlace())
@_JSON
def size(where: str, as_json: bool) -> None:
    """Bytes and rows a table and day, the growth a day, and the day the disk fills.

    \b
    For example:
      tenantscope store size telemetry-store
    """
    from telemetry.instants import day_of
    from telemetry.settings import SettingsError
    from telemetry.store import retention, sizes, upkeep

    with spoken():
        measured = upkeep.perform(where, upkeep.SIZES)
        folder = _folder_of(where)
        try:
            kept = retention.read_settings(folder)
        except SettingsError as e:
            click.echo(f"store: {e}: the defaults are taken", err=True)
            kept = retention.DEFAULT
    if not folder.is_dir():
        _size_elsewhere(measured, folder, as_json)
        return
    free = shutil.disk_usage(folder).free
    said = sizes.forecast(measured, free, day_of(time.time()), kept)
    total = sum(row[3] for row in measured.rows)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "store": str(folder),
                    "bytes": total,
                    "quarantine_bytes": sizes.extra_bytes(folder),
                    "tables": [
                        row | {"bytes_a_row": row["bytes"] / row["rows"]}
                        for row in measured.dicts()
                    ],
                    **asdict(said),
                }
            )
        )
        return
    click.echo(_size_table(measured))
    click.echo(f"\ntotal      {_bytes(total)}")
    aside = sizes.extra_bytes(folder)
    if aside:
        click.echo(f"quarantine {_bytes(aside)}")
    click.echo(f"free       {_bytes(said.free_bytes)}")
    click.echo(f"growth     {_growth(said)}")
    click.echo(f"disk full  {_fills(said)}")


def _size_elsewhere(measured: Result, folder: Path, as_json: bool) -> None:
    """Of a live store on another machine: its rows, but not its disk."""
    total = sum(row[3] for row in measured.rows)
    if as_json:
        tables = [row | {"bytes_a_row": row["bytes"] / row["rows"]} for row in measured.dicts()]
        click.echo(json.dumps({"store": str(folder), "bytes": total, "tables": tables}))
        return
    click.echo(_size_table(measured))
    click.echo(f"\ntotal      {_bytes(total)}")
    click.echo(f"{safe(str(folder))} is on another machine: ask there when it fills", err=True)


def _size_table(measured: Result) -> str:
    from telemetry.ask.reading import Result as Rows

    lines = [
        (day, name, rows, stored, round(stored / rows, 1), "open" if is_open else "closed")
        for day, name, rows, stored, is_open in measured.rows
    ]
    return table(Rows(("day", "table", "rows", "bytes", "bytes/row", "part"), tuple(lines)))


def _growth(said: Any) -> str:
    if said.growth_bytes_a_day is None:
        return f"unknown: {said.days} whole day(s) stored, it takes 2"
    return f"{_bytes(said.growth_bytes_a_day)} a day, over the last {said.days} days with rows"


def _fills(said: Any) -> str:
    if said.growth_bytes_a_day is None:
        return "unknown"
    if said.fills_on is not None:
        return f"{said.fills_on} at that rate, with what retention gives back"
    if said.steady_bytes is not None:
        return f"not at that rate: retention holds the store at {_bytes(said.steady_bytes)}"
    return "not within ten years at that rate"


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


@click.command("retention")
@click.argument("where", type=NamedPlace())
@_DRY
@_JSON
def retention(where: str, dry_run: bool, as_json: bool) -> None:
    """Drop now what is older than it is kept. The store's owner does it at each day's turn.

    How long each table is kept stands in settings.toml in the store's folder, in whole days or
    "forever"; today's rows are never dropped, and runs always stay.

    \b
    [retention]
    request = 30            # days after the day of the row
    tenant_minute = "forever"
    """
    from telemetry.store import upkeep

    with spoken():
        done = upkeep.perform(where, upkeep.RETENTION, dry_run=dry_run)
    _show(done, as_json, f"nothing is older than it is kept in {safe(where)}")
    if done.rows:
        verb = "would be dropped" if dry_run else "dropped"
        click.echo(f"{sum(r[2] for r in done.rows)} rows {verb}", err=True)


@click.command("backup")
@click.argument("target", type=NamedPath(path_type=Path))
@_STORE
@_CONNECT
@_JSON
def backup(target: Path, folder: str | None, address: str | None, as_json: bool) -> None:
    """Copy a store, live or closed, into a new folder or a .tar / .tar.gz file.

    Of a store that is written into the copy is one instant: every row acknowledged before it.

    \b
    For example:
      tenantscope store backup nightly.tar.gz --store telemetry-store
    """
    from telemetry.store import upkeep

    with spoken():
        # The store process writes it, from wherever it was started.
        where = str(target.absolute())
        done = upkeep.perform(_where(folder, address), upkeep.BACKUP, target=where)
    _show(done, as_json, "an empty store")
    click.echo(
        f"backed up to {safe(str(target))}: {_bytes(sum(r[2] for r in done.rows))}", err=True
    )


@click.command("restore")
@click.argument("source", metavar="BACKUP", type=NamedPath(path_type=Path))
@click.argument("folder", metavar="DIR", type=NamedPath(path_type=Path))
@_JSON
def restore(source: Path, folder: Path, as_json: bool) -> None:
    """Bring a backup back as a store in a new folder. Every file is checked against its hash.

    \b
    For example:
      tenantscope store restore nightly.tar.gz restored-store
    """
    from telemetry.store import backup as backups

    with spoken():
        done = backups.restore(source.absolute(), folder.absolute())
    _show(done, as_json, "an empty store")
    click.echo(f"restored into {safe(str(folder))}", err=True)


@click.command("forget")
@click.argument("tenant")
@_STORE
@_CONNECT
@click.option("--yes", is_flag=True, help="Do not ask.")
@_DRY
@_JSON
def forget(
    tenant: str, folder: str | None, address: str | None, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Take a tenant out of everything the store has, for good.

    Its rows are dropped; where it held others up, the seconds go to `others`, so that what every
    other tenant waited stays the same. Backups and quarantined files are left as they are, and an
    engine that still serves the tenant will write of it again: remove it there first.

    \b
    For example:
      tenantscope store forget acme --store telemetry-store --dry-run
    """
    from telemetry.store import upkeep

    with spoken():
        where = _where(folder, address)
        if not (yes or dry_run):
            first = upkeep.perform(where, upkeep.FORGET, tenant=tenant, dry_run=True)
            if first.rows:
                what = f"{_forgotten(first)} of {safe(tenant)}"
                if not click.confirm(f"{what}: forget for good?", err=True):
                    click.echo("nothing was forgotten", err=True)
                    sys.exit(1)
        done = upkeep.perform(where, upkeep.FORGET, tenant=tenant, dry_run=dry_run)
    _show(done, as_json, f"nothing in the store names {safe(tenant)}")
    say_partial(done)
    if done.partial:
        click.echo("store: files in quarantine may still name it: remove them too", err=True)
    if done.rows:
        click.echo(f"{_forgotten(done)}{' would go' if dry_run else ''}", err=True)


def _forgotten(done: Result) -> str:
    dropped, changed = (sum(row[i] for row in done.rows) for i in (2, 3))
    return f"{dropped} rows dropped, {changed} changed"


def _show(done: Result, as_json: bool, nothing: str) -> None:
    if as_json:
        click.echo(json.dumps(done.dicts()))
    else:
        click.echo(table(done) if done.rows else nothing)


def _where(folder: str | None, address: str | None) -> str:
    where = folder or address
    if not where or (folder and address):
        raise click.UsageError("give --store DIR or --connect ADDR, one of them")
    return where


def _folder_of(where: str) -> Path:
    """The folder on this machine; a live store says its own."""
    if Path(where).is_dir():
        return Path(where)
    from telemetry.service.client import StoreClient

    client = StoreClient(where)
    try:
        return Path(client.info().path)
    finally:
        client.close()
