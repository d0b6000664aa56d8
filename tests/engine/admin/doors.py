"""An operator's door before a worker that says yes and a front without HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from engine.admin import reach
from engine.admin.listen import AdminListen
from engine.admin.member import Member
from engine.admin.overlay import Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.room import AdminRoom
from engine.config import Settings, Tenant
from engine.config_pools import PoolSpec
from engine.scheduling.quota import QuotaDoor
from engine.serving.api.auth import digest_of
from telemetry.proto import tenantscope_pb2 as pb
from telemetry.proto import tenantscope_pb2_grpc as pb_grpc

SETTINGS = Settings(
    engine="e",
    tenants=(
        Tenant("alice", rpm=100, key_sha256=(digest_of("ts-alice"),)),
        Tenant("-b"),
        Tenant("[red]x[/] y"),
    ),
)


class FakeFront:
    """The front's side without HTTP: a real door, and a thread that is its loop."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.door = QuotaDoor(settings)
        self.settings = settings
        self.threads: set[str] = set()

    def check(self, settings: Settings) -> None:
        for tenant in settings.tenants:
            assert tenant.name

    def apply(self, settings: Settings) -> None:
        self.threads.add(threading.current_thread().name)
        self.settings = settings
        for tenant in settings.tenants:
            self.door.put(tenant, 0.0)

    def views(self, tenants: Any) -> Any:
        return {t: self.door.view(t, 0.0) for t in tenants}


class FakeWorker(pb_grpc.WorkerServicer):
    """Says yes to everything."""

    def Operate(self, request: pb.OperateRequest, context: Any) -> pb.OperateReply:
        reply = pb.OperateReply(ok=True, detail="as told", policy_version=3)
        reply.tenants.add(tenant="alice", running=2, waiting=1)
        reply.adapters.add(name="\x1b[2J", hash="ab" * 32, pages=3, place="device", requests=2)
        return reply


@contextmanager
def opened(
    where: AdminListen, folder: Path, settings: Settings = SETTINGS
) -> Iterator[tuple[AdminRoom, FakeFront]]:
    """All workers are one that says yes; what each is told is told to it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="the-loop")
    thread.start()
    worker = grpc.server(futures.ThreadPoolExecutor(4))
    pb_grpc.add_WorkerServicer_to_server(FakeWorker(), worker)
    address = f"unix:{folder / 'worker.sock'}"
    worker.add_insecure_port(address)
    worker.start()
    front = FakeFront(settings)
    kept = OverlayFile(folder / "operator.json")
    workers = [
        Member(p.name, n, reach.WorkerWire(address))
        for p in settings.all_pools()
        for n in range(p.replicas)
    ]
    room = AdminRoom(where, settings, kept, Overlay(), workers, lambda: 1000.0, None)
    try:
        room.open(front, loop)
        yield room, front
    finally:
        room.close()
        worker.stop(0).wait(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def act(**more: Any) -> pb.Act:
    return pb.Act(who="op", **more)


SEVERAL = replace(SETTINGS, pools=(PoolSpec("main", replicas=2), PoolSpec("[b]gold")), adapters=())
