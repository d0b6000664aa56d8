"""Senders: nothing blocks, nothing raises, nothing that must arrive is lost within the bound."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from telemetry.conventions import Emitter
from telemetry.errors import MalformedBatch, StoreBusy, StoreError, StoreUnreachable
from telemetry.otlp import decode_logs, decode_metrics
from telemetry.pipeline.exporter import Exporter, Inline
from telemetry.records import Batch
from telemetry.service.process import StoreServer
from telemetry.source import FileSource, MemorySource, StoreSource
from telemetry.store.store import Store
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    RUN_ROW,
    T0,
    batch,
    engine_minute,
    event,
    everything,
    minute,
    request,
    until,
)


class Sink:
    """A store that can be taken away, and that remembers what it took."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any]] = []
        self.error: Exception | None = None
        self.tried = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, metrics: bytes | None, logs: bytes | None) -> None:
        self.tried.set()
        self.gate.wait(10)
        if self.error is not None:
            raise self.error
        if metrics is not None:
            self.taken += [("metrics", b) for b in decode_metrics(metrics).batches]
        if logs is not None:
            self.taken += [("logs", b) for b in decode_logs(logs).batches]

    def seqs(self, kind: str = "metrics") -> list[int]:
        return [b.seq for k, b in self.taken if k == kind]


def exporter(sink: Sink, **bounds: Any) -> Exporter:
    return Exporter(sink=sink, first_retry_s=0.01, **bounds)


def open_bucket(seq: int, *logs: Any, at: float = T0) -> Batch:
    return batch(minute("a", at, output_tokens=seq), *logs, sealed=False, seq=seq)


def test_what_is_submitted_arrives_in_order() -> None:
    sink = Sink()
    out = exporter(sink)
    for n in range(5):
        out.submit(batch(minute("a", T0 + 60 * n, output_tokens=n), request(n), seq=n))
    assert out.flush(10)
    assert sink.seqs() == sink.seqs("logs") == list(range(5))
    stats = out.close()
    assert (stats.sent, stats.lost, stats.queued) == (10, 0, 0)
    assert stats.last_ack_unix_s is not None


def test_newer_states_of_an_open_bucket_replace_older_ones_in_the_queue() -> None:
    sink = Sink()
    sink.gate.clear()
    out = exporter(sink)
    out.submit(batch(engine_minute(T0 - 60, steps=1), seq=100))
    sink.tried.wait(10)  # the sender is held up; what follows queues behind it
    for seq in (1, 2, 3):
        out.submit(open_bucket(seq, request(seq)))
    out.submit(batch(minute("a", output_tokens=9), seq=4))
    out.submit(open_bucket(1, at=T0 + 60))
    sink.gate.set()
    assert out.flush(10)
    assert sink.seqs() == [100, 4, 1]
    assert sink.seqs("logs") == [1, 2, 3]  # log rows are never superseded
    assert out.close().superseded == 3


def test_sealed_batches_outlive_a_store_that_is_away() -> None:
    sink = Sink()
    sink.error = StoreUnreachable("down")
    out = exporter(sink)
    for n in range(20):
        out.submit(batch(minute("a", T0 + 60 * n, output_tokens=n), seq=n))
    sink.tried.wait(10)
    assert (out.stats().sent, out.stats().lost) == (0, 0)
    sink.error = None
    assert out.flush(10)
    assert sink.seqs() == list(range(20))
    assert out.stats().last_error == "down"
    assert out.close().lost == 0


def test_what_the_store_can_never_take_is_dropped_and_counted() -> None:
    sink = Sink()
    sink.error = MalformedBatch("no")
    out = exporter(sink)
    out.submit(batch(minute("a", output_tokens=1)))
    assert out.flush(10)
    sink.error = None
    out.submit(batch(minute("a", output_tokens=2), seq=2))
    assert out.flush(10)
    assert sink.seqs() == [2]
    stats = out.close()
    assert (stats.lost, stats.last_error) == (1, "no")


