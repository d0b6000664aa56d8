"""The settings that are a remedy, as TOML, and the operator's command for it. Writes text only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from postmortem.whatif.model import Change, Remedy

# What the operator's command can change while the engine runs.
_LIVE = ("weight", "tier", "rpm", "tpm", "concurrency")


def settings(remedy: Remedy) -> str:
    """Lines for the settings file, table by table; the tables of tenants are those that stand
    there already, with these keys. What no setting can say is a comment."""
    out: list[str] = []
    for change in _of(remedy, "costs"):
        out.append(f"# no setting: a machine {change.value:g} times as fast")
    out += [_line(c) for c in _of(remedy, "settings")]
    limits = list(_of(remedy, "limits"))
    if limits:
        out += ["[limits]", *map(_line, limits)]
    for change in _of(remedy, "pool"):
        out += ["[[pool]]", f"name = {text(change.who)}", f"replicas = {change.value}"]
    for who in dict.fromkeys(c.who for c in _of(remedy, "tenant")):
        out += ["[[tenant]]", f"name = {text(who)}"]
        out += [_line(c) for c in _of(remedy, "tenant") if c.who == who]
    return "\n".join(out) + "\n"


def command(remedy: Remedy) -> str | None:
    """The operator's command (engine/admin/cli.py) that applies it to a running engine, where one
    can: a tenant's limits, weight and tier, and the policy. It reverts by itself, as all of them
    do. None = it needs a restart with the settings."""
    if any(c.table not in ("settings", "tenant") for c in remedy.changes):
        return None
    if any(c.table == "tenant" and c.key not in _LIVE for c in remedy.changes):
        return None
    why = f"--reason {shlex.quote('what-if: ' + remedy.name)}"
    out = [
        f"tenantscope admin policy set {shlex.quote(str(c.value))} {why}"
        for c in _of(remedy, "settings")
        if c.key == "policy"
    ]
    for who in dict.fromkeys(c.who for c in _of(remedy, "tenant")):
        flags = " ".join(
            f"--{c.key} {'none' if c.value is None else c.value}"
            for c in _of(remedy, "tenant")
            if c.who == who
        )
        if who.startswith("-"):  # else it would be read as an option
            out.append(f"tenantscope admin tenant set {flags} {why} -- {shlex.quote(who)}")
        else:
            out.append(f"tenantscope admin tenant set {shlex.quote(who)} {flags} {why}")
    return " && ".join(out) or None


def _of(remedy: Remedy, table: str) -> Iterable[Change]:
    return (c for c in remedy.changes if c.table == table)


def _line(change: Change) -> str:
    if change.value is None:
        return f"# {change.key}: leave it out (no limit)"
    value = text(change.value) if isinstance(change.value, str) else change.value
    return f"{change.key} = {value}"


def text(value: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's, but for surrogates and DEL."""
    quoted = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return quoted.encode("utf-8", "replace").decode("utf-8")
