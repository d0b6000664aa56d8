"""A worker's live answers: its tenants ranked, and its last hour piece by piece, from memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.serving.worker_service import WorkerService, start_server
from telemetry.pipeline.exporter import Exporter
from telemetry.source import open_source
from telemetry.watch.client import WatchClient
from telemetry.watch.frame import Asked
from tests.engine.serving.serving_fakes import short_folder
from tests.telemetry.delivered import T0, batch, engine_minute, minute


@pytest.fixture
def worker() -> Iterator[tuple[Exporter, WorkerService, Path]]:
    exporter = Exporter(sink=lambda metrics, logs: None)
    with short_folder() as folder:
        core: Any = object()  # nothing here asks it
        service = WorkerService(
            core, SystemClock(), engine="e1", run_id="r1", pool="main", adapters={},
            stop_tokens=frozenset(), history=exporter,
        )  # fmt: skip
        server = start_server(service, f"unix:{folder / 'worker.sock'}")
        yield exporter, service, folder
        service.stop_admitting()
        server.stop(0.2).wait()
    exporter.close()


def test_a_worker_answers_watch_and_the_last_hour_without_a_store(
    worker: tuple[Exporter, WorkerService, Path],
) -> None:
    exporter, _, folder = worker
    exporter.submit(batch(engine_minute(observed_seconds=60.0), minute("a", service=1.0)))
    assert exporter.flush(5.0)
    client = WatchClient(f"unix:{folder / 'worker.sock'}")
    stream = client.watch(Asked(every_s=0.2))
    assert [r.tenant for r in next(stream).rows] == ["a"]
    exporter.submit(batch(minute("a", service=1.0), minute("b", service=9.0), seq=2))
    assert exporter.flush(5.0)
    assert [r.tenant for r in next(stream).rows] == ["b", "a"]
    stream.close()
    client.close()

    runtime = open_source(folder)  # no store answers here
    assert [r.tenant for r in runtime.read("tenant_minute", T0, T0 + 60)] == ["a", "b"]
    assert "worker's memory" in runtime.query("row_counts").partial[-1]
    runtime.close()


def test_stopping_ends_the_streams_of_watchers(
    worker: tuple[Exporter, WorkerService, Path],
) -> None:
    _, service, folder = worker
    client = WatchClient(f"unix:{folder / 'worker.sock'}")
    stream = client.watch(Asked(every_s=3600.0))
    assert next(stream).partial == ("nothing has been heard yet",)
    service.stop_admitting()
    assert list(stream) == []
    client.close()
