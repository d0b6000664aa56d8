"""What `telemetry_overhead.py` measures with: a pool under load, bad collectors, a timed ledger.

Owns the load, the collectors and the clocks; judges nothing.
"""

from __future__ import annotations

import functools
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc

from engine.build import build_core
from engine.clock import SystemClock
from engine.config import Limits, Settings, Tenant
from engine.core import EngineCore
from engine.model.loaders import load_model
from engine.scheduling.request import Ask
from telemetry.ledger.ledger import Ledger
from telemetry.pipeline.exporter import Exporter
from telemetry.records import Batch

ROOT = Path(__file__).parents[1]
TELEMETRY_THREADS = ("ledger-timer", "telemetry-encode", "telemetry-send")
SPOOL = 1 << 20
OFTEN_S = 1.0  # between deliveries, where many are to be seen in a short time
FULL_DISK_BYTES = 64 << 10  # of any one file: the store opens, and has no room for a first day


class Timed:
    """Seconds that one thread spends inside the ledger's public calls, the outermost ones."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._clock, self._depth, self._thread = clock, 0, threading.get_ident()

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*arguments: Any, **named: Any) -> Any:
            if self._depth or threading.get_ident() != self._thread:
                return call(*arguments, **named)
            self._depth, began = 1, self._clock()
            try:
                return call(*arguments, **named)
            finally:
                self.seconds += self._clock() - began
                self.calls += 1
                self._depth = 0

        return timed

    def own_cost_s(self) -> float:
        """What the timing adds to each call, measured on one that does nothing."""
        before = self.seconds, self.calls
        nothing = self.around(lambda: None)
        for _ in range(20_000):
            nothing()
        cost = (self.seconds - before[0]) / 20_000
        self.seconds, self.calls = before
        return cost

    def net_s(self) -> float:
        return max(0.0, self.seconds - self.calls * self.own_cost_s())


@contextmanager
def timed_ledger(*owners: type) -> Iterator[Timed]:
    """Every ledger's public calls (or those of `owners`) are timed while this lasts, those made by
    this thread, by its own CPU: what else runs on the machine is not in it."""
    timed = Timed(time.thread_time)
    was: list[tuple[type, str, Any]] = []
    for owner in owners or Ledger.__mro__[:-1]:
        for name, value in list(vars(owner).items()):
            if not name.startswith("_") and callable(value) and not isinstance(value, type):
                was.append((owner, name, value))
                setattr(owner, name, timed.around(value))
    try:
        yield timed
    finally:
        for owner, name, value in was:
            setattr(owner, name, value)


def cpu_of_telemetry_s() -> float:
    """CPU seconds of this process's telemetry threads, those that live."""
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(t.ident))
        for t in threading.enumerate()
        if t.name in TELEMETRY_THREADS and t.ident is not None
    )


@dataclass
class Round:
    """One stretch of load: what was done in it and how long requests took."""

    wall_s: float = 0.0
    tokens: int = 0
    steps: int = 0
    core_cpu_s: float = 0.0
    telemetry_cpu_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)


class Gate:
    """Where the core's batches go: to the exporter of the moment, or nowhere."""

    def __init__(self) -> None:
        self.exporter: Exporter | None = None

    def submit(self, batch: Batch) -> None:
        if self.exporter is not None:
            self.exporter.submit(batch)


