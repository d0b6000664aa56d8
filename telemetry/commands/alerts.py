"""The commands `incidents`: what is open, what was said of it, who is at it.

stdout is data, stderr narration. Exit codes: 0 done, 1 failed (or, of `incidents list --open`,
something is open), 2 usage, 3 busy.
"""

from __future__ import annotations

import getpass
import json
import time
from typing import TYPE_CHECKING, Any

import click

from telemetry.cli import safe, say_partial, spoken, table

if TYPE_CHECKING:
    from telemetry.alerts.incident import Incident
    from telemetry.alerts.state import Known
    from telemetry.ask.reading import Result

JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="JSON instead of the table.")
STORE_OPTION = click.option("--store", "folder", metavar="DIR", help="The store's folder.")
CONNECT_OPTION = click.option(
    "--connect", "address", metavar="ADDR", help="The address of a live store."
)
AS_OPTION = click.option(
    "--as", "who", metavar="NAME", help="Who acts; without it, your login name."
)


# ---------------------------------------------------------------- incidents


@click.group("incidents")
def incidents() -> None:
    """Incidents of a store: one a pool, with the alerts and tenants inside it.

    \b
    For example:
      tenantscope incidents list --store telemetry-store
      tenantscope incidents ack inc-main-202611281704-ab12 --store telemetry-store
    """


@incidents.command("list")
@STORE_OPTION
@CONNECT_OPTION
@click.option("--open", "only_open", is_flag=True, help="Only open ones; exit code 1 if any is.")
@JSON_OPTION
def list_(folder: str | None, address: str | None, only_open: bool, as_json: bool) -> None:
    """The last 30 days' incidents, newest first.

    \b
    For example, in a script that must not deploy into an incident:
      tenantscope incidents list --open --store telemetry-store || exit
    """
    found = sorted(known_of(folder, address).incidents.values(), key=lambda i: -i.first_seen)
    found = [i for i in found if i.live or not only_open]
    if as_json:
        click.echo(json.dumps([_shape(i) for i in found]))
    elif found:
        click.echo(_table(found))
    else:
        click.echo("nothing is open" if only_open else "no incident", err=True)
    if only_open and found:
        click.get_current_context().exit(1)


@incidents.command("show")
@click.argument("incident")
@STORE_OPTION
@CONNECT_OPTION
@JSON_OPTION
def show(incident: str, folder: str | None, address: str | None, as_json: bool) -> None:
    """One incident: what the verdict says, the alerts with their numbers, notes.

    \b
    For example:
      tenantscope incidents show inc-main-202611281704-ab12 --store telemetry-store
    """
    from telemetry.alerts.people import find

    known = known_of(folder, address)
    with spoken():
        found = find(known, incident)
    click.echo(json.dumps(_shape(found)) if as_json else "\n".join(_lines(found)))


@incidents.command("ack")
@click.argument("incident")
@click.option("--text", default="", help="A word to whoever comes next.")
@AS_OPTION
@STORE_OPTION
@CONNECT_OPTION
@JSON_OPTION
def ack(
    incident: str, text: str, who: str | None, folder: str | None, address: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Say that somebody is at it: nobody is told again until it rises or ends.

    \b
    For example:
      tenantscope incidents ack inc-main-202611281704-ab12 --store telemetry-store
    """
    _act("acknowledge", incident, text, who, folder, address, as_json)


@incidents.command("note")
@click.argument("incident")
@click.argument("text")
@AS_OPTION
@STORE_OPTION
@CONNECT_OPTION
@JSON_OPTION
def note(
    incident: str, text: str, who: str | None, folder: str | None, address: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Write something down beside an incident, open or not.

    \b
    For example:
      tenantscope incidents note inc-main-202611281704-ab12 "lowered tpm of x" --store STORE
    """
    _act("note", incident, text, who, folder, address, as_json)


@incidents.command("close")
@click.argument("incident")
@click.option("--text", default="", help="Why.")
@AS_OPTION
@STORE_OPTION
@CONNECT_OPTION
@JSON_OPTION
def close(
    incident: str, text: str, who: str | None, folder: str | None, address: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """End an incident by hand. What still fires stays quiet until it has been clear once.

    \b
    For example:
      tenantscope incidents close inc-main-202611281704-ab12 --text "a load test" --store STORE
    """
    _act("close", incident, text, who, folder, address, as_json)


def _act(
    what: str, incident: str, text: str, who: str | None, folder: str | None,
    address: str | None, as_json: bool,
) -> None:  # fmt: skip
    perform(what, folder, address, as_json, incident=incident, who=who or login(), text=text)


# ---------------------------------------------------------------- helpers


def known_of(folder: str | None, address: str | None) -> Known:
    from telemetry.alerts import state
    from telemetry.source import open_source

    with spoken():
        source = open_source(where_of(folder, address))
        try:
            return state.recall(source, time.time())
        finally:
            source.close()
    raise AssertionError("spoken exits")


def perform(
    what: str, folder: str | None, address: str | None, as_json: bool, **parameters: Any
) -> None:
    from telemetry.store import upkeep

    with spoken():
        done: Result = upkeep.perform(where_of(folder, address), what, **parameters)
    click.echo(json.dumps(done.dicts()) if as_json else table(done))
    say_partial(done)


def _table(found: list[Incident]) -> str:
    from telemetry.alerts.bodies import iso
    from telemetry.ask.reading import Result

    columns = ("incident", "state", "severity", "pool", "since", "hurt", "what")
    rows = tuple(
        (i.id, i.state.value + (" (silenced)" if i.silenced else ""), i.severity, i.pool,
         iso(i.first_seen)[:19] + "Z", i.hurt_count, i.headline)
        for i in found
    )  # fmt: skip
    return table(Result(columns, rows))


def _lines(i: Incident) -> list[str]:
    from telemetry.alerts.bodies import iso

    until = f", ended {iso(i.resolved_at)}" if i.resolved_at is not None else ""
    by = f" by {i.closed_by}" if i.closed_by else ""
    out = [
        f"{i.id}: {i.state.value}{by}, {i.severity}, pool {i.pool}, "
        f"since {iso(i.first_seen)}{until}"
    ]
    out += [f"  {line}" for line in i.lines]
    if i.hurt:
        more = f" and {i.hurt_count - len(i.hurt)} more" if i.hurt_count > len(i.hurt) else ""
        out.append(f"hurt: {', '.join(i.hurt)}{more}")
    for h in i.holders:
        share = f", {100 * h.share:.0f}% of the excess" if h.share is not None else ""
        out.append(f"holds: {h.tenant} ({h.strength}, {h.confidence}{share})")
    for a in i.alerts:
        out.append(f"{a.alert} ({a.severity}{'' if a.firing else ', clear'}): {a.sentence}")
    for n in sorted((*i.notes, *i.acks), key=lambda n: n.at):
        kind = "acknowledged" if n in i.acks else "note"
        out.append(f"{iso(n.at)} {n.who}: {kind}{': ' if n.text else ''}{n.text}")
    return [safe(line) for line in out]


def _shape(incident: Incident) -> dict[str, Any]:
    from telemetry.alerts.bodies import incident_shape
    from telemetry.alerts.settings import DEFAULTS

    return incident_shape(incident, DEFAULTS)


def where_of(folder: str | None, address: str | None) -> str:
    where = folder or address
    if not where or (folder and address):
        raise click.UsageError("give --store DIR or --connect ADDR, one of them")
    return where


def login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
