"""`tenantscope config`: checks a settings file and explains the keys. Owns words and exit codes.

Exit codes of `check`: 0 the file is good, 1 it is not, 2 usage (there is no such file).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from telemetry.named_path import NamedPath
from telemetry.plain import safe

if TYPE_CHECKING:
    from engine.config import Settings

_SHOWN = 20  # tenants, one line each


@click.group()
def config() -> None:
    """The settings file: check one, explain its keys."""


@config.command()
@click.argument("file", type=NamedPath(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="What was understood, or the error, as JSON.")
def check(file: Path, as_json: bool) -> int:
    """Read FILE as `serve` would, and say what it says. Exit 0 good, 1 not, 2 no such file.

    \b
    Examples:
      tenantscope config check pool.toml
      tenantscope config check pool.toml --json | jq .tenants
    """
    from engine.config import read_settings
    from engine.errors import ConfigError

    try:
        settings = read_settings(file)
    except ConfigError as e:
        if as_json:
            click.echo(json.dumps({"ok": False, "file": str(file), "error": str(e)}))
        else:
            click.echo(f"not good: {e}{_other_kind(file)}", err=True)
        return 1
    notes = list(_notes(settings))
    if as_json:
        said = {"ok": True, "file": str(file), "notes": notes, **_plain(settings)}
        click.echo(json.dumps(said, indent=2))
        return 0
    click.echo(f"{file}: good")
    for line in _short(settings):
        click.echo(f"  {line}")
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return 0


@config.command()
@click.argument("key", required=False)
@click.option("--json", "as_json", is_flag=True, help="As a JSON list.")
@click.option("--markdown", is_flag=True, help="All keys as the page docs/config.md.")
def explain(key: str | None, as_json: bool, markdown: bool) -> None:
    """Every settings key: type, default, what is allowed, what it means. KEY names one, or a table.

    \b
    Examples:
      tenantscope config explain
      tenantscope config explain tenant.rpm_burst
      tenantscope config explain limits
    """
    from engine import config_explain

    if markdown:
        if key or as_json:
            raise click.UsageError("--markdown prints the whole page: give no KEY and no --json")
        click.echo(config_explain.as_markdown(), nl=False)
        return
    entries = config_explain.explain(key) if key is not None else config_explain.explained()
    if as_json:
        click.echo(json.dumps(config_explain.as_plain(entries), indent=2))
    else:
        click.echo(config_explain.as_text(entries))


@config.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="What it says, as `config check --json`.")
def preset(name: str | None, as_json: bool) -> None:
    """Print a settings file to begin with, each key with its why. Without NAME: which there are.

    \b
    Examples:
      tenantscope config preset
      tenantscope config preset long-tail > pool.toml
    """
    from engine import presets
    from engine.errors import ConfigError

    if name is None:
        kinds = [(n, presets.title(n)) for n in presets.names()]
        if as_json:
            click.echo(json.dumps([{"name": n, "title": t} for n, t in kinds], indent=2))
            return
        for n, title in kinds:
            click.echo(f"{n}  {title}")
        return
    try:
        text = presets.text(name)
    except ConfigError as e:
        raise click.UsageError(str(e)) from None
    if as_json:
        click.echo(json.dumps({"name": name, **_plain(presets.settings(name))}, indent=2))
        return
    click.echo(text, nl=False)


def _other_kind(file: Path) -> str:
    """What helps where a workload was handed in: the two files look alike."""
    from telemetry.settings import SettingsError, read_toml

    try:
        tables = read_toml(file)
    except SettingsError:
        return ""
    if not {"traffic", "incident", "fault"} & set(tables):
        return ""
    return f"; it looks like a workload, which is 'tenantscope simulate {file}' to read"


def _short(settings: Settings) -> list[str]:
    """What the file says, in a few lines."""
    lines = [f"policy {settings.policy}, model {safe(settings.model)}, engine {settings.engine!r}"]
    for pool in settings.all_pools():
        limits = pool.limits
        whom = sum(settings.pool_of(t).name == pool.name for t in settings.tenants)
        lines.append(
            f"pool {pool.name!r}: {pool.replicas} worker{'s' * (pool.replicas > 1)}, "
            f"{whom} tenant{'s' * (whom != 1)}, {limits.slots} slots, "
            f"{limits.step_tokens} tokens a step, {limits.pool_bytes / 2**20:.0f} MiB, "
            f"context {limits.max_context}"
        )
    lines.append(f"{len(settings.tenants)} tenants, {len(settings.adapters)} adapters")
    for tenant in settings.tenants[:_SHOWN]:
        said = [f"weight {tenant.weight:g}"]
        for what in ("tier", "rpm", "tpm", "concurrency", "queue", "queue_timeout_s", "deadline_s"):
            value = getattr(tenant, what)
            if value is not None and not (what == "tier" and value == 0):
                said.append(f"{what} {value:g}" if value else f"{what} 0 = blocked")
        lines.append(f"tenant {tenant.name!r}: {', '.join(said)}")
    if len(settings.tenants) > _SHOWN:
        lines.append(f"... and {len(settings.tenants) - _SHOWN} tenants more (--json has all)")
    return lines


def _notes(settings: Settings) -> list[str]:
    """What is allowed, and perhaps not meant."""
    notes = []
    keyless = [t.name for t in settings.tenants if not t.key_sha256]
    if keyless:
        notes.append(f"nobody can call as {_some(keyless)}: no key_sha256")
    blocked = [t.name for t in settings.tenants if 0 in (t.rpm, t.tpm, t.concurrency, t.queue)]
    if blocked:
        notes.append(f"blocked by a limit of 0: {_some(blocked)}")
    for name, folder in settings.adapters:
        if not _is_dir(folder):
            notes.append(f"adapter {name!r}: there is no folder {folder}")
    notes += _pool_notes(settings)
    return notes


def _pool_notes(settings: Settings) -> list[str]:
    """What of the pools this machine or this version cannot serve, or serves less apart than it
    looks."""
    from engine.errors import ConfigError
    from engine.model.hub import is_hub_name
    from engine.parallel.cut import check_pools_cut
    from engine.serving.device import cores_here, cpus_refusal, device_refusal, listed

    pools, here = settings.all_pools(), cores_here()
    notes = []
    workers = sum(p.replicas for p in pools)
    if workers > 1:
        whole = sum(p.replicas * p.limits.pool_bytes for p in pools)
        notes.append(
            f"{workers} workers: each loads the model and takes its pool_bytes, "
            f"{whole / 2**20:.0f} MiB together"
        )
    for pool in pools:
        refusal = device_refusal(pool) or cpus_refusal(pool, here)
        if refusal is not None:
            notes.append(f"'serve' would refuse it on this machine: {refusal}")
    if not is_hub_name(settings.model):  # its shape may have to be fetched
        try:
            check_pools_cut(settings)
        except ConfigError as e:
            notes.append(f"'serve' would refuse it: {e}")
    owners: dict[int, str] = {}
    for pool in pools:
        shared = [c for c in pool.cpus if c in owners]
        if shared:
            notes.append(
                f"pools {owners[shared[0]]!r} and {pool.name!r} share cores: {listed(shared)}"
            )
        owners |= dict.fromkeys(pool.cpus, pool.name)
    loose = [p.name for p in pools if not p.cpus]
    if owners and loose:
        notes.append(
            f"no cpus: the workers of {_some(loose)} run on any core, those of other pools too"
        )
    served = {settings.pool_of(t).name for t in settings.tenants}
    idle = [p.name for p in pools if p.name not in served]
    if settings.tenants and idle:
        notes.append(f"no tenant is served by {_some(idle)}: its workers would stand idle")
    return notes


def _is_dir(folder: str) -> bool:
    try:
        return Path(folder).is_dir()
    except OSError:  # no name of a folder: too long
        return False


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _plain(settings: Settings) -> dict[str, object]:
    return {
        "engine": settings.engine,
        "model": settings.model,
        "policy": settings.policy,
        "policies": asdict(settings.knobs),
        "pools": [asdict(p) for p in settings.all_pools()],
        "tenants": settings.public()["tenants"],
        "adapters": [name for name, _ in settings.adapters],
    }
