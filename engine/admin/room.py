"""The operator's door in the front process: its server, its clock, its way to worker and HTTP.

Owns the gRPC server and one thread that ends changes whose time is over. Nothing here runs on the
HTTP loop but a few plain writes that it is asked for, and the loop waits for nothing of this.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import grpc

from engine.admin.act import FrontSilent, WorkerSilent
from engine.admin.desk import AdminDesk
from engine.admin.hands import FrontHands
from engine.admin.listen import AdminListen, NoDoor
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile, OverlayLost
from engine.admin.service import AdminService
from engine.config import Settings
from engine.errors import EngineError
from engine.scheduling.quota import QuotaView
from engine.serving.link import CHANNEL_OPTIONS
from telemetry.errors import StoreError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc
from telemetry.service import listen, tls
from telemetry.service.methods import gather
from telemetry.service.roles import Guard, TokenFile

if TYPE_CHECKING:
    from engine.admin.guard_watch import GuardWatch

_log = logging.getLogger(__name__)
_THREADS = 4
_MOST_CALLS = 32  # under way or waiting: one more is told to come again
_MESSAGE_BYTES = 1 << 20
_ACT_S = 60.0  # reading an adapter of some gigabytes from a slow disk
_LOOP_S = 10.0
_AT_ONCE = 200  # tenants looked at in one turn of the HTTP loop
_AGAIN_S = 5.0
_STOP_S = 0.2  # of each part; the front has more to end than this


class FrontSide(FrontHands, Protocol):
    """What of the front an operator can change, or sees; on the HTTP loop only."""

    def views(self, tenants: Iterable[str]) -> dict[str, QuotaView]: ...


class LoopHands:
    """The front's side, from other threads."""

    def __init__(self, front: FrontSide, loop: asyncio.AbstractEventLoop) -> None:
        self._front = front
        self._loop = loop

    def check(self, settings: Settings) -> None:
        self._front.check(settings)  # touches nothing of the loop's

    def apply(self, settings: Settings) -> None:
        self._on_loop(lambda: self._front.apply(settings))

    def views(self, tenants: Iterable[str]) -> dict[str, QuotaView]:
        found: dict[str, QuotaView] = {}
        rest = iter(tenants)
        while some := tuple(itertools.islice(rest, _AT_ONCE)):
            self._on_loop(lambda some=some: found.update(self._front.views(some)))  # type: ignore[misc]
        return found

    def _on_loop(self, call: Callable[[], None]) -> None:
        async def run() -> None:
            call()

        try:
            asyncio.run_coroutine_threadsafe(run(), self._loop).result(_LOOP_S)
        except TimeoutError:  # it stays in the loop's queue, in its order
            raise FrontSilent(
                f"the front has not turned within {_LOOP_S:g} s; it does as it was told when it "
                "does: look what is in force before you try again"
            ) from None


