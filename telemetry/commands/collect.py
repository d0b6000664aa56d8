"""The commands of `collect`: a store process of its own for many engines, its tokens, its status.

Exit codes: 0 ended when told to (SIGTERM), 1 failed, 2 usage or settings, 3 busy, 130 Ctrl-C.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from telemetry.cli import safe, spoken, table
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from telemetry.ask.reading import Result
    from telemetry.service.listen import Listen
    from telemetry.service.server import StoreServer

DEFAULT_LISTEN = "127.0.0.1:4317"  # OTLP's own port
SOCKET = "collect.sock"
_FILE = NamedPath(path_type=Path, dir_okay=False)


@click.group("collect", invoke_without_command=True)
@click.option(
    "--store",
    "folder",
    type=NamedPath(path_type=Path, file_okay=False),
    help="The store's folder.",
)
@click.option(
    "--listen",
    "--listen-tcp",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    help=f"Where senders and readers come in; may be given again.  [default: {DEFAULT_LISTEN}, "
    "or the [[listen]] of the settings]",
)
@click.option("--tls-cert", type=_FILE, help="PEM certificate to show; off loopback a must.")
@click.option("--tls-key", type=_FILE, help="Its key, without a passphrase.")
@click.option(
    "--tls-client-ca", type=_FILE, help="Take only callers with a certificate of this CA."
)
@click.option("--tokens", type=_FILE, help="[[token]] tables; off loopback a must.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus there (loopback).")
@click.option(
    "--config", type=_FILE, help="Settings instead of the store folder's own settings.toml."
)
@click.option(
    "--any-date", is_flag=True, help="Take rows of any date: recordings and virtual time."
)
@click.pass_context
def collect(
    ctx: click.Context,
    folder: Path | None,
    addresses: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    tokens: Path | None,
    metrics: str | None,
    config: Path | None,
    any_date: bool,
) -> None:
    """Keep the telemetry of many engines in one store, as a service of its own.

    Takes OTLP over gRPC and answers every command's --connect. Off loopback TLS and tokens are
    required. SIGTERM drains: what is queued is committed within 5 s.

    \b
    For example:
      tenantscope collect token --role ingest --engine e1 --tokens tokens.toml > e1.token
      tenantscope collect --store pool-store --listen 0.0.0.0:4317 \\
          --tls-cert cert.pem --tls-key key.pem --tokens tokens.toml
      tenantscope --token-file e1.token serve --config pool.toml \\
          --collector https://collector.example:4317
    """
    if ctx.invoked_subcommand is not None:
        return
    if folder is None:
        raise click.UsageError("give --store DIR: the folder that the rows are kept in")
    from telemetry import narration
    from telemetry.errors import StoreError
    from telemetry.service import process as service
    from telemetry.service.listen import Listen, check, tls_of
    from telemetry.settings import SettingsError
    from telemetry.store import retention
    from telemetry.store import settings as store_settings

    narration.begin("collect")
    os.umask(0o077)
    try:
        settings = store_settings.read(folder, config)
        tls = tls_of(tls_cert, tls_key, tls_client_ca)
        if not addresses and not settings.listen:
            addresses = (DEFAULT_LISTEN,)
        given = [Listen(a) if a.startswith("unix:") else Listen(a, tls, tokens) for a in addresses]
        for one in given:
            check(one)
        if config is not None and settings.retention != retention.DEFAULT:
            raise SettingsError(
                f"{config}: [retention] belongs into {folder / store_settings.SETTINGS}: it stays "
                "with the rows, whoever keeps them"
            )
    except (SettingsError, StoreError) as e:
        raise click.UsageError(str(e)) from None
    with tempfile.TemporaryDirectory(prefix="tenantscope-") as spare:
        options = service.Options(
            folder,
            (Listen(_own_socket(folder, Path(spare))), *given),
            metrics=metrics,
            settings=config,
            strict=True,
            any_date=any_date,
        )
        code = service.run(options, _say_ready)
    ctx.exit(code)


def _own_socket(folder: Path, spare: Path) -> str:
    """The socket that commands on this machine use, who may read the folder: in it, if the path
    is short enough for a socket."""
    from telemetry.service.listen import LONGEST_SOCKET_PATH

    path = Path(os.path.realpath(folder)) / SOCKET
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        path = spare / SOCKET
    return f"unix:{path}"


def _say_ready(server: StoreServer) -> None:
    for one, address in zip(server.listens, server.addresses, strict=True):
        click.echo(f"listening at {safe(address)} ({_ways(one)})", err=True)
    click.echo("ready " + " ".join(server.addresses))
    sys.stdout.flush()


def _ways(one: Listen) -> str:
    if one.is_unix:
        return "its owner only"
    tls = "no TLS" if one.tls is None else "TLS, client certificates"
    if one.tls is not None and one.tls.client_ca is None:
        tls = "TLS"
    return (
        f"{tls}, {'tokens' if one.tokens is not None else 'no tokens: everybody on this machine'}"
    )


@collect.command("token")
@click.option(
    "--role",
    required=True,
    type=click.Choice(["viewer", "operator", "ingest"]),
    help="viewer asks, operator also keeps the store in order, ingest sends.",
)
@click.option("--engine", help="Of a sender: the one engine whose rows it may send.")
@click.option("--note", default="", help="Whose it is: a few words for the file.")
@click.option("--tokens", type=_FILE, help="Append its digest to this file, not to the output.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def token(role: str, engine: str | None, note: str, tokens: Path | None, as_json: bool) -> None:
    """Make a token: it is printed once, only its digest is kept.

    \b
    For example:
      tenantscope collect token --role ingest --engine e1 --tokens tokens.toml > e1.token
    """
    from telemetry.service.roles import digest, new_token

    if engine is not None and role != "ingest":
        raise click.UsageError(f"--engine binds a sender: it goes with --role ingest, not {role}")
    for option, text in (("--engine", engine), ("--note", note)):
        if text is not None and text and not text.isprintable():
            raise click.UsageError(f"{option} {text!r}: expected printable text")
    if engine is not None and not engine.strip():
        raise click.UsageError("--engine is empty: give the engine's name, or leave it out")
    made = new_token()
    fields = {"sha256": digest(made), "role": role, "engine": engine, "note": note or None}
    lines = [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in fields.items() if v]
    block = "\n".join(["[[token]]", *lines]) + "\n"
    if tokens is not None:
        _append(tokens, block)
        click.echo(
            f"its digest is in {safe(str(tokens))}; the token itself is kept nowhere", err=True
        )
    if as_json:
        click.echo(json.dumps({"token": made, **fields}))
        return
    click.echo(made)
    if tokens is None:
        click.echo("the token is kept nowhere; these lines go into the tokens file:", err=True)
        click.echo(block, nl=False)


def _append(path: Path, block: str) -> None:
    """To a file that only its owner reads; a running collector takes it up by itself."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as f:
            f.write(("\n" if f.tell() else "") + block)
    except OSError as e:
        raise click.ClickException(f"{path}: {(e.strerror or str(e)).lower()}") from None