def test_what_was_lost_is_told_to_the_store_once_it_answers_again() -> None:
    sink = Sink()
    sink.error = MalformedBatch("no \ud800")
    out = exporter(sink)
    for n in (1, 2, 3):
        out.submit(batch(minute("a", output_tokens=n), seq=n))
    assert out.flush(10)
    sink.error = None
    for n in (4, 5):
        out.submit(batch(minute("a", output_tokens=n), seq=n))
        assert out.flush(10)
    assert out.close().lost == 3
    told = [row for kind, b in sink.taken if kind == "logs" for row in b.logs]
    assert [(r.kind, r.value, r.engine) for r in told] == [("lost", 3.0, "e1")]
    assert told[0].detail == "the worker gave up 3 batches: no \\ud800"


def test_a_sink_that_breaks_in_an_unforeseen_way_is_given_up_after_some_tries() -> None:
    sink = Sink()
    sink.error = ZeroDivisionError("surprise")
    out = exporter(sink)
    out.submit(batch(minute("a", output_tokens=1)))
    assert out.flush(20)
    stats = out.close()
    assert (stats.lost, stats.retries) == (1, 4)
    assert "ZeroDivisionError: surprise" in stats.last_error


def test_a_batch_that_cannot_be_encoded_is_counted_and_hurts_no_other() -> None:
    sink = Sink()
    out = exporter(sink)
    out.submit(batch(minute("\ud800", output_tokens=1)))
    out.submit(Batch("e1", "r2", "main", Emitter.WORKER, True, 1, (minute("a", finished=1),)))
    out.submit(batch(minute("a", output_tokens=1), seq=7))
    assert out.flush(10)
    assert sink.seqs() == [7]
    assert out.close().lost == 2


def test_a_batch_that_breaks_the_encoder_in_an_unforeseen_way_hurts_no_other() -> None:
    sink = Sink()
    out = exporter(sink)
    out.submit(batch(event(1, float("inf"))))  # an OverflowError, of all things
    out.submit(batch(minute("a", output_tokens=1), seq=7))
    assert out.flush(10)
    assert sink.seqs() == [7]
    stats = out.close()
    assert stats.lost == 1
    assert "OverflowError" in stats.last_error


def test_a_request_the_store_always_fails_at_does_not_hold_up_the_others() -> None:
    sink = Sink()
    sink.error = StoreError("INTERNAL: KeyError: 'x'")
    out = exporter(sink)
    out.submit(batch(minute("a", output_tokens=1)))
    assert out.flush(20)
    sink.error = None
    out.submit(batch(minute("a", output_tokens=2), seq=2))
    assert out.flush(10)
    assert sink.seqs() == [2]
    assert (out.close().lost, out.stats().last_error) == (1, "INTERNAL: KeyError: 'x'")


def test_beyond_the_bound_open_buckets_go_first_and_then_the_oldest() -> None:
    sink = Sink()
    sink.gate.clear()
    sink.error = StoreBusy("full")
    one = 4_000
    out = exporter(sink, spool_limit_bytes=3 * one)
    for seq, sealed in ((1, True), (2, False), (3, True), (4, True), (5, True)):
        rows = [minute(f"{n:0200}", T0 + 60 * seq, output_tokens=n) for n in range(12)]
        out.submit(batch(*rows, seq=seq, sealed=sealed))
    until(lambda: out.stats().lost >= 2)
    assert out.stats().queued_bytes <= 3 * one
    sink.error = None
    sink.gate.set()
    assert out.flush(10)
    assert 2 not in sink.seqs()
    assert sink.seqs()[-1] == 5
    assert out.close().lost >= 2


def test_submit_returns_while_the_store_hangs() -> None:
    sink = Sink()
    sink.gate.clear()
    out = exporter(sink)
    for n in range(200):
        out.submit(batch(minute("a", T0 + 60 * n, output_tokens=n), seq=n))
    assert out.stats().sent == 0
    sink.gate.set()
    assert out.flush(10)
    assert sink.seqs() == list(range(200))
    out.close()


