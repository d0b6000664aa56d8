"""The commands `alerts`: tries the delivery to a webhook or an Alertmanager, once.

stdout is data, stderr narration. Exit codes: 0 done, 1 failed, 2 usage, 3 busy.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from telemetry.cli import safe
from telemetry.commands.alerts import JSON_OPTION, STORE_OPTION

if TYPE_CHECKING:
    from telemetry.alerts.settings import AlertSettings, Target


@click.group("alerts")
def alerts() -> None:
    """How alerts are delivered. Targets stand in the store's settings.toml, table [alerts].

    \b
    For example:
      tenantscope alerts test --webhook https://hooks.example.org/tenantscope
    """


@alerts.command("test")
@click.option("--webhook", metavar="URL", help="Send one there.")
@click.option("--alertmanager", metavar="URL", help="Send one to this Alertmanager.")
@click.option("--secret", metavar="env:NAME", help="Sign it (webhook), or bearer token.")
@STORE_OPTION
@JSON_OPTION
def test(
    webhook: str | None, alertmanager: str | None, secret: str | None, folder: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Deliver one made-up incident, once, to a URL or to every target of a store's settings.

    \b
    For example:
      tenantscope alerts test --webhook http://127.0.0.1:9000/hook --secret env:HOOK_SECRET
      tenantscope alerts test --store telemetry-store
    """
    settings, targets = _targets(webhook, alertmanager, secret, folder)
    rows = [_try(target, settings) for target in targets]
    if as_json:
        click.echo(json.dumps([{"target": t, "delivered": ok, "why": w} for t, ok, w in rows]))
    else:
        for name, ok, why in rows:
            click.echo(f"{safe(name)}: {'delivered' if ok else why}")
    if not all(ok for _, ok, _ in rows):
        click.get_current_context().exit(1)


def _targets(
    webhook: str | None, alertmanager: str | None, secret: str | None, folder: str | None
) -> tuple[AlertSettings, tuple[Target, ...]]:
    from pathlib import Path

    from telemetry.alerts.settings import ALERTMANAGER, DEFAULTS, WEBHOOK, read_section
    from telemetry.settings import Reader
    from telemetry.store import settings as store_settings

    if sum(v is not None for v in (webhook, alertmanager, folder)) != 1:
        raise click.UsageError("give --webhook URL, --alertmanager URL or --store DIR, one of them")
    if folder is not None:
        settings = store_settings.read(Path(folder)).alerts
        if not settings.targets:
            raise click.UsageError(
                f"{folder} has no target: add [[alerts.webhook]] to its settings.toml"
            )
        return settings, settings.targets
    kind, key = (WEBHOOK, "secret") if webhook is not None else (ALERTMANAGER, "token")
    given: dict[str, Any] = {"name": "test", "url": webhook or alertmanager}
    if secret is not None:
        given[key] = secret
    read = read_section(Reader("command line", {"alerts": {kind: [given]}}))
    return DEFAULTS, read.targets


def _try(target: Target, settings: AlertSettings) -> tuple[str, bool, str]:
    import httpx

    from telemetry.alerts import bodies
    from telemetry.alerts.delivery import Parcel, Undelivered, send
    from telemetry.alerts.incident import Incident, Said, State, incident_id
    from telemetry.alerts.settings import ALERTMANAGER, secret_of

    now = time.time()
    said = Said("TenantscopeDeadMan", "info", "a test of delivery: nothing is wrong", None, None,
                now, now)  # fmt: skip
    made = Incident(incident_id("test", now), "test", "test", State.OPEN, "info", now, now,
                    alerts=(said,), notice=1, notice_what="opened", notice_at=now)  # fmt: skip
    body = (
        bodies.alertmanager_body(made, settings, now)
        if target.kind == ALERTMANAGER
        else bodies.webhook_body(made, settings)
    )
    try:
        secret = secret_of(target)
        with httpx.Client(timeout=target.timeout_s, trust_env=False) as client:
            send(client, target, secret, Parcel(made.id, 1, bodies.dedup_key(made), body), now)
    except KeyError as e:
        return target.name, False, f"the variable {e.args[0]} is not set"
    except Undelivered as e:
        return target.name, False, str(e)
    return target.name, True, ""
