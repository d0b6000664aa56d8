"""An engine's operator's door, as the console uses it. Owns one channel; decides nothing.

Every call ends within a bound: an engine that does not answer is a sentence, never a wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import grpc

from console.act.hand import DoorShut
from console.act.values import (
    AdapterState,
    Answer,
    Change,
    EngineState,
    No,
    Order,
    Part,
    TenantState,
)
from telemetry.errors import StoreError
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc
from telemetry.service import listen
from telemetry.service.access import Access

LOOK_S = 8.0  # the engine itself waits five for a worker that is frozen, the first time
ACT_S = 15.0  # the engine itself gives up on a stuck step after ten
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 << 20),
)
_CLOSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class AdminDoor:
    """Over TCP always encrypted; what is shown there comes from the environment. Raises DoorShut
    for what is no address."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        self.address = address
        self._access = Access.of_environment() if access is None else access
        try:
            target = listen.target(address)
            self._encrypted = not address.startswith(listen.UNIX)
            self._channel = (
                grpc.secure_channel(target.address, self._access.credentials(), options=_OPTIONS)
                if self._encrypted
                else grpc.insecure_channel(target.address, options=_OPTIONS)
            )
        except StoreError as e:
            raise DoorShut(str(e)) from None
        self._stub: Any = pb_grpc.AdminStub(self._channel)  # type: ignore[no-untyped-call]

    def look(self) -> EngineState:
        """What is in force. Raises DoorShut."""
        try:
            reply = self._stub.Show(pb.AdminShowRequest(), timeout=LOOK_S, metadata=self._shown())
        except grpc.RpcError as e:
            raise DoorShut(self._words(e, LOOK_S)) from None
        return state_of(self.address, reply)

    def act(self, order: Order) -> Answer:
        """Ask for it. What the engine said against it is an answer, too. Raises DoorShut."""
        try:
            call = getattr(self._stub, order.method)
            reply = call(request_of(order), timeout=ACT_S, metadata=self._shown())
        except grpc.RpcError as e:
            return Answer(address=self.address, no=_kind(e.code()), why_not=self._words(e, ACT_S))
        return answer_of(self.address, reply)

    def close(self) -> None:
        """Calls under way end at once."""
        self._channel.close()

    def _shown(self) -> list[tuple[str, str]]:
        try:
            token = self._access.read_token() if self._encrypted else None
        except StoreError as e:
            raise DoorShut(str(e)) from None
        return [] if token is None else [("authorization", f"Bearer {token}")]

    def _words(self, e: grpc.RpcError, within_s: float) -> str:
        code, said = e.code(), e.details() or "it does not say why"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer from {self.address} within {within_s:.0f} s"
        if code is grpc.StatusCode.UNAVAILABLE and said.startswith("not now: "):
            return said.removeprefix("not now: ")
        if code in _GONE:
            return (
                f"nobody answers at {self.address}: does the engine run, and is that its "
                "operator's address?"
            )
        return f"{self.address}: {said}" if code in _CLOSED else said


def _kind(code: grpc.StatusCode) -> No:
    if code is grpc.StatusCode.ABORTED:
        return No.MOVED
    if code is grpc.StatusCode.DEADLINE_EXCEEDED or code in _GONE:
        return No.SILENT
    return No.REFUSED


def request_of(order: Order) -> Any:
    """The service's own message for an order."""
    act = pb.Act(
        who=order.who,
        engine=order.engine,
        why=order.why,
        if_version=order.if_version,
        ttl_s=order.ttl_s,
        permanent=order.permanent,
        dry_run=order.dry_run,
    )
    if order.method == "SetTenant":
        return pb.SetTenantRequest(act=act, tenant=order.tenant, values=dict(order.values))
    if order.method == "MoveTenant":
        return pb.AdminMoveRequest(act=act, tenant=order.tenant, pool=dict(order.values)["pool"])
    if order.method == "UnloadAdapter":
        return pb.AdminAdapterRequest(act=act, adapter=order.adapter)
    if order.method == "Undo":
        return pb.AdminUndoRequest(act=act)
    return pb.AdminTenantRequest(act=act, tenant=order.tenant)


def state_of(address: str, reply: pb.AdminShowReply) -> EngineState:
    return EngineState(
        address=address,
        engine=reply.engine,
        pool=reply.pool,
        version=reply.version,
        policy=reply.policy,
        tenants=tuple(_tenant(t, reply.pool) for t in reply.tenants),
        adapters=_adapters(reply.adapters),
        pools=tuple(dict.fromkeys(w.pool for w in reply.workers if w.pool)) or (reply.pool,),
        changes=tuple(
            Change(
                number=c.number,
                at=c.at_unix_s,
                until=c.until_unix_s or None,
                who=c.who,
                why=c.why,
                what=c.what,
                state=c.state,
            )
            for c in reply.changes
        ),
        silent=reply.worker,
    )


def _adapters(rows: Iterable[pb.AdapterNow]) -> tuple[AdapterState, ...]:
    """One a name: several workers may have it."""
    using: dict[str, int] = {}
    places: dict[str, str] = {}
    pinned: set[str] = set()
    for a in rows:
        using[a.name] = using.get(a.name, 0) + a.requests
        places.setdefault(a.name, a.place)
        pinned |= {a.name} if a.pinned else set()
    return tuple(
        AdapterState(name=n, place=places[n], requests=using[n], pinned=n in pinned) for n in using
    )


def _tenant(t: pb.AdminTenant, pool: str) -> TenantState:
    return TenantState(
        tenant=t.tenant,
        rpm=t.rpm if t.HasField("rpm") else None,
        tpm=t.tpm if t.HasField("tpm") else None,
        concurrency=t.concurrency if t.HasField("concurrency") else None,
        weight=t.weight,
        tier=t.tier,
        pool=t.pool or pool,
        under_way=t.under_way,
        running=t.running,
        waiting=t.waiting,
        draining=t.draining,
        adapters=tuple(t.adapters),
    )


def answer_of(address: str, reply: pb.AdminReply) -> Answer:
    return Answer(
        address=address,
        effect=reply.effect,
        until=reply.until_unix_s or None,
        version=reply.version,
        parts=_parts(reply),
    )


def _parts(reply: pb.AdminReply) -> tuple[Part, ...]:
    """What each worker said where there are several, else what the engine did."""
    engines = [Part(f"{r.engine}/{r.pool}", r.ok, r.detail) for r in reply.results]
    if len(reply.workers) < 2:
        return tuple(engines)
    whole = [p for p in engines if not p.ok]
    engine = reply.results[0].engine if reply.results else ""
    named = Counter(w.pool for w in reply.workers)
    workers = [
        Part(
            f"{engine}/{w.pool}" + (f"#{w.replica + 1}" if named[w.pool] > 1 else ""),
            w.ok or w.owed,
            f"does not answer, is told when it does: {w.detail}" if w.owed else w.detail,
        )
        for w in reply.workers
    ]
    return (*whole, *workers)
