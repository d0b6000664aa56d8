"""The commands `silence`: what is not delivered for a while, by alert, pool or tenant.

stdout is data, stderr narration. Exit codes: 0 done, 1 failed, 2 usage, 3 busy.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict

import click

from telemetry.cli import instant, table
from telemetry.commands.alerts import (
    AS_OPTION,
    CONNECT_OPTION,
    JSON_OPTION,
    STORE_OPTION,
    known_of,
    login,
    perform,
)

_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@click.group("silence")
def silence() -> None:
    """Keep alerts from being delivered for a while. Incidents are recorded all the same.

    \b
    For example:
      tenantscope silence add --tenant batch --for 2h --reason "a backfill" --store STORE
    """


@silence.command("add")
@click.option("--alert", default="", help="An alert's name, such as TenantscopeShareSurge.")
@click.option("--pool", default="", help="A pool.")
@click.option("--tenant", default="", help="A tenant.")
@click.option("--until", metavar="TIME", help="ISO 8601 (UTC) or unix seconds.")
@click.option("--for", "span", metavar="SPAN", help="Instead of --until: 90s, 30m, 2h, 1d.")
@click.option("--reason", required=True, help="Why, for whoever comes next.")
@AS_OPTION
@STORE_OPTION
@CONNECT_OPTION
@JSON_OPTION
def add(
    alert: str, pool: str, tenant: str, until: str | None, span: str | None, reason: str,
    who: str | None, folder: str | None, address: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Silence what matches every one of --alert, --pool and --tenant that is given.

    \b
    For example:
      tenantscope silence add --pool main --for 30m --reason "a drill" --store STORE
    """
    if (until is None) == (span is None):
        raise click.UsageError("give --until TIME or --for SPAN, one of them: a silence must end")
    end = instant(until, "--until", 0.0) if span is None else time.time() + _seconds(span)
    perform("silence", folder, address, as_json, alert=alert, pool=pool, tenant=tenant,
             until=end, reason=reason, who=who or login())  # fmt: skip


def _seconds(span: str) -> float:
    match = _SPAN.fullmatch(span.strip())
    if match is None:
        raise click.BadParameter(f"--for = {span!r}: expected 90s, 30m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


@silence.command("list")
@STORE_OPTION
@CONNECT_OPTION
@click.option("--all", "every", is_flag=True, help="Ended ones too.")
@JSON_OPTION
def list_silences(folder: str | None, address: str | None, every: bool, as_json: bool) -> None:
    """Silences that hold now.

    \b
    For example:
      tenantscope silence list --store telemetry-store
    """
    from telemetry.alerts.bodies import iso
    from telemetry.ask.reading import Result

    now = time.time()
    found = [
        s for s in known_of(folder, address).silences.values() if every or s.active(now)
    ]  # fmt: skip
    if as_json:
        click.echo(json.dumps([asdict(s) for s in found]))
        return
    if not found:
        click.echo("no silence", err=True)
        return
    rows = tuple(
        (s.id, s.alert or "any", s.pool or "any", s.tenant or "any", iso(s.until), s.who, s.reason)
        for s in found
    )
    click.echo(
        table(Result(("silence", "alert", "pool", "tenant", "until", "who", "reason"), rows))
    )


@silence.command("remove")
@click.argument("name", metavar="SILENCE")
@AS_OPTION
@STORE_OPTION
@CONNECT_OPTION
@JSON_OPTION
def remove(
    name: str, who: str | None, folder: str | None, address: str | None, as_json: bool
) -> None:
    """End a silence before its time.

    \b
    For example:
      tenantscope silence remove sil-1f2e3d4c --store telemetry-store
    """
    perform("unsilence", folder, address, as_json, silence=name, who=who or login())