@collect.command("status")
@click.option("--store", "folder", metavar="DIR", help="The folder of a running collector.")
@click.option("--connect", "address", metavar="ADDR", help="Its address.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(folder: str | None, address: str | None, as_json: bool) -> None:
    """Which engines a running store hears, up to when all is told, and what it turned away.

    Minutes before the watermark are final; an engine that has been silent for 3 minutes no longer
    holds it back.

    \b
    For example:
      tenantscope collect status --connect https://collector.example:4317
    """
    from telemetry.errors import StoreError
    from telemetry.service import liveness
    from telemetry.service.client import StoreClient
    from telemetry.store import owner

    if (folder is None) == (address is None):
        raise click.UsageError("give --store DIR or --connect ADDR, one of them")
    with spoken():
        if folder is not None:
            live = owner.find_live(Path(folder))
            if live is None:
                raise StoreError(
                    f"no store process answers for {folder}: it is closed, or no store"
                )
            address = live.address
        assert address is not None
        client = StoreClient(address)
        try:
            [store] = client.query(liveness.STORE).dicts()
            engines = client.query(liveness.ENGINES)
            listeners = client.query(liveness.LISTENERS)
        finally:
            client.close()
    if as_json:
        whole = {**store, "listeners": listeners.dicts(), "heard": engines.dicts()}
        click.echo(json.dumps(whole))
        return
    click.echo(table(_for_people(engines, store["now_unix_s"])))
    for line in _sentences(store):
        click.echo(line)


def _for_people(engines: Result, now: float) -> Result:
    from telemetry.ask.reading import Result
    from telemetry.plain import span_s

    rows = []
    for e in engines.dicts():
        sealed = e["last_sealed_end_unix_s"]
        rows.append(
            (
                e["engine"],
                "live" if e["live"] else "silent",
                f"{span_s(max(0.0, now - e['last_heard_unix_s']))} ago",
                _time(sealed),
                e["senders"],
                e["batches"],
                e["refused"],
                e["denied"],
            )
        )
    columns = ("engine", "state", "heard", "sealed to", "senders", "batches", "refused", "denied")
    return Result(columns, tuple(rows))


def _sentences(store: dict[str, Any]) -> list[str]:
    mark = store["watermark_unix_s"]
    lines = [
        f"\nfinal up to {_time(mark)}" if mark is not None else "\nno minute is final yet",
        f"queue {store['queued']} of {store['queue_limit']}; put off {store['put_off']}, "
        f"refused points {store['refused_points']}, turned away {store['denied']}, "
        f"not committed {store['failures']}",
    ]
    if store["last_failure"]:
        at = _time(store["last_failure_unix_s"])
        lines.append(f"last not committed at {at}: {safe(store['last_failure'])}")
    if store["last_denial"]:
        lines.append(f"last turned away: {safe(store['last_denial'])}")
    return lines


def _time(unix_s: float | None) -> str:
    if unix_s is None:
        return "-"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))
