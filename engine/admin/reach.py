"""How the desk reaches worker processes and the HTTP loop. Owns channels; decides nothing."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import grpc

from engine.admin.errors import FrontSilent, WorkerSilent
from engine.admin.hands import FrontHands
from engine.config import Settings
from engine.scheduling.quota import QuotaView
from engine.serving.link import CHANNEL_OPTIONS
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc

_ACT_S = 60.0  # reading an adapter of some gigabytes from a slow disk
_LOOK_S = 5.0  # to look takes no step and reads nothing
_GLANCE_S = 0.5  # at one that did not answer the time before: whoever looks waits for all
_LOOP_S = 10.0
_AT_ONCE = 200  # tenants looked at in one turn of the HTTP loop


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
    """One worker's side: one small call an act. `name` is what a person calls it. One that let a
    call run out of time is looked at first before it is given as much again: a process that is
    frozen must not hold up every act."""

    def __init__(
        self,
        address: str,
        name: str = "worker",
        timeout_s: float = _ACT_S,
        look_s: float = _LOOK_S,
    ) -> None:
        self._address = address
        self._name = name
        self._timeout_s, self._look_s = timeout_s, look_s
        self._frozen = False  # as far as is known
        self._lock = threading.Lock()
        self._closed = False
        self._connect()

    def operate(self, request: pb.OperateRequest) -> pb.OperateReply:
        """Raises WorkerSilent."""
        if request.WhichOneof("act") == "look":
            frozen = self._frozen
            return self._call(request, min(self._look_s, _GLANCE_S) if frozen else self._look_s)
        if self._frozen:
            self._call(pb.OperateRequest(look="all"), self._look_s)
        return self._call(request, self._timeout_s)

    def _call(self, request: pb.OperateRequest, timeout_s: float) -> pb.OperateReply:
        stub = self._stub
        try:
            reply: pb.OperateReply = stub.Operate(request, timeout=timeout_s)
            self._frozen = False
            return reply
        except grpc.RpcError as e:
            self._frozen = e.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if e.code() is grpc.StatusCode.ABORTED:
                raise WorkerSilent(e.details()) from None
            if e.code() is grpc.StatusCode.UNAVAILABLE:
                self._reconnect(stub)
            raise WorkerSilent(
                f"the {self._name} does not answer ({e.code().name.lower()})"
            ) from None
        except ValueError:  # grpc's word for a channel that another thread has closed just now
            raise WorkerSilent(f"the {self._name} was lost while it was asked") from None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._channel.close()

    def _connect(self) -> None:
        self._channel = grpc.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        self._stub: pb_grpc.WorkerStub = pb_grpc.WorkerStub(self._channel)  # type: ignore[no-untyped-call]

    def _reconnect(self, failed: pb_grpc.WorkerStub) -> None:
        """A channel that failed waits before it tries again, and a worker that is back is to be
        told at once. Once a failure, whoever has met it."""
        with self._lock:
            if self._stub is failed and not self._closed:
                self._channel.close()
                self._connect()
