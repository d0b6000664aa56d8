"""The store process: ready, refusing, draining, killed; and its answers to good and bad bytes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub

from telemetry.errors import MalformedBatch, StoreBusy, StoreError
from telemetry.otlp import encode
from telemetry.service.client import StoreClient
from telemetry.service.process import StoreServer
from telemetry.source import FileSource, StoreSource, open_source
from telemetry.store import owner
from telemetry.store.store import Store
from tests.telemetry.delivered import T0, batch, minute, request, until

ROOT = Path(__file__).parents[2]


class Process:
    """A store process of its own, started and waited for."""

    def __init__(self, store: Path, listen: str) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "telemetry.service", "--store", str(store), "--listen", listen,
             "--any-date"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )  # fmt: skip
        assert self._popen.stdout is not None
        self.said = self._popen.stdout.readline().strip()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        if self._popen.poll() is None:
            self._popen.send_signal(number)
        try:
            _, err = self._popen.communicate(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.communicate()
            raise
        return self._popen.returncode, err

    @property
    def pid(self) -> int:
        return self._popen.pid


@pytest.fixture
def started() -> Iterator[Any]:
    processes: list[Process] = []

    def start(store: Path, listen: str) -> Process:
        processes.append(Process(store, listen))
        return processes[-1]

    yield start
    for process in processes:
        process.end(signal.SIGKILL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StoreServer]:
    serving = StoreServer(Store.open(tmp_path / "store"), f"unix:{tmp_path}/s")
    serving.start()
    yield serving
    serving.stop(0.2)


def test_a_process_serves_and_drains_when_told_to_end(tmp_path: Path, started: Any) -> None:
    store, address = tmp_path / "new" / "store", f"unix:{tmp_path}/run/s"
    process = started(store, address)
    assert process.said == f"ready {address}"
    assert owner.find_live(store) == owner.Live(process.pid, address)
    client = StoreClient(address)
    assert client.export(*encode(batch(minute("a", output_tokens=4), request(1)))).refused == 0
    assert client.info().path == str(store)
    assert [r.output_tokens for r in open_source(store).read("tenant_minute", T0, T0 + 60)] == [4]
    client.close()
    code, _ = process.end()
    assert code == 0
    assert not (tmp_path / "run" / "s").exists()
    assert not (store / owner.LIVE).exists()
    assert [r.output_tokens for r in FileSource(store).read("tenant_minute", T0, T0 + 60)] == [4]


def test_a_killed_process_leaves_a_socket_that_the_next_one_replaces(
    tmp_path: Path, started: Any
) -> None:
    store, address = tmp_path / "store", f"unix:{tmp_path}/s"
    first = started(store, address)
    client = StoreClient(address)
    client.export(*encode(batch(minute("a", output_tokens=4))))
    first.end(signal.SIGKILL)
    assert (tmp_path / "s").exists()
    assert (store / owner.LIVE).exists()
    second = started(store, address)
    assert second.said == f"ready {address}"
    assert StoreClient(address).query("token_totals", start=T0, end=T0 + 60).dicts() == [
        {
            "tenant": "a",
            "prompt_tokens": 0,
            "cached_tokens": 0,
            "output_tokens": 4,
            "recomputed_tokens": 0,
        }
    ]
    client.close()


def test_a_second_process_for_one_store_says_who_has_it(tmp_path: Path, started: Any) -> None:
    first = started(tmp_path / "store", f"unix:{tmp_path}/s")
    second = started(tmp_path / "store", f"unix:{tmp_path}/t")
    code, err = second.end()
    assert code == 3
    assert f"in use by process {first.pid}" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0.0.0.0:4317", "not a loopback address"),
        ("unix:/" + "x" * 120, "longer than the 100 bytes"),
    ],
)
def test_addresses_that_cannot_be_served_are_refused_with_a_sentence(
    tmp_path: Path, address: str, why: str
) -> None:
    with Store.open(tmp_path) as store, pytest.raises(StoreError, match=why):
        StoreServer(store, address)


def test_a_socket_in_use_is_refused_and_a_plain_file_is_left_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store, socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(tmp_path / "taken"))
        taken.listen(1)
        with pytest.raises(StoreError, match="another process listens"):
            StoreServer(store, f"unix:{tmp_path}/taken")
        (tmp_path / "file").write_text("mine")
        with pytest.raises(StoreError, match="is no socket"):
            StoreServer(store, f"unix:{tmp_path}/file")
        assert (tmp_path / "file").read_text() == "mine"


def test_a_loopback_port_of_the_systems_choice_is_announced(tmp_path: Path) -> None:
    server = StoreServer(Store.open(tmp_path), "127.0.0.1:0")
    server.start()
    live = owner.find_live(tmp_path)
    assert live is not None
    assert live.address == server.address != "127.0.0.1:0"
    assert StoreClient(live.address).info().pid == os.getpid()
    server.stop(0.2)


def test_only_the_owner_may_open_the_socket(server: StoreServer) -> None:
    mode = Path(server.address.removeprefix("unix:")).stat().st_mode
    assert mode & 0o077 == 0


def test_malformed_bytes_are_an_invalid_argument(server: StoreServer) -> None:
    client = StoreClient(server.address)
    with pytest.raises(MalformedBatch, match="4 bytes"):
        client.export(b"\xff\xff\xff\xff", None)
    with pytest.raises(MalformedBatch, match="3 bytes"):
        client.export(None, b"\xff\xff\xff")
    assert client.info().batches == 0
    client.close()


def test_refused_points_are_a_partial_success_with_the_reason(server: StoreServer) -> None:
    client = StoreClient(server.address)
    metrics, _ = encode(batch(minute("a", service=float("nan"), output_tokens=4)))
    accepted = client.export(metrics, None)
    assert accepted.refused == 1
    assert "service: nan" in accepted.reason
    [row] = StoreSource(server.store).read("tenant_minute", T0, T0 + 60)
    assert (row.service, row.output_tokens) == (None, 4)
    client.close()


def test_a_standard_otlp_client_is_understood(server: StoreServer) -> None:
    metrics, _ = encode(batch(minute("a", output_tokens=4)))
    assert metrics is not None
    with grpc.insecure_channel(server.address) as channel:
        response = MetricsServiceStub(channel).Export(
            ExportMetricsServiceRequest.FromString(metrics), timeout=10
        )
    assert not response.HasField("partial_success")
    assert len(StoreSource(server.store).read("tenant_minute", T0, T0 + 60)) == 1


def test_a_batch_larger_than_grpcs_default_is_taken(server: StoreServer) -> None:
    rows = [minute(f"tenant-{n:04}" + "x" * 150, output_tokens=n) for n in range(20_000)]
    metrics, _ = encode(batch(*rows[:20_000]))
    assert metrics is not None
    assert len(metrics) > 4 << 20
    client = StoreClient(server.address, timeout_s=60.0)
    assert client.export(metrics, None).refused == 0
    client.close()


def test_a_closing_store_says_later_and_commits_what_it_took(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    server = StoreServer(store, f"unix:{tmp_path}/s")
    entered, go_on = threading.Event(), threading.Event()
    ingest = store.ingest

    def held_up(decoded: Any) -> Any:
        entered.set()
        go_on.wait(10)
        return ingest(decoded)

    store.ingest = held_up  # type: ignore[method-assign]
    server.start()
    client = StoreClient(server.address)
    accepted: list[Any] = []
    sender = threading.Thread(
        target=lambda: accepted.append(
            client.export(encode(batch(minute("a", output_tokens=4)))[0], None)
        )
    )
    sender.start()
    entered.wait(10)
    stopper = threading.Thread(target=server.stop, args=(3.0,))
    stopper.start()
    until(lambda: server.intake.is_closing)
    with pytest.raises(StoreError):
        client.export(encode(batch(minute("b", output_tokens=1)))[0], None)
    go_on.set()
    sender.join(10)
    stopper.join(10)
    client.close()
    assert [a.refused for a in accepted] == [0]
    rows = FileSource(tmp_path / "store").read("tenant_minute", T0, T0 + 60)
    assert [r.tenant for r in rows] == ["a"]


def test_a_full_queue_says_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.service.intake.QUEUE_REQUESTS", 1)
    store = Store.open(tmp_path / "store")
    entered, go_on = threading.Event(), threading.Event()
    ingest = store.ingest

    def held_up(decoded: Any) -> Any:
        entered.set()
        go_on.wait(10)
        return ingest(decoded)

    store.ingest = held_up  # type: ignore[method-assign]
    server = StoreServer(store, f"unix:{tmp_path}/s")
    server.start()
    client = StoreClient(server.address)
    metrics = [encode(batch(minute("a", output_tokens=n), seq=n))[0] for n in range(3)]
    first = threading.Thread(target=client.export, args=(metrics[0], None))
    first.start()
    entered.wait(10)
    second = threading.Thread(target=client.export, args=(metrics[1], None))
    second.start()
    until(lambda: server.intake.queued)
    with pytest.raises(StoreBusy, match="more comes than it can write"):
        client.export(metrics[2], None)
    go_on.set()
    for thread in (first, second):
        thread.join(10)
    client.close()
    server.stop(0.5)


def test_a_store_that_cannot_commit_says_later_and_lives_on(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise duckdb.IOException("Could not write file: No space left on device")

    client = StoreClient(server.address)
    metrics, _ = encode(batch(minute("a", output_tokens=4)))
    with monkeypatch.context() as broken:
        broken.setattr("telemetry.store.ingest.merge", no_room)
        with pytest.raises(StoreBusy, match="No space left"):
            client.export(metrics, None)
    assert client.export(metrics, None).refused == 0
    client.close()


def test_a_failure_that_stays_is_said_once_and_so_is_its_end(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*_: object) -> int:
        raise duckdb.IOException("Could not write file: No space left on device")

    client = StoreClient(server.address)
    metrics, _ = encode(batch(minute("a", output_tokens=4)))
    with monkeypatch.context() as broken:
        broken.setattr("telemetry.store.ingest.merge", no_room)
        for _ in range(3):
            with pytest.raises(StoreBusy):
                client.export(metrics, None)
    client.export(metrics, None)
    client.export(metrics, None)
    client.close()
    said = [r.getMessage() for r in caplog.records if r.name == "telemetry.service.intake"]
    assert len(said) == 2
    assert said[0].startswith("a batch was not committed, its sender keeps it and tries again: ")
    assert said[0].endswith("No space left on device")
    assert said[1] == "batches are committed again"


def test_what_nobody_foresaw_is_not_put_off_to_later(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = StoreClient(server.address)
    metrics, _ = encode(batch(minute("a", output_tokens=4)))
    with monkeypatch.context() as broken:
        broken.setattr("telemetry.store.ingest.merge", lambda *_: 1 / 0)
        with pytest.raises(StoreError, match="ZeroDivisionError") as e:
            client.export(metrics, None)
    assert not isinstance(e.value, StoreBusy)
    assert client.export(metrics, None).refused == 0
    client.close()


def test_a_store_that_cannot_say_where_it_is_still_takes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("telemetry.store.owner.announce", no_room)
    server = StoreServer(Store.open(tmp_path / "store"), f"unix:{tmp_path / 's'}")
    server.start()
    client = StoreClient(server.address)
    assert client.export(encode(batch(minute("a", output_tokens=4)))[0], None).refused == 0
    client.close()
    server.stop(0.5)
    assert "cannot say where it answers: No space left on device" in caplog.text
