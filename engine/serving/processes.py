"""The processes of one `serve`: store, workers, front. Owns their start, their watch, their end.

Start: store first (nothing is lost), then the workers, then the front. End: the other way round,
so that no request comes in while the workers leave, and the last batches find a store. A store or
a worker that ends by itself is started again, serving goes on; without front there is no serving.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from engine.admin import base_file, overlay_file
from engine.admin.listen import SOCKET, AdminListen
from engine.clock import ClockBase, SystemClock
from engine.config import Settings
from engine.serving import workers
from engine.serving.device import check_pools
from engine.serving.door import HttpDoor, in_url, listen
from engine.serving.faults import NO_FAULTS, Faults
from engine.serving.keeper import Keeper
from engine.serving.launch import AdminLaunch, Launch, WorkerPlace
from engine.serving.process import Child, ServeError, obituary, ready_or_raise
from engine.serving.refused import in_a_sentence
from engine.serving.runtime import clear, make_runtime_dir
from engine.serving.vigil import Vigil
from engine.serving.workers import Workers, new_run_id

_STOP_S = 5.0
_STORE_START_S, _FRONT_START_S = 60.0, 90.0

Progress = Callable[[str], None]
Line = Callable[[str, str], None]


def _nothing(*_: str) -> None:
    return None


def _deaf(listener: Callable[..., None]) -> Callable[..., None]:
    """A listener that may fail (its terminal is gone, its disk is full) and takes nobody along."""

    def tell(*words: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            listener(*words)

    return tell


class ServeProcesses:
    """Context manager: inside it the pools serve at `url`.

    `door` is where tenants call; without one it is `host` and `port`, which must be loopback.
    `metrics_port` is where the store process serves Prometheus, always on loopback: it names
    tenants and asks for no key; 0 = nowhere. The socket is held here, so that it outlives a store
    that is started again.
    `collector` is the address of a store process elsewhere (`tenantscope collect`): rows go there,
    and none is started here; the token and CA to show there are taken from the environment.
    `otlp_to` is a third party's OTLP endpoint that the store process feeds beside those in its
    settings.
    `admin` is where operators call, a unix socket in the runtime folder by default; what they
    change is kept in the store's folder. `config` is the settings file they may have read again.
    `progress` hears one line a stage, `on_line` (process, line) whatever a child writes to
    stderr; neither can do harm by failing. `modules` names the module of each process; tests put
    others in their place. Raises ServeError, with a child's last words, when one does not start;
    ConfigError for pools that this machine or this version cannot serve.
    """

    def __init__(
        self,
        settings: Settings,
        store_dir: Path,
        runtime_dir: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: Faults | None = None,
        *,
        door: HttpDoor | None = None,
        metrics_port: int = 0,
        collector: str | None = None,
        otlp_to: str | None = None,
        config: Path | None = None,
        admin: AdminListen | None = None,
        progress: Progress | None = None,
        on_line: Line | None = None,
        modules: dict[str, str] | None = None,
    ) -> None:
        self.door = door or HttpDoor(host, port)
        self.door.check()
        if collector is not None and metrics_port:
            raise ServeError(
                f"--metrics-port {metrics_port}: with --collector the metrics are the collector's: "
                "start it with --metrics"
            )
        if collector is not None and otlp_to is not None:
            raise ServeError(
                f"--otlp-to {otlp_to}: with --collector it is the collector that sends: put an "
                "[[export]] into its settings"
            )
        if admin is not None:
            admin.check()
        check_pools(settings.all_pools())
        self.settings = settings
        self._config = config
        self._admin = admin
        self._collector = collector
        self._otlp_to = otlp_to
        self.store_dir = store_dir
        self.clock: ClockBase = SystemClock().base
        self.metrics_port = metrics_port
        self._metrics: socket.socket | None = None
        self._given_dir = runtime_dir
        self._made_dir: Path | None = None
        self._faults = faults or NO_FAULTS
        self._progress = _deaf(progress or _nothing)
        self._on_line = _deaf(on_line or _nothing)
        self._modules = {
            "store": "telemetry.service",
            "worker": "engine.serving.worker",
            "front": "engine.serving.front",
        } | (modules or {})
        self._store: Keeper | None = None
        self._workers: Workers | None = None
        self._front: Child | None = None  # as long as it lives, there is serving
        self._front_ended = threading.Event()
        self._vigil = Vigil(self._up, settings.hung_s, self._progress)
        self._stopping = False
        self._stop_lock = threading.Lock()

    @property
    def port(self) -> int:
        return self.door.port

    @property
    def url(self) -> str:
        return self.door.url

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes; None when it is off."""
        if not self.metrics_port:
            return None
        return f"http://{in_url(self.door.loopback_host)}:{self.metrics_port}/metrics"

    @property
    def runtime_dir(self) -> Path:
        """Where the sockets are. Raises ServeError before the start."""
        if self._made_dir is None:
            raise ServeError("not started yet: the runtime folder is made at the start")
        return self._made_dir

    @property
    def _base_path(self) -> Path:
        return self.runtime_dir / base_file.NAME

    @property
    def worker_places(self) -> tuple[WorkerPlace, ...]:
        """Every worker, in the order of the settings' pools."""
        return workers.places(self.settings, self.runtime_dir)

    @property
    def worker_address(self) -> str:
        """The first worker's."""
        return self.worker_places[0].address

    @property
    def run_id(self) -> str:
        """The first worker's run, as it was started last."""
        return "" if self._workers is None else self._workers.run_ids.get(0, "")

    @property
    def admin_address(self) -> str:
        """Where operators call."""
        if self._admin is not None:
            return self._admin.address
        return f"unix:{self.runtime_dir / SOCKET}"

    @property
    def store_address(self) -> str:
        if self._collector is not None:
            return self._collector
        return f"unix:{self.runtime_dir / 'store.sock'}"

    def __enter__(self) -> ServeProcesses:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start them all and return when requests are answered. Raises ServeError."""
        with listen(self.door.host, self.door.port) as listening, in_a_sentence():
            self.door = replace(self.door, port=listening.getsockname()[1])
            if self.metrics_port:
                host = self.door.loopback_host
                self._metrics = listen(host, self.metrics_port, "--metrics-port")
            self._made_dir = make_runtime_dir(self._given_dir)
            self._base_path.unlink(missing_ok=True)  # of another `serve` with this folder
            launch = Launch(
                settings=self.settings,
                clock=self.clock,
                run_id=new_run_id(),
                workers=self.worker_places,
                store_address=self.store_address,
                listen_fd=listening.fileno(),
                tls_cert=_whole(self.door.tls_cert),
                tls_key=_whole(self.door.tls_key),
                faults=self._faults,
                admin=self._admin_launch(),
            )
            if self._collector is None:
                self._start_store()
            self._workers = Workers(launch, self.runtime_dir, self._make_worker, self._progress)
            self._workers.start()
            self._start_front(replace(launch, run_id=self.run_id), listening.fileno())
            if self._store is not None:
                self._store.watch()
            self._vigil.start()

    def _up(self) -> list[Child]:
        """The processes that are ready and have not ended."""
        keepers = [] if self._workers is None else list(self._workers.keepers)
        if self._store is not None:
            keepers.append(self._store)
        children = [k.child for k in keepers]
        if self._front is not None:
            children.append(self._front)
        return [c for c in children if c.wait_ready(0) and c.poll() is None]

    def _admin_launch(self) -> AdminLaunch:
        where = self._admin or AdminListen(self.admin_address)
        cert, key, tokens = map(_whole, where.guards)
        return AdminLaunch(
            where.address,
            str((self.store_dir / overlay_file.NAME).absolute()),
            "" if self._config is None else str(self._config.absolute()),
            cert,
            key,
            tokens,
            str(self._base_path),
        )

    def failure(self) -> str | None:
        """What is wrong, in a sentence, when the front has ended by itself; None while it lives.
        Who else is away is said in `progress`, and by the front's /ready."""
        if self._stopping or self._front is None or self._front.poll() is None:
            return None
        how = self._front.how()
        return obituary(self._front, f"ended with {how} while serving{self._front.by_whom()}")

    def wait(self, timeout_s: float | None = None) -> str | None:
        """Block until the front ends by itself, or for `timeout_s`. Returns `failure()`."""
        self._front_ended.wait(timeout_s)
        return self.failure()

    def stop(self) -> None:
        """End everything: front, workers (all at once), store; 5 s each at most. May be called
        twice. One that does not end by itself is ended, and `progress` hears of it."""
        with self._stop_lock:
            self._stopping = True
            self._vigil.stop()
            if self._front is not None:
                ended_before = self._front.poll() is not None
                if self._front.stop(_STOP_S) != 0 and not ended_before:
                    self._progress(f"the front did not end cleanly: {self._front.how()}")
                self._front = None
            if self._workers is not None:
                self._workers.stop(_STOP_S)
            if self._store is not None:
                code, was_away = self._store.stop(_STOP_S)
                if code != 0 and not was_away:
                    how = self._store.child.how()
                    self._progress(f"the store did not end cleanly: {how}")
                self._store = None
            if self._metrics is not None:
                self._metrics.close()
                self._metrics = None
            if self._made_dir is not None:
                clear(self._made_dir, whole=self._given_dir is None)

    def _start_front(self, launch: Launch, listen_fd: int) -> None:
        self._progress("starting the front")
        path = self.runtime_dir / "launch.json"
        launch.write(path)
        self._front = self._child("front", "front", [str(path)], self._front_ended.set, [listen_fd])
        ready_or_raise(self._front, _FRONT_START_S)
        path.unlink()  # read by now; key digests need not lie about, should all be killed

    def _make_worker(
        self, name: str, arguments: Sequence[str], on_exit: Callable[[], None]
    ) -> Child:
        return self._child("worker", name, arguments, on_exit)

    def _start_store(self) -> None:
        self._progress("starting the store")
        arguments = ["--store", str(self.store_dir), "--listen", self.store_address]
        keep_fds = []
        if self._metrics is not None:
            keep_fds = [self._metrics.fileno()]
            arguments += ["--metrics-fd", str(keep_fds[0])]
        if self._otlp_to is not None:
            arguments += ["--otlp-to", self._otlp_to]
        self._store = Keeper(
            "store",
            lambda on_exit: self._child("store", "store", arguments, on_exit, keep_fds),
            self._progress,
            _STORE_START_S,
            "serving goes on, its rows wait",
        )
        ready_or_raise(self._store.child, _STORE_START_S)

    def _child(
        self,
        kind: str,
        name: str,
        arguments: Sequence[str],
        on_exit: Callable[[], None],
        keep_fds: Sequence[int] = (),
    ) -> Child:
        return Child(
            name,
            self._modules[kind],
            arguments,
            keep_fds=keep_fds,
            on_error_line=lambda line: self._on_line(name, line),
            on_progress=lambda text: self._progress(f"{name}: {text}"),
            on_exit=on_exit,
        )


def _whole(path: str) -> str:
    """A path made whole: a child may not stand where this process does."""
    return str(Path(path).absolute()) if path else ""