class WorkerWire:
    """The worker's side: one small call an act."""

    def __init__(self, address: str, timeout_s: float = _ACT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = pb_grpc.WorkerStub(self._channel)  # type: ignore[no-untyped-call]

    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        """Raises WorkerSilent, EngineError."""
        try:
            reply: pb.OperateReply = self._stub.Operate(request, timeout=self._timeout_s)
            return reply
        except grpc.RpcError as e:
            if e.code() is grpc.StatusCode.ABORTED:
                raise WorkerSilent(e.details()) from None
            raise WorkerSilent(
                f"the pool's worker does not answer ({e.code().name.lower()}): see whether it "
                "runs, then look what is in force before you try again"
            ) from None

    def close(self) -> None:
        self._channel.close()


def read_overlay(kept: OverlayFile, now_unix_s: float) -> tuple[Overlay, str]:
    """What is in force of a file, and a sentence about what went wrong with it, or "". A file that
    is no overlay is moved aside: it must not keep an engine from serving."""
    try:
        return kept.read().expired(now_unix_s)[0], ""
    except OverlayLost as e:
        try:
            aside = f"it lies at {kept.set_aside()} now"
        except OSError as why:
            aside = f"it stays where it is ({why.strerror})"
        return Overlay(), f"operators' changes are not in force: {e}; {aside}"


class AdminRoom:
    """`open` when the loop runs, `close` before it ends. Built with what holds at the start."""

    def __init__(
        self,
        where: AdminListen,
        base: Settings,
        kept: OverlayFile,
        overlay: Overlay,
        worker_address: str,
        now: Callable[[], float],
        config: Path | None,
        store_address: str = "",
    ) -> None:
        """`store_address`: whose incidents the guard rails look at; without it there are none."""
        self._store_address = store_address
        self._guard: GuardWatch | None = None
        self._where = where
        self._base = base
        self._kept = kept
        self._overlay = overlay
        self._now = now
        self._config = config
        self._worker = WorkerWire(worker_address)
        self._wake = threading.Event()
        self._closing = False
        self._sync = False
        self._thread: threading.Thread | None = None
        self._server: grpc.Server | None = None
        self._desk: AdminDesk | None = None

    @property
    def desk(self) -> AdminDesk:
        """Raises EngineError before `open`."""
        if self._desk is None:
            raise EngineError("the operator's door is not open yet")
        return self._desk

    def open(self, front: FrontSide, loop: asyncio.AbstractEventLoop) -> None:
        """Listen, and watch the time. Raises NoDoor. Not on the loop's thread."""
        hands = LoopHands(front, loop)
        self._desk = AdminDesk(
            self._base,
            self._kept,
            self._overlay,
            self._worker,
            hands,
            self._now,
            self._config,
            changed=self._wake.set,
        )
        self._server = _serve(self._where, self._desk, hands)
        self._thread = threading.Thread(target=self._watch, name="admin-clock", daemon=True)
        self._thread.start()
        if self._store_address and self._base.guard.mode != "off":
            from engine.admin.guard_watch import GuardWatch

            self._guard = GuardWatch(self._store_address, self._desk, self._now)
            self._guard.start()

    def worker_up(self) -> None:
        """A worker answers; it is told what is in force. Any thread, at once."""
        self._sync = True
        self._wake.set()

    def close(self) -> None:
        """Bounded: what is under way is given up."""
        self._closing = True
        self._wake.set()
        if self._guard is not None:
            self._guard.close()
        if self._server is not None:
            self._server.stop(_STOP_S).wait(2 * _STOP_S)
        self._worker.close()
        if self._thread is not None:
            self._thread.join(2 * _STOP_S)

    def _watch(self) -> None:
        said = ""
        while not self._closing:
            due = self.desk.next_expiry_s
            pause = None if due is None else max(0.0, due - self._now())
            if self._sync or self.desk.owes:
                pause = 0.0
            self._wake.wait(pause)
            self._wake.clear()
            if self._closing:
                return
            try:
                self._turn()
                said = ""
            except Exception as e:  # the clock must not end with one bad turn
                if str(e) != said:
                    said = str(e)
                    _log.error("operators' changes: %s", e)
                self._wake.wait(_AGAIN_S)

    def _turn(self) -> None:
        # First what is over: a worker that is silent keeps no limit in force at the door.
        for what in self.desk.expire():
            _log.warning("over: %s", what)
        if self._sync or self.desk.owes:
            self._sync = False
            try:
                for name in self.desk.sync():
                    _log.error("adapter %r is left out: its folder is refused", name)
            except WorkerSilent:
                self._sync = True
                raise


def _serve(where: AdminListen, desk: AdminDesk, hands: LoopHands) -> grpc.Server:
    where.check()
    try:
        tokens = None if where.is_unix else TokenFile(Path(where.tokens))
        service = AdminService(desk, hands, tokens)
        handlers, roles = gather([service.as_served()])
        server = grpc.server(
            futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="admin-grpc"),
            interceptors=(Guard(roles, tokens, _denied),),
            options=(
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
            ),
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        server.add_generic_rpc_handlers(handlers)
        if where.files is None:
            path = listen.free_socket(where.address)
            mask = os.umask(0o177)  # nobody else may connect even before the mode is set
            try:
                server.add_insecure_port(where.address)
            finally:
                os.umask(mask)
            path.chmod(0o600)
        else:
            server.add_secure_port(where.address, tls.server_credentials(where.files))
    except (StoreError, RuntimeError, OSError) as e:
        why = str(e) if isinstance(e, StoreError) else listen.why_not(where.address)
        raise NoDoor(f"the operator's door cannot be opened at {where.address}: {why}") from None
    server.start()
    return server


def _denied(method: str, why: str) -> None:
    _log.warning("operator's door: turned away: %s", why)
