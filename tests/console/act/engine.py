"""An engine's operator's door for the console's tests: the real service's words, a made-up engine.

Serves over a unix socket in this process. Versions, changes and dry runs behave as the real one's;
a test can have it hang, refuse or change by another hand.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc

AT = 1_800_000_000.0


@dataclass
class Tenant:
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    weight: float = 1.0
    tier: int = 0
    running: int = 4
    waiting: int = 2
    draining: bool = False
    adapters: tuple[str, ...] = ()


@dataclass
class Asked:
    method: str
    request: object


class Engine(pb_grpc.AdminServicer):
    """`hold`: calls wait for it while it is set; `refuses`: what it says to every act."""

    def __init__(self, name: str = "e1", pools: tuple[str, ...] = ("main",)) -> None:
        self.name = name
        self._pools = pools
        self.reset()

    def reset(self) -> None:
        self.pools = self._pools
        self.tenants = {
            "acme": Tenant(running=7, waiting=6, adapters=("acme-a", "acme-b")),
            "globex": Tenant(running=1),
            "initech": Tenant(running=0, waiting=0),
        }
        self.version = 7
        self.changes: list[pb.AdminChange] = []
        self.asked: list[Asked] = []
        self.refuses = ""
        self.closed = False
        self.hold = threading.Event()
        self.hold.set()

    # -- what another operator does

    def by_another(self, what: str, who: str = "bob") -> None:
        self.version += 1
        self._note(what, who, "", 900.0)

    def _note(self, what: str, who: str, why: str, ttl_s: float) -> None:
        self.changes.append(
            pb.AdminChange(
                number=len(self.changes) + 1,
                at_unix_s=AT + len(self.changes),
                until_unix_s=AT + ttl_s if ttl_s else 0.0,
                who=who,
                why=why,
                what=what,
                state="in force",
            )
        )

    # -- the service

    def Show(self, request, context):
        if self.closed:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this token is a viewer's")
        reply = pb.AdminShowReply(
            engine=self.name, pool=self.pools[0], version=self.version, policy="fcfs"
        )
        for name, t in self.tenants.items():
            row = reply.tenants.add(
                tenant=name, weight=t.weight, tier=t.tier, under_way=t.running + t.waiting,
                running=t.running, waiting=t.waiting, draining=t.draining, adapters=t.adapters,
                pool=self.pools[0],
            )  # fmt: skip
            for key in ("rpm", "tpm", "concurrency"):
                if getattr(t, key) is not None:
                    setattr(row, key, getattr(t, key))
        reply.adapters.add(name="acme-a", place="device", requests=5, pinned=True)
        reply.adapters.add(name="acme-b", place="host")
        reply.changes.extend(self.changes)
        for pool in self.pools:
            reply.workers.add(pool=pool)
        return reply

    def SetTenant(self, request, context):
        words = ", ".join(f"{k} {v}" for k, v in request.values.items())
        return self._do("SetTenant", request, context, f"tenant {request.tenant!r}: {words}")

    def DrainTenant(self, request, context):
        return self._do("DrainTenant", request, context, f"drain of {request.tenant!r}")

    def ResumeTenant(self, request, context):
        return self._do("ResumeTenant", request, context, f"drain of {request.tenant!r} is over")

    def PreemptTenant(self, request, context):
        return self._do("PreemptTenant", request, context, f"preempt {request.tenant!r}")

    def UnloadAdapter(self, request, context):
        return self._do("UnloadAdapter", request, context, f"unload {request.adapter!r}")

    def MoveTenant(self, request, context):
        what = f"move of {request.tenant!r} to {request.pool!r}"
        return self._do("MoveTenant", request, context, what)

    def Undo(self, request, context):
        held = [c for c in self.changes if c.state == "in force"]
        if not held:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "nothing to undo")
        return self._do("Undo", request, context, f"undone: {held[-1].what}")

    def _do(self, method: str, request, context, what: str) -> pb.AdminReply:
        self.asked.append(Asked(method, request))
        act = request.act
        self.hold.wait(20)
        if act.if_version and act.if_version != self.version:
            context.abort(
                grpc.StatusCode.ABORTED,
                f"version {act.if_version} is no longer in force, {self.version} is: look again",
            )
        if self.refuses:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuses)
        if not act.dry_run:
            self._apply(method, request, what)
        until = AT + act.ttl_s if act.ttl_s else 0.0
        result = pb.EngineResult(
            engine=self.name, pool=self.pools[0], ok=True, detail="13 requests under way go on"
        )
        return pb.AdminReply(version=self.version, dry_run=act.dry_run, effect=what,
                             until_unix_s=until, results=[result])  # fmt: skip

    def _apply(self, method: str, request, what: str) -> None:
        self.version += 1
        if method == "Undo":
            next(c for c in reversed(self.changes) if c.state == "in force").state = "undone"
            return
        if method == "SetTenant":
            for key, word in request.values.items():
                number = None if word == "none" else float(word) if key == "weight" else int(word)
                setattr(self.tenants[request.tenant], key, number)
        if method in ("DrainTenant", "ResumeTenant"):
            self.tenants[request.tenant].draining = method == "DrainTenant"
        if method not in ("PreemptTenant", "ResumeTenant"):
            self._note(what, request.act.who, request.act.why, request.act.ttl_s)


@dataclass
class Opened:
    """An engine that listens."""

    engine: Engine
    address: str
    server: grpc.Server = field(repr=False)

    def stop(self) -> None:
        self.engine.hold.set()
        self.server.stop(0).wait(5)


def opened(folder: Path, **of: object) -> Opened:
    engine = Engine(**of)  # type: ignore[arg-type]
    server = grpc.server(ThreadPoolExecutor(4))
    pb_grpc.add_AdminServicer_to_server(engine, server)
    address = f"unix:{folder}/admin.sock"
    server.add_insecure_port(address)
    server.start()
    return Opened(engine, address, server)
