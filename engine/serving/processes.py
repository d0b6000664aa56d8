"""The processes of one `serve`: store, worker, front. Owns their start, their watch, their end.

Start: store first (nothing is lost), then the worker, then the front. End: the other way round,
so that no request comes in while the worker leaves, and the last batches find a store. A store
that ends by itself is started again, serving goes on; without worker or front there is no serving.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from engine.admin import overlay_file
from engine.admin.listen import SOCKET, AdminListen
from engine.clock import ClockBase, SystemClock
from engine.config import Settings
from engine.errors import EngineError
from engine.serving.faults import NO_FAULTS, Faults
from engine.serving.keeper import Keeper
from engine.serving.launch import AdminLaunch, Launch
from engine.serving.process import Child

LONGEST_SOCKET_PATH = 100  # the kernel's own limit is 107 bytes
_STOP_S = 5.0
_START_S = {"store": 60.0, "worker": 1800.0, "front": 90.0}  # the worker may download its model
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

Progress = Callable[[str], None]
Line = Callable[[str, str], None]


class ServeError(EngineError):
    """A process of `serve` did not start, or ended when it should not have."""


def _nothing(*_: str) -> None:
    return None


def _deaf(listener: Callable[..., None]) -> Callable[..., None]:
    """A listener that may fail (its terminal is gone, its disk is full) and takes nobody along."""

    def tell(*words: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            listener(*words)

    return tell


class ServeProcesses:
    """Context manager: inside it the pool serves at `url`.

    `metrics_port` is where the store process serves Prometheus, on the same loopback address; 0 =
    nowhere. The socket is held here, so that it outlives a store that is started again.
    `collector` is the address of a store process elsewhere (`tenantscope collect`): rows go there,
    and none is started here; the token and CA to show there are taken from the environment.
    `otlp_to` is a third party's OTLP endpoint that the store process feeds beside those in its
    settings.
    `admin` is where operators call, a unix socket in the runtime folder by default; what they
    change is kept in the store's folder. `config` is the settings file they may have read again.
    `progress` hears one line a stage, `on_line` (process, line) whatever a child writes to
    stderr; neither can do harm by failing. `modules` names the module of each process; tests put
    others in their place. Raises ServeError, with a child's last words, when one does not start.
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
        metrics_port: int = 0,
        collector: str | None = None,
        otlp_to: str | None = None,
        config: Path | None = None,
        admin: AdminListen | None = None,
        progress: Progress | None = None,
        on_line: Line | None = None,
        modules: dict[str, str] | None = None,
    ) -> None:
        if host not in _LOOPBACK:
            raise ServeError(
                f"--host {host}: this version listens on loopback only: "
                "use 127.0.0.1, ::1 or localhost"
            )
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
        self.settings = settings
        self._config = config
        self._admin = admin
        self._collector = collector
        self._otlp_to = otlp_to
        self.store_dir = store_dir
        self.clock: ClockBase = SystemClock().base
        self.run_id = f"run-{secrets.token_hex(6)}"
        self.host, self.port = host, port
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
        self._children: list[Child] = []  # worker, front: as long as they live, it serves
        self._something_ended = threading.Event()
        self._stopping = False
        self._stop_lock = threading.Lock()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes; None when it is off."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.metrics_port}/metrics" if self.metrics_port else None

    @property
    def runtime_dir(self) -> Path:
        """Where the sockets are. Raises ServeError before the start."""
        if self._made_dir is None:
            raise ServeError("not started yet: the runtime folder is made at the start")
        return self._made_dir

    @property
    def worker_address(self) -> str:
        return f"unix:{self.runtime_dir / 'worker.sock'}"

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
        """Start all three and return when requests are answered. Raises ServeError."""
        with listen(self.host, self.port) as listening, _said():
            self.port = listening.getsockname()[1]
            if self.metrics_port:
                self._metrics = listen(self.host, self.metrics_port, "--metrics-port")
            self._made_dir = make_runtime_dir(self._given_dir)
            launch = Launch(
                settings=self.settings,
                clock=self.clock,
                run_id=self.run_id,
                worker_address=self.worker_address,
                store_address=self.store_address,
                listen_fd=listening.fileno(),
                faults=self._faults,
                admin=self._admin_launch(),
            )
            args = self.runtime_dir / "launch.json"
            launch.write(args)
            if self._collector is None:
                self._start_store()
            self._start("worker", [str(args)])
            self._start("front", [str(args)], keep_fds=(listening.fileno(),))
            args.unlink()  # read by now; key digests need not lie about, should all be killed
        if self._store is not None:
            self._store.watch()

    def _admin_launch(self) -> AdminLaunch:
        """Paths are made whole: a child may not stand where this process does."""
        where = self._admin or AdminListen(self.admin_address)
        return AdminLaunch(
            where.address,
            str((self.store_dir / overlay_file.NAME).absolute()),
            "" if self._config is None else str(self._config.absolute()),
            *(str(Path(f).absolute()) if f else "" for f in where.guards),
        )

    def failure(self) -> str | None:
        """What is wrong, in a sentence, when worker or front has ended by itself; None while both
        live."""
        if self._stopping:
            return None
        for child in self._children:
            code = child.poll()
            if code is not None:
                return _obituary(child, f"ended with {child.how()} while serving")
        return None

    def wait(self, timeout_s: float | None = None) -> str | None:
        """Block until worker or front ends by itself, or for `timeout_s`. Returns `failure()`."""
        self._something_ended.wait(timeout_s)
        return self.failure()

    def stop(self) -> None:
        """End everything: front, worker, store; 5 s each at most. May be called twice. One that
        does not end by itself is ended, and `progress` hears of it."""
        with self._stop_lock:
            self._stopping = True
            for child in reversed(self._children):
                ended_before = child.poll() is not None
                if child.stop(_STOP_S) != 0 and not ended_before:
                    self._progress(f"the {child.name} did not end cleanly: {child.how()}")
            self._children.clear()
            if self._store is not None:
                code, ended_before = self._store.stop(_STOP_S)
                if code != 0 and not ended_before:
                    how = self._store.child.how()
                    self._progress(f"the store did not end cleanly: {how}")
                self._store = None
            if self._metrics is not None:
                self._metrics.close()
                self._metrics = None
            if self._made_dir is not None:
                _remove(self._made_dir, whole=self._given_dir is None)

    def _start(self, name: str, arguments: Sequence[str], keep_fds: Sequence[int] = ()) -> None:
        self._progress(f"starting the {name}")
        child = self._child(name, arguments, self._something_ended.set, keep_fds)
        self._children.append(child)
        _await(child)

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
            lambda on_exit: self._child("store", arguments, on_exit, keep_fds),
            self._progress,
            _START_S["store"],
        )
        _await(self._store.child)

    def _child(
        self,
        name: str,
        arguments: Sequence[str],
        on_exit: Callable[[], None],
        keep_fds: Sequence[int] = (),
    ) -> Child:
        return Child(
            name,
            self._modules[name],
            arguments,
            keep_fds=keep_fds,
            on_error_line=lambda line: self._on_line(name, line),
            on_progress=lambda text: self._progress(f"{name}: {text}"),
            on_exit=on_exit,
        )


