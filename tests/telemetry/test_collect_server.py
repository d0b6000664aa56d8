"""A store among senders: a full disk, rude callers, too many at once, the end."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from telemetry import doctor
from telemetry.errors import MalformedBatch, NotAllowed, StoreBusy, StoreError
from telemetry.otlp import encode
from telemetry.pipeline.exporter import Exporter
from telemetry.service.access import Access
from telemetry.service.client import METRICS_EXPORT, StoreClient
from telemetry.service.listen import Listen
from telemetry.service.server import StoreServer
from telemetry.source import FileSource, StoreSource
from telemetry.store.store import Store
from tests.telemetry.collecting import of_run, papers_in
from tests.telemetry.delivered import T0, batch, minute, request, until


@pytest.fixture
def papers(tmp_path: Path) -> dict[str, Path]:
    return papers_in(tmp_path)


@pytest.fixture
def server(tmp_path: Path, papers: dict[str, Path]) -> Iterator[StoreServer]:
    from telemetry.service.tls import TlsFiles

    guarded = Listen("localhost:0", TlsFiles(papers["cert"], papers["key"]), papers["tokens"])
    serving = StoreServer(
        Store.open(tmp_path / "store"), [f"unix:{tmp_path}/s", "127.0.0.1:0", guarded]
    )
    serving.start()
    yield serving
    serving.stop(0.2)


def test_a_full_disk_is_told_as_come_again_and_stays_visible(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise duckdb.IOException("Could not write file: No space left on device")

    metrics, _ = encode(batch(minute("a", output_tokens=4)))
    with grpc.insecure_channel(server.addresses[1]) as channel:
        export = channel.unary_unary(METRICS_EXPORT)
        with monkeypatch.context() as broken:
            broken.setattr("telemetry.store.ingest.merge", no_room)
            with pytest.raises(grpc.RpcError) as e:
                export(metrics, timeout=10)
        assert e.value.code() is grpc.StatusCode.UNAVAILABLE
        trailer = dict(e.value.trailing_metadata())["grpc-status-details-bin"]
        status = status_pb2.Status.FromString(trailer)
        assert (status.code, status.message) == (14, e.value.details())
        retry = error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.seconds == 1
        [live] = server.liveness.store().dicts()
        assert (live["failures"], "No space left" in live["last_failure"]) == (1, True)
        assert StoreSource(server.store).read("tenant_minute", T0, T0 + 60) == []
        export(metrics, timeout=10)
    assert len(StoreSource(server.store).read("tenant_minute", T0, T0 + 60)) == 1


def test_an_exporter_keeps_what_a_wrong_token_cannot_deliver_until_it_is_mended(
    server: StoreServer, papers: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("not-yet")
    out = Exporter(
        f"https://{server.addresses[2]}",
        access=Access(token_file=file, ca=papers["ca"]),
        first_retry_s=0.02,
    )
    out.submit(batch(minute("a", output_tokens=4)))
    until(lambda: out.stats().retries > 6)
    assert "not in the store's tokens file" in out.stats().last_error
    file.write_text("sender-one")
    assert out.flush(20)
    assert (out.close().lost, out.stats().sent) == (0, 1)


def test_what_was_lost_reaches_the_doctor(server: StoreServer, tmp_path: Path) -> None:
    out = Exporter(server.address, spool_limit_bytes=600, first_retry_s=0.02)
    large = batch(*(minute(f"t{n}", output_tokens=1) for n in range(50)))
    for seq in (1, 2):
        out.submit(replace(large, seq=seq))
        assert out.flush(10)
    out.submit(batch(event_mark()))
    assert out.flush(10)
    assert out.close().lost == 2
    facts = doctor.examine(str(tmp_path / "store"))
    [found] = [c for c in doctor.judge(facts) if c.what == "senders"]
    assert found.level == "warn"
    assert "e1 2" in found.says


def event_mark() -> Any:
    from tests.telemetry.delivered import event

    return event(1, at=time.time())


class Senders:
    """Well-behaved senders beside the rude ones: every batch of theirs must be committed."""

    def __init__(self, server: StoreServer, papers: dict[str, Path]) -> None:
        access = Access(token="sender-one", ca=papers["ca"])
        self.out = [
            Exporter(server.address, first_retry_s=0.02),
            Exporter(f"https://{server.addresses[2]}", access=access, first_retry_s=0.02),
        ]
        self.given = 0

    def go(self) -> None:
        self.given += 1
        for run, out in zip(("r1", "r2"), self.out, strict=True):
            out.submit(of_run(run, T0 + 60 * self.given, 7, self.given))
        for out in self.out:
            assert out.flush(15)

    def check(self, server: StoreServer) -> None:
        for out in self.out:
            stats = out.close()
            assert (stats.lost, stats.retries, stats.refused_points) == (0, 0, 0)
        rows = StoreSource(server.store).read("tenant_minute", T0, T0 + 86_400)
        assert sum(r.output_tokens for r in rows) == 2 * 7 * self.given


def tcp(server: StoreServer, index: int) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", int(server.addresses[index].rpartition(":")[2])), 5
    )


def test_rude_callers_are_not_noticed_by_the_other_senders(
    server: StoreServer, papers: dict[str, Path]
) -> None:
    senders = Senders(server, papers)
    senders.go()
    half_open = [tcp(server, index) for index in (1, 2) for _ in range(100)]
    for number, connection in enumerate(half_open):
        if number % 3 == 0:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04")  # and no more
        elif number % 3 == 1:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n\x16\x03\x01" + bytes(range(256)))
    senders.go()
    plain = StoreClient(server.addresses[1], timeout_s=20.0)
    with grpc.insecure_channel(
        server.addresses[1], options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        with pytest.raises(grpc.RpcError) as e:
            channel.unary_unary(METRICS_EXPORT)(b"\0" * (70 << 20), timeout=20)
        assert e.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in e.value.details()
    with pytest.raises(MalformedBatch, match="larger than the store takes"):
        plain.export(b"\0" * (70 << 20), None)
    for spoiled in (b"\xff" * 1000, b"\x0a\xff\xff\xff\xff\x07", bytes(range(256)) * 40):
        with pytest.raises(MalformedBatch):
            plain.export(spoiled, None)
        with pytest.raises(MalformedBatch):
            plain.export(None, spoiled)
    senders.go()
    gone = StoreClient(server.addresses[1])
    pending = gone._logs.future(encode(batch(request(1)))[1], timeout=5)
    gone.close()  # before its answer
    pending.cancel()
    senders.go()
    for connection in half_open:
        connection.close()
    plain.close()
    senders.check(server)


@pytest.mark.full
def test_two_hundred_connections_that_send_are_all_answered(server: StoreServer) -> None:
    options = [("grpc.use_local_subchannel_pool", 1)]
    metrics = [encode(batch(minute(f"t{n}", output_tokens=1), seq=1))[0] for n in range(200)]
    channels = [grpc.insecure_channel(server.addresses[1], options) for _ in metrics]
    pending = [
        c.unary_unary(METRICS_EXPORT).future(m, timeout=40)
        for c, m in zip(channels, metrics, strict=True)
    ]
    later = 0
    for call, channel, data in zip(pending, channels, metrics, strict=True):
        code = call.code()
        while code is grpc.StatusCode.UNAVAILABLE:  # back-pressure: come again
            later += 1
            again = channel.unary_unary(METRICS_EXPORT).future(data, timeout=40)
            code = again.code()
        assert code is grpc.StatusCode.OK
    for channel in channels:
        channel.close()
    rows = StoreSource(server.store).read("tenant_minute", T0, T0 + 60)
    assert sum(r.output_tokens for r in rows) == 200
    [live] = server.liveness.store().dicts()
    assert live["put_off"] == later


def test_more_than_is_taken_at_once_is_put_off_and_nothing_is_lost(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    ingest = server.store.ingest
    entered = threading.Event()

    def held_up(decoded: Any) -> Any:
        entered.set()
        go_on.wait(20)
        return ingest(decoded)

    monkeypatch.setattr(server.store, "ingest", held_up)
    monkeypatch.setattr("telemetry.service.intake.CALLS", 2)
    client = StoreClient(server.address)
    data = [encode(batch(minute(f"t{n}", output_tokens=1)))[0] for n in range(3)]
    waiting = [threading.Thread(target=client.export, args=(d, None)) for d in data[:2]]
    for thread in waiting:
        thread.start()
    entered.wait(10)
    until(lambda: server.intake._calls == 2)
    with pytest.raises(StoreBusy, match="more comes than it can write"):
        client.export(data[2], None)
    go_on.set()
    for thread in waiting:
        thread.join(10)
    client.export(data[2], None)
    client.close()
    assert len(StoreSource(server.store).read("tenant_minute", T0, T0 + 60)) == 3


def test_questions_beyond_the_bound_are_put_off_and_senders_go_on(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, asked = threading.Event(), threading.Semaphore(0)
    run = server.store.run

    def slow(name: str, parameters: dict[str, Any]) -> Any:
        asked.release()
        go_on.wait(20)
        return run(name, parameters)

    monkeypatch.setattr(server.store, "run", slow)
    client = StoreClient(server.address, timeout_s=30.0)
    threads = [threading.Thread(target=client.query, args=("span",)) for _ in range(24)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert asked.acquire(timeout=10)
    with pytest.raises(StoreBusy, match="24 questions are under way"):
        client.query("span")
    assert client.export(encode(batch(minute("a", output_tokens=1)))[0], None).refused == 0
    go_on.set()
    for thread in threads:
        thread.join(10)
    client.close()


def test_the_end_commits_what_is_queued_and_acknowledges_nothing_else(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go_on, entered = threading.Event(), threading.Event()
    ingest = server.store.ingest

    def held_up(decoded: Any) -> Any:
        entered.set()
        go_on.wait(20)
        return ingest(decoded)

    monkeypatch.setattr(server.store, "ingest", held_up)
    data = [encode(batch(minute(f"t{n}", output_tokens=1)))[0] for n in range(20)]
    client = StoreClient(server.address, timeout_s=20.0)
    acknowledged: list[int] = []

    def send(number: int) -> None:
        try:
            client.export(data[number], None)
        except StoreError:
            return
        acknowledged.append(number)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(len(data))]
    for thread in threads:
        thread.start()
    entered.wait(10)
    until(lambda: server.intake.queued == len(data) - 1)
    stopper = threading.Thread(target=server.stop, args=(2.0,))
    stopper.start()
    until(lambda: server.intake.is_closing)
    go_on.set()
    for thread in (*threads, stopper):
        thread.join(20)
    client.close()
    rows = FileSource(tmp_path / "store").read("tenant_minute", T0, T0 + 60)
    assert sorted(acknowledged) == list(range(len(data)))
    assert {r.tenant for r in rows} == {f"t{n}" for n in acknowledged}


def test_a_commit_that_hangs_holds_up_neither_the_refusal_nor_the_others_answer(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, entered = threading.Event(), threading.Event()
    ingest = server.store.ingest

    def hangs(decoded: Any) -> Any:
        entered.set()
        go_on.wait(20)
        return ingest(decoded)

    monkeypatch.setattr(server.store, "ingest", hangs)
    client = StoreClient(server.address, timeout_s=20.0)
    data = [encode(batch(minute(f"t{n}", output_tokens=1)))[0] for n in range(3)]
    refused: list[Exception] = []

    def send(number: int) -> None:
        try:
            client.export(data[number], None)
        except StoreError as e:
            refused.append(e)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    entered.wait(10)
    until(lambda: server.intake.queued == 2)
    assert server.intake.drain(0.05) is False
    go_on.set()
    for thread in threads:
        thread.join(10)
    client.close()
    assert len(refused) == 2
    assert all(isinstance(e, StoreBusy) for e in refused)
    assert len(StoreSource(server.store).read("tenant_minute", T0, T0 + 60)) == 1


def test_a_listener_of_the_settings_that_cannot_be_does_not_stop_a_serves_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        server = StoreServer(
            Store.open(tmp_path / "store"),
            [f"unix:{tmp_path}/s", Listen(f"127.0.0.1:{port}", must=False)],
        )
    server.start()
    assert server.addresses == [f"unix:{tmp_path}/s"]
    assert "goes on without a listener: cannot listen at" in caplog.text
    server.stop(0.2)


# --- a sender of somebody else's -----------------------------------------------------------------


def test_opentelemetrys_own_exporters_come_in_over_tls_with_a_token(
    server: StoreServer, papers: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    there = {
        "endpoint": f"https://{server.addresses[2]}",
        "credentials": grpc.ssl_channel_credentials(papers["ca"].read_bytes()),
        "headers": (("authorization", "Bearer sender-any"),),
    }
    caplog.set_level(logging.WARNING)
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(**there), 3_600_000)
    meters = MeterProvider([reader])
    meters.get_meter("theirs").create_counter("theirs.requests").add(3, {"a": "b"})
    assert meters.force_flush(10_000)
    logs = LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(**there)))
    logs.get_logger("theirs").emit(
        LogRecord(timestamp=1, severity_number=SeverityNumber.INFO, body="hello")
    )
    meters.shutdown()
    logs.shutdown()
    failed = [r for r in caplog.records if r.name.startswith("opentelemetry")]
    assert not any("StatusCode" in r.getMessage() for r in failed)
    assert server.store.info().batches >= 2
    [live] = server.liveness.store().dicts()
    assert (live["denied"], live["failures"]) == (0, 0)
    with pytest.raises(NotAllowed):
        StoreClient(
            f"https://{server.addresses[2]}", access=Access(token="sender-any", ca=papers["ca"])
        ).info()
