"""The made-up rows in every place that a console can look at: store, files, worker, memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from console.rows import Rows
from telemetry.ask.export import export
from telemetry.conventions import Emitter
from telemetry.otlp import encode
from telemetry.pipeline.exporter import Exporter
from telemetry.records import Batch, TenantMinute
from telemetry.service.process import StoreServer
from telemetry.source import MemorySource, StoreSource
from telemetry.store.store import Store
from telemetry.tables import TABLE_OF
from tests.telemetry.delivered import deliver
from tests.telemetry.served import RecentFace, recent_face

_OF = {f.name: f.metadata["emitter"] for f in fields(TenantMinute) if f.metadata.get("emitter")}
_KEYS = ("bucket_start", "bucket_s", "engine", "run_id", "pool", "tenant")

Place = Callable[[Rows, Path, ExitStack], str]


def batches(rows: Rows) -> tuple[Batch, ...]:
    """As the two processes of each run send them: each its own columns."""
    of_run: dict[tuple[str, str, str], list[Any]] = {}
    for f in fields(rows):
        for row in getattr(rows, f.name):
            of_run.setdefault((row.engine, row.run_id, row.pool), []).append(row)
    return tuple(b for run, own in of_run.items() for b in _of_run(run, own))


def _of_run(run: tuple[str, str, str], rows: list[Any]) -> tuple[Batch, Batch]:
    minutes = [r for r in rows if not TABLE_OF[type(r)].log]
    logs = tuple(r for r in rows if TABLE_OF[type(r)].log)
    tenants = [r for r in minutes if isinstance(r, TenantMinute)]
    others = [r for r in minutes if not isinstance(r, TenantMinute)]
    worker = tuple(_only(r, Emitter.WORKER) for r in tenants)
    front = tuple(_only(r, Emitter.FRONT) for r in tenants)
    engine, run_id, pool = run
    common: dict[str, Any] = {
        "engine": engine, "run_id": run_id, "pool": pool, "sealed": True, "seq": 1
    }  # fmt: skip
    return (
        Batch(emitter=Emitter.WORKER, minutes=(*worker, *others), logs=logs, **common),
        Batch(emitter=Emitter.FRONT, minutes=front, **common),
    )


def _only(row: TenantMinute, emitter: Emitter) -> TenantMinute:
    return replace(row, **{n: None for n, e in _OF.items() if e is not emitter and n not in _KEYS})


def memory(rows: Rows) -> MemorySource:
    """A source in this process."""
    encoded = [encode(b) for b in batches(rows)]
    return MemorySource([m for m, _ in encoded if m], [x for _, x in encoded if x])


def folder(rows: Rows, path: Path, stack: ExitStack) -> str:
    """A store that nobody has open."""
    with Store.open(path / "store") as store:
        deliver(store, *batches(rows))
    return str(path / "store")


def parquet(rows: Rows, path: Path, stack: ExitStack) -> str:
    with Store.open(path / "store") as store:
        deliver(store, *batches(rows))
        forever = {"start": float("-inf"), "end": float("inf")}
        export(StoreSource(store), "parquet", path / "out", **forever)
    return str(path / "out")


def live(rows: Rows, path: Path, stack: ExitStack) -> str:
    """A store process's address."""
    store = Store.open(path / "store")
    deliver(store, *batches(rows))
    server = StoreServer(store, f"unix:{path}/s")
    server.start()
    stack.callback(server.stop, 0.2)
    return server.address


def worker(rows: Rows, path: Path, stack: ExitStack) -> str:
    """A worker's socket: its last hour, from memory."""
    exporter = Exporter(sink=lambda metrics, logs: None, recent_s=1e9)
    stack.callback(exporter.close)
    for one in batches(rows):
        exporter.submit(one)
    assert exporter.flush(10.0)
    stack.enter_context(recent_face(RecentFace(exporter), f"unix:{path}/worker.sock"))
    return f"unix:{path}/worker.sock"


def serve(rows: Rows, path: Path, stack: ExitStack) -> str:
    """A serve's runtime folder whose store is down."""
    worker(rows, path, stack)
    return str(path)
