"""The engine's commands: `serve` and `keys`. Owns options and what a person reads; serves nothing.

Exit codes: 0 ok, 1 failed, 2 usage, 130 interrupted. stdout is data, stderr is narration.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from telemetry.finite_option import Finite
from telemetry.named_path import NamedPath

if TYPE_CHECKING:
    from engine.admin.listen import AdminListen
    from engine.config import PoolSpec, Settings
    from engine.serving.door import HttpDoor

_NAME_CELLS = 40  # of a tenant's name in a line
_NO_SETTINGS = """\
--config is missing: it says who may ask and what they get. A minimal file:

    [[tenant]]
    name = "alice"
    key_sha256 = ["..."]     # the digest that 'tenantscope keys new' prints
"""


@click.command()
@click.option(
    "--config",
    "config",
    type=NamedPath(path_type=Path),
    help="The settings file (TOML).",
)
@click.option(
    "--store",
    type=NamedPath(path_type=Path, file_okay=False),
    default=Path("tenantscope-store"),
    show_default=True,
    help="Folder of the telemetry store.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address or name to serve at; 0.0.0.0 or :: for every one. Off loopback with TLS, or "
    "with --plain-http.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 = any."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Prometheus scrapes /metrics there, on loopback always; 0 = off.",
)
@click.option("--tls-cert", metavar="FILE", default="", help="PEM: HTTPS is spoken at --port.")
@click.option("--tls-key", metavar="FILE", default="", help="PEM, for --tls-cert.")
@click.option(
    "--plain-http",
    is_flag=True,
    help="Serve off loopback without TLS: a proxy in front ends it, and nobody else gets there.",
)
@click.option(
    "--collector",
    metavar="ADDR",
    help="Send telemetry to a `tenantscope collect` there (https://host:port), instead of keeping "
    "a store here. Its token: --token-file before the command, or TENANTSCOPE_TOKEN.",
)
@click.option(
    "--otlp-to",
    metavar="URL",
    help="Send metrics and traces to an OTLP endpoint too (http://127.0.0.1:4317). Headers, TLS "
    "and more than one: [[export]] in the store's settings.toml.",
)
@click.option(
    "--admin-listen",
    metavar="HOST:PORT",
    help="Where operators call (`tenantscope admin`) over TCP, with TLS and tokens. Default: a "
    "unix socket that only you can open.",
)
@click.option("--admin-tls-cert", metavar="FILE", default="", help="PEM, for --admin-listen.")
@click.option("--admin-tls-key", metavar="FILE", default="", help="PEM, for --admin-listen.")
@click.option(
    "--admin-tokens",
    metavar="FILE",
    default="",
    help="Tokens of role operator, as `tenantscope collect token` makes them.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="Overrides the settings' model: smollm2-135m, synthetic, hf:org/name, a .gguf file or a "
    "Hugging Face folder.",
)
@click.option(
    "--tp",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Overrides the pools' tp: each worker's model is cut into N processes (tensor parallel). "
    "N divides its heads, its KV heads and its MLP's columns.",
)
@click.option(
    "--device",
    metavar="NAME",
    help="Overrides the pools' device: cpu, cuda:0, or a UUID as 'nvidia-smi -L' prints it.",
)
def serve(
    config: Path | None,
    store: Path,
    host: str,
    port: int,
    metrics_port: int,
    tls_cert: str,
    tls_key: str,
    plain_http: bool,
    collector: str | None,
    otlp_to: str | None,
    admin_listen: str | None,
    admin_tls_cert: str,
    admin_tls_key: str,
    admin_tokens: str,
    model: str | None,
    tp: int | None,
    device: str | None,
) -> None:
    """Serve the settings' pools: an OpenAI-compatible API, its telemetry in a store.

    Each replica of each [[pool]] is a process of its own. One that ends is started again; the
    others go on. A settings file to begin with: tenantscope config preset long-tail

    \b
      tenantscope serve --config pool.toml --metrics-port 9464
      tenantscope serve --config pool.toml --host 0.0.0.0 --tls-cert c.pem --tls-key k.pem
    """
    from engine.config import DEVICE, DEVICE_EXPECTED, read_settings
    from engine.errors import ConfigError, EngineError
    from engine.parallel.cut import check_pools_cut
    from engine.serving.api.auth import KeyRing
    from engine.serving.api.catalogue import Catalogue
    from engine.serving.device import check_pools
    from engine.serving.door import DoorRefused, HttpDoor

    if config is None:
        raise click.UsageError(_NO_SETTINGS)
    if collector is not None:
        _check_collector(collector)
    if otlp_to is not None:
        _check_otlp_to(otlp_to)
    try:
        settings = read_settings(config)
        if model is not None:
            settings = replace(settings, model=model)
        if tp is not None:
            settings = settings.with_tp(tp)
        if device is not None:
            if not DEVICE.fullmatch(device):
                raise click.UsageError(f"--device {device!r}: {DEVICE_EXPECTED}")
            settings = settings.with_device(device)
        if not any(t.key_sha256 for t in settings.tenants):
            raise ConfigError(
                f"{config}: no [[tenant]] has a key_sha256, so nobody could call: "
                "run 'tenantscope keys new' and put the digest there"
            )
        # The front and the workers ask the same, but only after a model has been loaded.
        KeyRing(settings.tenants)
        Catalogue(settings)
        check_pools(settings.all_pools())
        check_pools_cut(settings)
    except ConfigError as e:
        raise click.UsageError(str(e)) from None
    door = HttpDoor(host, port, tls_cert, tls_key, plain_http)
    try:
        door.check()
    except DoorRefused as e:
        raise click.UsageError(str(e)) from None
    from engine.admin.listen import AdminListen

    admin = None
    if admin_listen is not None:
        admin = AdminListen(admin_listen, admin_tls_cert, admin_tls_key, admin_tokens)
        try:
            admin.check()
        except EngineError as e:
            raise click.UsageError(str(e)) from None
    elif admin_tls_cert or admin_tls_key or admin_tokens:
        raise click.UsageError(
            "--admin-tls-cert, --admin-tls-key, --admin-tokens: for --admin-listen"
        )
    try:
        _serve(settings, store, door, metrics_port, collector, otlp_to, config, admin)
    except EngineError as e:
        raise click.ClickException(str(e)) from None


def _check_collector(address: str) -> None:
    """What is wrong with address, CA or token is said before a model is loaded. Whether anything
    answers there is another matter: rows wait for it."""
    from telemetry.errors import StoreError
    from telemetry.service.client import StoreClient

    try:
        client = StoreClient(address)
        try:
            client.metadata()
        finally:
            client.close()
    except StoreError as e:
        raise click.UsageError(f"--collector: {e}") from None


def _check_otlp_to(url: str) -> None:
    from telemetry.outbound.settings import NOTHING
    from telemetry.settings import SettingsError

    try:
        NOTHING.with_endpoint(url)
    except SettingsError as e:
        raise click.UsageError(f"--otlp-to: {e}") from None


def _serve(
    settings: Settings,
    store: Path,
    door: HttpDoor,
    metrics_port: int,
    collector: str | None,
    otlp_to: str | None,
    config: Path,
    admin: AdminListen | None,
) -> None:
    from engine.admin.kept import with_changes
    from engine.admin.overlay_file import NAME as KEPT
    from engine.serving.notify import ServiceManager
    from engine.serving.process import ServeError
    from engine.serving.processes import ServeProcesses

    interrupted = False
    manager = ServiceManager()

    def echo(text: str, err: bool = True) -> None:
        """A full disk under the log, or a terminal that is gone, keeps nobody from serving."""
        with contextlib.suppress(OSError):
            click.echo(text, err=err)

    def tell(text: str) -> None:
        manager.status(text)
        echo(text)

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = signum == signal.SIGINT
        # The end is on its way and bounded; a second signal must not tear it apart.
        for number in told_by:
            signal.signal(number, signal.SIG_IGN)
        manager.stopping()
        raise _Told

    # A closed terminal asks to stop too, unless it was told not to (`nohup`).
    told_by = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        told_by.append(signal.SIGHUP)
    for number in told_by:
        signal.signal(number, stop)
    try:
        with ServeProcesses(
            settings,
            store,
            door=door,
            metrics_port=metrics_port,
            collector=collector,
            otlp_to=otlp_to,
            config=config,
            admin=admin,
            progress=tell,
            on_line=lambda name, line: echo(f"[{name}] {line}"),
        ) as processes:
            echo(processes.url, err=False)
            kept = f"in {store}" if collector is None else f"at {collector}"
            echo(f"serving at {processes.url}/v1, telemetry {kept}")
            now = with_changes(settings, str(store / KEPT), time.time())
            for pool in settings.pools:
                workers = f"{pool.replicas} worker{'s' * (pool.replicas > 1)}"
                workers += f" of {pool.tp} ranks" if pool.tp > 1 else ""
                echo(f"pool {pool.name!r}: {workers}, {_whom(now, pool)}")
            if door.said():
                echo(door.said())
            if metrics_port:
                echo(f"metrics at {processes.metrics_url}")
            echo(f"operators at {processes.admin_address} (tenantscope admin)")
            manager.ready(f"serving at {processes.url}/v1")
            failure = processes.wait()
            if failure is not None:
                raise ServeError(failure)
    except _Told:
        echo("stopped")
        if interrupted:
            raise SystemExit(130) from None


def _whom(settings: Settings, pool: PoolSpec) -> str:
    """Whose the pool is, in a few words; with what operators have changed."""
    from telemetry.plain import clip

    served = [t.name for t in settings.tenants if settings.pool_of(t).name == pool.name]
    if len(served) > 3:
        return f"{len(served)} tenants"
    shown = (clip(repr(name), _NAME_CELLS) for name in served)
    return f"for {', '.join(shown)}" if served else "for nobody yet"


class _Told(BaseException):
    """A signal asked `serve` to stop; the context manager ends the processes on its way out."""


@click.group()
def keys() -> None:
    """API keys of tenants."""


@keys.command("new")
@click.option(
    "--days",
    type=Finite(0, 36_500, min_open=True),
    help="The key opens for so many days; without it, until its digest is taken out.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def new(days: float | None, as_json: bool) -> None:
    """Make a key. It is shown once; the settings file holds only its digest.

    To replace a key, put the new digest beside the old one, and " until
    2027-01-31T00:00:00Z" behind the old: both open until then.

    \b
      tenantscope keys new
      tenantscope keys new --days 90
    """
    from engine.key_digest import written
    from engine.serving.api.auth import new_key

    key, digest = new_key()
    if days is not None:
        digest = written(digest, time.time() + days * 86_400)
    if as_json:
        click.echo(json.dumps({"key": key, "key_sha256": digest}))
    else:
        click.echo(f"key         {key}")
        click.echo(f"key_sha256  {digest}")
    click.echo(
        "Give the key to the tenant now, it cannot be shown again. "
        f'In the settings, under its [[tenant]]: key_sha256 = ["{digest}"]',
        err=True,
    )
