"""The operator's door in the front process: its server, and its clock.

Owns the gRPC server and one thread that ends changes whose time is over. Nothing here runs on the
HTTP loop but a few plain writes that it is asked for, and the loop waits for nothing of this.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from engine.admin.base_file import BaseFile
from engine.admin.desk import AdminDesk
from engine.admin.errors import OverlayLost
from engine.admin.listen import AdminListen, NoDoor
from engine.admin.member import Member
from engine.admin.overlay import Change, Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.reach import FrontSide, LoopHands
from engine.admin.service import AdminService
from engine.config import Settings
from engine.errors import EngineError
from telemetry.errors import StoreError
from telemetry.service import listen, tls
from telemetry.service.methods import gather
from telemetry.service.roles import Guard, TokenFile

if TYPE_CHECKING:
    from engine.admin.guard_watch import GuardWatch

_log = logging.getLogger(__name__)
_THREADS = 4
_MOST_CALLS = 32  # under way or waiting: one more is told to come again
_MESSAGE_BYTES = 1 << 20
_AGAIN_S, _AGAIN_MOST_S = 0.5, 30.0  # between two tries to tell a worker that is silent
_STOP_S = 0.2  # of each part; the front has more to end than this


def read_overlay(kept: OverlayFile, now_unix_s: float) -> tuple[Overlay, tuple[Change, ...], str]:
    """What is in force of a file, what of it ended while nobody ran, and a sentence about what went
    wrong with it, or "". A file that is no overlay is moved aside: it must not keep an engine from
    serving."""
    try:
        found = kept.read()
    except OverlayLost as e:
        try:
            aside = f"it lies at {kept.set_aside()} now"
        except OSError as why:
            aside = f"it stays where it is ({why.strerror})"
        return Overlay(), (), f"operators' changes are not in force: {e}; {aside}"
    overlay, trouble = found.after_restart(now_unix_s), ""
    if overlay != found:  # else the next start would count the same seconds once more
        try:
            kept.write(overlay)
        except OverlayLost as e:
            trouble = f"{e}; the clock was set back, and changes end as it was right before"
    return *overlay.expired(now_unix_s), trouble


class AdminRoom:
    """`open` when the loop runs, `close` before it ends. Built with what holds at the start."""

    def __init__(
        self,
        where: AdminListen,
        base: Settings,
        kept: OverlayFile,
        overlay: Overlay,
        workers: Sequence[Member],
        now: Callable[[], float],
        config: Path | None,
        store_address: str = "",
        over: Sequence[Change] = (),
        base_file: BaseFile | None = None,
    ) -> None:
        """`over`: changes that ended while nobody ran; they are written down when a worker answers.
        `store_address`: whose incidents the guard rails look at; without it there are none.
        `base_file`: where the settings are kept once they were read again."""
        self._store_address = store_address
        self._base_file = base_file
        self._guard: GuardWatch | None = None
        self._where = where
        self._base = base
        self._kept = kept
        self._overlay = overlay
        self._now = now
        self._config = config
        self._over = over
        self._workers = tuple(workers)
        self._wake = threading.Event()
        self._closing = False
        # Pool and replica of workers that began to answer; each of its few calls is whole.
        self._came: deque[tuple[str, int]] = deque()
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
            self._workers,
            hands,
            self._now,
            self._config,
            changed=self._wake.set,
            over=self._over,
            base_file=self._base_file,
        )
        self._server = _serve(self._where, self._desk, hands)
        self._thread = threading.Thread(target=self._watch, name="admin-clock", daemon=True)
        self._thread.start()
        if self._store_address and self._base.guard.mode != "off":
            from engine.admin.guard_watch import GuardWatch

            self._guard = GuardWatch(self._store_address, self._desk, self._now)
            self._guard.start()

    def worker_up(self, pool: str | None = None, replica: int = 0) -> None:
        """A worker answers (without a pool: any of them may); it is told what is in force. Any
        thread, at once."""
        everybody = [(m.pool, m.replica) for m in self._workers]
        self._came.extend(everybody if pool is None else [(pool, replica)])
        self._wake.set()

    def close(self) -> None:
        """Bounded: what is under way is given up."""
        self._closing = True
        self._wake.set()
        if self._guard is not None:
            self._guard.close()
        if self._server is not None:
            self._server.stop(_STOP_S).wait(2 * _STOP_S)
        for member in self._workers:
            member.hands.close()
        if self._thread is not None:
            self._thread.join(2 * _STOP_S)

    def _watch(self) -> None:
        said, again_s = "", _AGAIN_S
        while not self._closing:
            self._wake.wait(0.0 if self._came or self.desk.owes else self._until_due_s())
            self._wake.clear()
            if self._closing:
                return
            if self._came:  # the wire to it may still be in the pause after a failure
                again_s = _AGAIN_S
            try:
                self._turn()
                said, again_s = "", _AGAIN_S
            except Exception as e:  # the clock must not end with one bad turn
                if str(e) != said:
                    said = str(e)
                    _log.error("operators' changes: %s; it is tried again", e)
                due_s = self._until_due_s()
                self._wake.wait(again_s if due_s is None else max(0.5, min(again_s, due_s)))
                again_s = min(2 * again_s, _AGAIN_MOST_S)

    def _until_due_s(self) -> float | None:
        due = self.desk.next_expiry_s
        return None if due is None else max(0.0, due - self._now())

    def _turn(self) -> None:
        # First what is over: a worker that is silent keeps no limit in force at the door.
        for what in self.desk.expire():
            _log.warning("over: %s", what)
        if self._came or self.desk.owes:
            came = {self._came.popleft() for _ in range(len(self._came))}
            for name in self.desk.sync(lambda m: (m.pool, m.replica) in came):
                _log.error("adapter %r is left out: its folder is refused", name)


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