def test_closing_is_bounded_and_says_what_was_lost() -> None:
    sink = Sink()
    sink.error = StoreUnreachable("down")
    out = exporter(sink)
    out.submit(batch(minute("a", output_tokens=1), request(1)))
    sink.tried.wait(10)
    stats = out.close(timeout_s=0.2)
    assert (stats.lost, stats.queued) == (2, 0)
    out.submit(batch(minute("a", output_tokens=1)))
    assert out.close().lost == 3


def test_closing_sends_what_is_left() -> None:
    sink = Sink()
    out = exporter(sink)
    for n in range(50):
        out.submit(batch(minute("a", T0 + 60 * n, output_tokens=n), seq=n))
    stats = out.close()
    assert sink.seqs() == list(range(50))
    assert stats.lost == 0


def test_recent_is_the_newest_state_of_each_bucket_of_the_last_hour() -> None:
    sink = Sink()
    sink.error = StoreUnreachable("down")
    out = exporter(sink)
    out.submit(batch(RUN_ROW, ADAPTER_ROW))
    for n in range(70):
        out.submit(open_bucket(2 * n, at=T0 + 60 * n))
        out.submit(
            batch(minute("a", T0 + 60 * n, output_tokens=n), request(n, T0 + 60 * n), seq=2 * n + 1)
        )
    now = T0 + 60 * 70
    out.submit(open_bucket(999, event(1, now), at=now))
    until(lambda: out.recent(now, now + 1)[0] != [])
    source = MemorySource(*out.recent(0.0, now + 60))
    rows = source.read("tenant_minute", 0.0, now + 60)
    assert [r.output_tokens for r in rows] == [*range(11, 70), 999]
    assert len(source.read("request", 0.0, now)) == 59
    assert source.read("engine_run", 0.0, now) == [RUN_ROW]
    source.close()
    metrics, _ = out.recent(T0 + 60 * 65, T0 + 60 * 66)
    assert [r.output_tokens for m in metrics for r in decode_metrics(m).rows("tenant_minute")] == [
        65
    ]
    sink.error = None
    out.close()


def test_recent_stays_within_its_memory_bound() -> None:
    sink = Sink()
    out = exporter(sink, recent_limit_bytes=5_000)
    for n in range(50):
        out.submit(batch(minute("a", T0 + 60 * n, output_tokens=n), request(n, T0 + 60 * n), seq=n))
    assert out.flush(10)
    metrics, logs = out.recent(0.0, float("inf"))
    assert 0 < sum(map(len, [*metrics, *logs])) <= 5_000
    newest = decode_metrics(metrics[-1]).rows("tenant_minute")
    assert [r.output_tokens for r in newest] == [49]
    out.close()


def test_an_exporter_has_one_way_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of them"):
        Exporter()
    with pytest.raises(ValueError, match="one of them"):
        Exporter(f"unix:{tmp_path}/s", sink=Sink())


def test_inline_delivery_is_heard(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        Inline(store.take).submit(batch(minute("a", output_tokens=3), request(1)))
        assert len(everything(StoreSource(store))["request"]) == 1
    sink = Sink()
    sink.error = StoreBusy("no")
    with pytest.raises(StoreBusy):
        Inline(sink).submit(batch(minute("a", output_tokens=3)))


def test_a_store_process_that_goes_and_comes_back_misses_nothing(tmp_path: Path) -> None:
    folder, address = tmp_path / "store", f"unix:{tmp_path}/s"
    out = Exporter(address, first_retry_s=0.02)
    out.submit(batch(minute("a", output_tokens=0), seq=0))  # before there is a store
    server = StoreServer(Store.open(folder), address)
    server.start()
    assert out.flush(20)
    server.stop(0.2)
    for n in range(1, 6):
        out.submit(batch(minute("a", T0 + 60 * n, output_tokens=n), request(n), seq=n))
    server = StoreServer(Store.open(folder), address)
    server.start()
    assert out.flush(20)
    assert out.close().lost == 0
    server.stop(0.2)
    source = FileSource(folder)
    rows = source.read("tenant_minute", 0.0, float("inf"))
    assert [r.output_tokens for r in rows] == list(range(6))
    assert len(source.read("request", 0.0, float("inf"))) == 5
