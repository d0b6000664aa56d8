"""A front and its worker in processes of their own, and a client that costs little: for benchmarks.

The worker is the real service, core, scheduler and ledger over a runner that computes nothing: a
step takes `step_s`, and every token is the same letter. The front is the real one with the
synthetic tokenizer; rows go nowhere. A front's time is its process's CPU time, from the kernel, so
that others on the machine do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.clock import ClockBase, SystemClock, TurnedClock
from engine.config import Limits, Settings, Tenant
from engine.scheduling.plan import StepOutcome, StepPlan
from telemetry.records import Batch

PAGE_BYTES = 1 << 16
PAGES = 1 << 16
_TICKS = os.sysconf("SC_CLK_TCK")


def key_of(tenant: str) -> str:
    return f"ts-bench-{tenant}"


def settings_for(tenants: int = 8, limits: Limits | None = None, **first: Any) -> Settings:
    """Tenants t0, t1, ...; `first` are limits of t0."""
    from engine.serving.api.auth import digest_of

    each = [f"t{i}" for i in range(tenants)]
    return Settings(
        engine="bench",
        model="synthetic",
        limits=limits
        or Limits(
            slots=1024,
            step_tokens=8192,
            max_context=8192,
            pool_bytes=PAGES * PAGE_BYTES,
            queue=1 << 16,
            queue_per_tenant=1 << 16,
        ),
        tenants=tuple(
            Tenant(name=t, key_sha256=(digest_of(key_of(t)),), **(first if i == 0 else {}))
            for i, t in enumerate(each)
        ),
    )


class Sink:
    """Takes rows and keeps none."""

    def submit(self, batch: Batch) -> None: ...

    def close(self, timeout_s: float = 0.0) -> None: ...

    def recent(self, start: float, end: float) -> tuple[list[bytes], list[bytes]]:
        return [], []

    def newer(self, after: int, most_bytes: int) -> tuple[list[bytes], list[bytes], int, bool]:
        return [], [], after, False


class Letters:
    """A runner whose every token is `token`, a step `step_s` long."""

    def __init__(self, step_s: float, token: int) -> None:
        self._step_s = step_s
        self._token = token

    def execute(self, plan: StepPlan) -> StepOutcome:
        time.sleep(self._step_s)
        token = self._token
        return StepOutcome({s.request_id: token for s in plan.segments if s.samples}, {})


def serve_worker(address: str, settings: Settings, base: ClockBase, step_s: float) -> None:
    """Until SIGTERM; then what is left is printed: free pages, live requests."""
    from engine.collector import few_collections
    from engine.core import EngineCore
    from engine.costs import CostModel
    from engine.memory.pool import PagePool
    from engine.model.text import load_tokenizer
    from engine.serving.worker import run_loop
    from engine.serving.worker_service import WorkerService, start_server
    from engine.simulation.world import VirtualLink, World
    from telemetry.ledger.views import Identity

    clock = SystemClock(base)
    token = load_tokenizer("synthetic").encode("a")[0]
    core = EngineCore(
        settings,
        Identity(settings.engine, "run-bench", settings.pool),
        clock,
        Letters(step_s, token),
        VirtualLink(World(TurnedClock()), PAGE_BYTES, 1e9),
        PagePool(settings.limits.pool_bytes // PAGE_BYTES, PAGE_BYTES),
        CostModel(step_s, 0.0, 0.0, 0.0, 0.0),
    )
    service = WorkerService(
        core,
        clock,
        engine=settings.engine,
        run_id="run-bench",
        pool=settings.pool,
        adapters={},
        stop_tokens=frozenset(),
        history=Sink(),
    )
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    server = start_server(service, address)
    print("ready", flush=True)
    with few_collections():
        run_loop(core, service.publish, stopping)
    service.stop_admitting()
    server.stop(0.5).wait(1.0)
    core.close()


def serve_front(address: str, port: int, settings: Settings, base: ClockBase) -> None:
    """Until SIGTERM. Prints a JSON line with all quotas together after each SIGUSR1. The
    environment's FRONT_PROFILE names a file for the loop's profile."""
    import uvicorn

    from engine.model.text import load_tokenizer
    from engine.serving.api.connections import allow_many_files
    from engine.serving.front import Front, uvicorn_config
    from engine.serving.launch import WorkerPlace

    allow_many_files()
    front = Front(
        settings,
        SystemClock(base),
        "run-bench",
        workers=[WorkerPlace(settings.pool, 0, address)],
        tokenizer=load_tokenizer("synthetic"),
        exporter=Sink(),
    )

    def tell(*_: object) -> None:
        views = front.views(t.name for t in settings.tenants).values()
        told = {
            "open": front.pools.open_requests,
            "link_tokens": sum(link.tokens for link in front.pools.links),
            "reserved": sum(v.reserved_tokens for v in views),
            "concurrency": sum(v.concurrency for v in views),
            "tpm_missing": sum((v.tpm_limit or 0) - (v.tpm_level or 0) for v in views),
            "settled": sum(v.settled_tokens for v in views),
        }
        print(json.dumps(told), flush=True)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
            await front.pools.wait_up(30.0)
            print("ready", flush=True)

    def leave(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, leave)  # uvicorn hands the signal on after its own clean end
    profile = os.environ.get("FRONT_PROFILE")
    server = Server(uvicorn_config(front.app))
    with socket.create_server(("127.0.0.1", port), backlog=2048) as listening:
        if profile:
            import cProfile

            # Of the loop's thread alone: who else runs on the machine does not count.
            profiler = cProfile.Profile(time.thread_time)
            with contextlib.suppress(SystemExit):
                profiler.runcall(server.run, sockets=[listening])
            profiler.dump_stats(profile)
        else:
            server.run(sockets=[listening])


@dataclass(frozen=True, slots=True)
class Rig:
    """Both processes, up."""

    port: int
    worker_address: str
    worker: subprocess.Popen[str]
    front: subprocess.Popen[str]

    def front_cpu_s(self) -> float:
        """CPU seconds of the front's process so far."""
        fields = Path(f"/proc/{self.front.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def front_bytes(self) -> int:
        """Resident memory of the front's process."""
        pages = int(Path(f"/proc/{self.front.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def front_state(self) -> dict[str, float]:
        """Open requests and quotas, all tenants together."""
        self.front.send_signal(signal.SIGUSR1)
        assert self.front.stdout is not None
        told: dict[str, float] = json.loads(self.front.stdout.readline())
        return told


@contextmanager
def rig(settings: Settings, step_s: float) -> Iterator[Rig]:
    """A worker and a front, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="ts-", dir="/tmp") as folder:
        address = f"unix:{folder}/w.sock"
        given = Path(folder, "settings.json")
        base = SystemClock().base
        given.write_text(json.dumps({"settings": settings.dump(), "clock": base.dump()}))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        worker = _start("worker", address, given, f"--step-s={step_s}")
        front = None
        try:
            _await(worker)
            front = _start("front", address, given, f"--port={port}")
            _await(front)
            yield Rig(port, address, worker, front)
        finally:
            for process in (front, worker):
                if process is not None:
                    process.terminate()
                    process.wait(10)


def _start(role: str, address: str, given: Path, more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.front_rig", role, address, str(given), more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _await(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "ready":
            return
    raise SystemExit(f"the benchmark's process ended with {process.wait()} before it was ready")


# -- a client that costs little


class Connection:
    """One kept-alive HTTP/1.1 connection. Not a general client: it knows the front's answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    def send(self, request: bytes) -> None:
        assert self._writer is not None
        self._writer.write(request)

    async def head(self) -> tuple[int, dict[bytes, bytes]]:
        """Status and headers."""
        assert self._reader is not None
        raw = await self._reader.readuntil(b"\r\n\r\n")
        lines = raw.lower().split(b"\r\n")[1:-2]
        return int(raw[9:12]), dict(line.split(b": ", 1) for line in lines)

    async def whole(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of one request."""
        assert self._reader is not None
        self.send(request)
        status, headers = await self.head()
        return status, await self._reader.readexactly(int(headers[b"content-length"]))

    async def chunks(self) -> AsyncIterator[bytes]:
        """A streamed body, as it comes."""
        assert self._reader is not None
        while True:
            size = int(await self._reader.readline(), 16)
            data = await self._reader.readexactly(size + 2)
            if not size:
                return
            yield data[:-2]


def request_bytes(tenant: str, *, tell_waits: bool = False, **body: Any) -> bytes:
    asked = json.dumps({"model": "synthetic", "ignore_eos": True} | body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key_of(tenant)}"
        f"\r\ncontent-type: application/json\r\ncontent-length: {len(asked)}\r\n"
        + ("x-tenantscope-waits: 1\r\n" if tell_waits else "")
        + "\r\n"
    )
    return head.encode() + asked


def main() -> None:
    from engine.config import load_settings

    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("worker", "front"))
    parser.add_argument("address")
    parser.add_argument("given", type=Path)
    parser.add_argument("--step-s", type=float, default=0.002)
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    given = json.loads(args.given.read_text())
    settings, base = load_settings(given["settings"]), ClockBase.load(given["clock"])
    if args.role == "worker":
        serve_worker(args.address, settings, base, args.step_s)
    else:
        serve_front(args.address, args.port, settings, base)


if __name__ == "__main__":
    main()