class Pool:
    """A real core with a real model, kept busy by clients that ask again when they are answered."""

    def __init__(self, model: str, tenants: int, clients: int, say: Callable[[str], None]) -> None:
        names = [f"tenant-{i:04}" for i in range(tenants)]
        settings = Settings(
            engine="bench",
            model=model,
            bucket_s=60.0,
            provisional_s=OFTEN_S,
            limits=Limits(slots=32, pool_bytes=256 << 20, prefix_cache=False),
            tenants=tuple(Tenant(n) for n in names),
        )
        self.gate = Gate()
        self._clock = SystemClock()
        say("building the pool")
        self.core: EngineCore = build_core(
            settings, self._clock, "run-1", load_model(model), self.gate
        )
        self._settings = settings
        self._tick = self.core.tick
        self._names, self._clients = names, clients
        self._random = random.Random(1)
        self._made = 0
        self._began: dict[str, float] = {}

    def collecting(self, on: bool) -> None:
        """Off: no rows are made, nothing is encoded or sent. The ledger counts all the same: the
        scheduler stands on it."""
        self.core.tick = self._tick if on else _nothing  # type: ignore[method-assign]

    def deliver_every(self, seconds: float) -> None:
        self.core._settings = replace(self._settings, provisional_s=seconds)

    def deliver(self) -> None:
        """Now, whenever the next one would be due."""
        self.core._last_collect_s = float("-inf")
        self.core.tick()

    def play(self, seconds: float) -> Round:
        """Load for so long; requests under way at the end go on in the next round."""
        done = Round()
        cpu, telemetry, began = time.thread_time(), cpu_of_telemetry_s(), time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            while len(self._began) < self._clients:
                self._ask(now)
            result = self.core.step()
            done.tokens += result.made
            done.steps += result.steps
            ended = time.perf_counter()
            done.latencies_s += [ended - self._began.pop(e.request_id) for e in result.ended]
        done.wall_s = time.perf_counter() - began
        done.core_cpu_s = time.thread_time() - cpu
        done.telemetry_cpu_s = cpu_of_telemetry_s() - telemetry
        return done

    def _ask(self, now: float) -> None:
        self._made += 1
        request, arrived = f"r{self._made}", self._clock.now()
        prompt = [self._random.randrange(3, 200) for _ in range(self._random.randrange(8, 40))]
        tenant = self._random.choice(self._names)
        self._began[request] = now
        self.core.submit(
            Ask(request, tenant, prompt, self._random.randrange(4, 24), arrived, arrived)
        )

    def close(self) -> None:
        self.collecting(True)
        self.gate.exporter = None
        self.core.close()


def _nothing() -> None:
    return None


# --- collectors, good and bad --------------------------------------------------------------------


class StoreProcess:
    """A real store process. `most_file_bytes`: no file may grow beyond, as on a full disk."""

    def __init__(self, most_file_bytes: int | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="overhead-")
        self.address = f"unix:{self._folder.name}/s"

        def bounded() -> None:
            if most_file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_file_bytes, most_file_bytes))

        self.popen = subprocess.Popen(
            [sys.executable, "-m", "telemetry.service", "--store", f"{self._folder.name}/store",
             "--listen", self.address],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            preexec_fn=bounded,
        )  # fmt: skip
        assert self.popen.stdout is not None
        if not self.popen.stdout.readline().startswith("ready "):
            raise RuntimeError("the store process did not start: is the disk full?")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        os.kill(self.popen.pid, signal.SIGCONT)
        os.kill(self.popen.pid, signal.SIGKILL)
        self.popen.communicate(timeout=10)
        self._folder.cleanup()


@contextmanager
def healthy() -> Iterator[str]:
    """A store process that takes everything."""
    store = StoreProcess()
    try:
        yield store.address
    finally:
        store.close()


@contextmanager
def refused() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def hanging() -> Iterator[str]:
    """Connections are accepted, and nothing is ever answered."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def unavailable() -> Iterator[str]:
    """Every export is answered UNAVAILABLE, gRPC's 503."""

    def refuse(data: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        raise AssertionError("abort raises")

    server = grpc.server(ThreadPoolExecutor(2))
    handler = {"Export": grpc.unary_unary_rpc_method_handler(refuse)}
    for signals in ("metrics.v1.MetricsService", "logs.v1.LogsService"):
        name = f"opentelemetry.proto.collector.{signals}"
        generic = grpc.method_handlers_generic_handler(name, handler)
        server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait(5.0)


@contextmanager
def disk_full() -> Iterator[str]:
    store = StoreProcess(FULL_DISK_BYTES)
    try:
        yield store.address
    finally:
        store.close()


@contextmanager
def stopped() -> Iterator[str]:
    """A store process that was stopped with SIGSTOP: its socket is there and nobody reads it."""
    store = StoreProcess()
    os.kill(store.popen.pid, signal.SIGSTOP)
    try:
        yield store.address
    finally:
        store.close()


COLLECTORS: dict[str, Callable[[], Any]] = {
    "refused": refused,
    "hanging": hanging,
    "unavailable": unavailable,
    "disk full": disk_full,
    "stopped": stopped,
}
