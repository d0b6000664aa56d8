"""Table `[alerts]` of a store's settings: numbers, targets, the runbook. Reads; sends nothing.

Secrets never stand in the file: `env:NAME` names a variable of the store's process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from urllib.parse import urlsplit

from telemetry.alerts.rules import SEVERITIES, WARN
from telemetry.findings.limits import DEFAULT, Limits
from telemetry.settings import Reader, SettingsError

RUNBOOK = "docs/runbook.md"
WEBHOOK, ALERTMANAGER = "webhook", "alertmanager"
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Target:
    """Where to tell. `secret` signs (webhook) or is the bearer token (alertmanager), as `env:NAME`
    or None; `minimum` is the least severity told there."""

    kind: str
    name: str
    url: str
    secret: str | None = None
    minimum: str = WARN
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """`every_s`: between two looks; `clear_s`: how long a condition must be clear; `rejoin_s`: what
    comes back sooner is the same incident; `resend_s`: to an Alertmanager, so that it does not
    expire; `renotify_s`: to a webhook, a page nobody acknowledged."""

    enabled: bool = True
    every_s: float = 10.0
    clear_s: float = 120.0
    rejoin_s: float = 900.0
    resend_s: float = 60.0
    renotify_s: float = 3600.0
    runbook: str = RUNBOOK
    limits: Limits = DEFAULT
    targets: tuple[Target, ...] = field(default=())


DEFAULTS = AlertSettings()


def read_section(reader: Reader) -> AlertSettings:
    """Raises SettingsError naming key and value."""
    r = reader.table("alerts")
    numbers = {
        f.name: r.number(f.name, f.default, above=f.metadata["above"],
                         at_most=f.metadata["at_most"])
        for f in fields(Limits)
    }  # fmt: skip
    targets = [_target(t, WEBHOOK) for t in r.tables(WEBHOOK)]
    targets += [_target(t, ALERTMANAGER) for t in r.tables(ALERTMANAGER)]
    names = [t.name for t in targets]
    if len(set(names)) < len(names):
        raise r.fail(WEBHOOK, f"every target needs a name of its own; there are {sorted(names)}")
    settings = AlertSettings(
        enabled=r.flag("enabled", True),
        every_s=r.number("every_s", 10.0, at_least=1.0, at_most=300.0),
        clear_s=r.number("clear_s", 120.0, at_least=0.0, at_most=86_400.0),
        rejoin_s=r.number("rejoin_s", 900.0, at_least=0.0, at_most=86_400.0),
        resend_s=r.number("resend_s", 60.0, at_least=5.0, at_most=3600.0),
        renotify_s=r.number("renotify_s", 3600.0, at_least=60.0, at_most=604_800.0),
        runbook=r.text("runbook", RUNBOOK),
        limits=Limits(**numbers),
        targets=tuple(targets),
    )
    r.done()
    return settings


def _target(r: Reader, kind: str) -> Target:
    url = r.text("url")
    key = "token" if kind == ALERTMANAGER else "secret"
    # Values that may be secrets are not repeated in a message.
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise SettingsError(f'{r.where}: url: no password in a URL; use {key} = "env:NAME"')
    if not _is_web(url):
        raise r.fail("url", "expected http://HOST[:PORT]... or https://HOST[:PORT]...")
    secret = r.text(key, None)
    if secret is not None and not _VARIABLE.fullmatch(secret):
        raise SettingsError(f"{r.where}: {key}: expected env:NAME, the name of a variable")
    target = Target(
        kind,
        r.text("name", kind),
        url,
        secret,
        r.text("minimum", WARN, choices=SEVERITIES),
        r.number("timeout_s", 5.0, above=0.0, at_most=60.0),
    )
    r.done()
    return target


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.port == 0:
            return False
    except ValueError:  # a bracket that is not closed, a port that is no number
        return False
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def secret_of(target: Target, environment: Mapping[str, str] | None = None) -> str | None:
    """The secret itself. Raises KeyError with the variable's name where it is not set."""
    if target.secret is None:
        return None
    name = target.secret.removeprefix("env:")
    value = (os.environ if environment is None else environment).get(name)
    if not value:
        raise KeyError(name)
    return value


def runbook_url(settings: AlertSettings, alert: str) -> str:
    return f"{settings.runbook}#{alert.lower()}"