def _await(child: Child) -> None:
    """Raises ServeError when it does not become ready."""
    if child.wait_ready(_START_S[child.name]):
        return
    what = (
        f"was not ready within {_START_S[child.name]:.0f} s"
        if child.poll() is None
        else f"ended with {child.how()} before it was ready"
    )
    raise ServeError(_obituary(child, what))


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """What the system refuses at the start (no room, no more processes), as a ServeError."""
    try:
        yield
    except OSError as e:
        where = f" ({e.filename})" if e.filename else ""
        raise ServeError(f"cannot start: {e.strerror or e}{where}; make room, or set TMPDIR") from e


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A listening socket; port 0 = any free one. Raises ServeError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as e:
        listening.close()
        raise ServeError(
            f"cannot listen on {host}, port {port} ({(e.strerror or str(e)).lower()}): "
            f"choose another one with {option}"
        ) from None
    return listening


def make_runtime_dir(given: Path | None) -> Path:
    """A folder only its owner may enter, with a path short enough for unix sockets."""
    longest = len(os.fsencode("/worker.sock"))
    if given is not None:
        given.mkdir(mode=0o700, parents=True, exist_ok=True)
        given.chmod(0o700)
        folder = given.resolve()
    else:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) + len("/tenantscope-12345678") + longest > LONGEST_SOCKET_PATH:
            parent = "/tmp"
        folder = Path(tempfile.mkdtemp(prefix="tenantscope-", dir=parent))
    if len(os.fsencode(folder)) + longest > LONGEST_SOCKET_PATH:
        raise ServeError(
            f"the runtime folder {folder} is too long for unix sockets "
            f"({LONGEST_SOCKET_PATH - longest} bytes at most): choose a shorter one"
        )
    return folder


def _remove(folder: Path, *, whole: bool) -> None:
    if whole:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for name in ("launch.json", "worker.sock", "store.sock", SOCKET):
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def _obituary(child: Child, what: str) -> str:
    words = child.last_words()
    said = "; it said:\n" + "\n".join(f"  {line}" for line in words) if words else ""
    return f"the {child.name} process {what}{said}"
