"""opentelemetry-python over a real port: what its instruments were given is in DuckDB, to the
token, over restarts of the sender and of the store."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")

from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from telemetry.conventions import LATENCY_BOUNDS_S, latency_bucket
from telemetry.service.process import StoreServer
from telemetry.source import FileSource
from telemetry.store.store import Store
from tests.telemetry.foreign_requests import OUTPUT, TTFT

SAID = Resource.create({"service.instance.id": "chat-1", "service.name": "chat"})
TEMPORALITIES = [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA]


class Sender:
    """One process's worth of instruments; nothing is exported but on `flush` and `end`."""

    def __init__(self, address: str, temporality: AggregationTemporality) -> None:
        exporter = OTLPMetricExporter(
            endpoint=f"http://{address}",
            insecure=True,
            timeout=10,
            preferred_temporality={Counter: temporality, Histogram: temporality},
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        bounds = ExplicitBucketHistogramAggregation(LATENCY_BOUNDS_S)
        self._provider = MeterProvider(
            [reader], SAID, views=[View(instrument_name=TTFT, aggregation=bounds)]
        )
        meter = self._provider.get_meter("chat")
        self.tokens = meter.create_counter(OUTPUT, unit="{token}")
        self.ttft = meter.create_histogram(TTFT, unit="s")
        self.foreign = meter.create_counter("http.requests")

    def flush(self) -> None:
        assert self._provider.force_flush(10_000)

    def end(self) -> None:
        self._provider.shutdown()


class StoreAt:
    """A store served at one port, that can be ended and begun again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = "127.0.0.1:0"
        self.begin()

    def begin(self) -> None:
        self._server = StoreServer(Store.open(self.folder, time.time), self.address)
        self._server.start()
        self.address = self._server.address

    def info(self) -> Any:
        return self._server.store.info()

    def end(self) -> None:
        self._server.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreAt]:
    serving = StoreAt(tmp_path / "store")
    yield serving
    serving.end()


@pytest.mark.parametrize("temporality", TEMPORALITIES)
def test_what_the_instruments_were_given_is_in_the_store_to_the_token(
    store: StoreAt, temporality: AggregationTemporality
) -> None:
    rng = Random(7)
    tokens: dict[str, int] = defaultdict(int)
    slow: dict[str, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    for sender_life in range(2):
        sender = Sender(store.address, temporality)
        for export in range(3):
            for _ in range(40):
                # A tenant that comes later, and one that was there in another life only.
                tenant = rng.choice(["a", "b", f"life-{sender_life}", f"export-{export}"])
                more, seconds = rng.randrange(100), rng.choice((0.0005, 0.3, 2.0, 900.0))
                sender.tokens.add(more, {"tenantscope.tenant": tenant})
                sender.ttft.record(seconds, {"tenantscope.tenant": tenant})
                sender.foreign.add(1, {"path": "/v1"})
                tokens[tenant] += more
                slow[tenant][latency_bucket(seconds)] += 1
            sender.flush()
            if export == 1:
                store.end()
                store.begin()
        sender.end()
        assert store.info().refused_points == 0
    store.end()
    found: dict[str, int] = defaultdict(int)
    waits: dict[str, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    for row in FileSource(store.folder).read("tenant_minute", float("-inf"), float("inf")):
        assert (row.engine, row.pool) == ("chat-1", "main")
        found[row.tenant] += row.output_tokens or 0
        if row.ttft is not None:
            counts = zip(waits[row.tenant], row.ttft, strict=True)
            waits[row.tenant] = [x + y for x, y in counts]
    assert dict(found) == dict(tokens)
    assert {t: n for t, n in waits.items() if any(n)} == dict(slow)
    foreign = FileSource(store.folder).read("foreign_metric", float("-inf"), float("inf"))
    assert {f.metric for f in foreign} == {"http.requests"}
    store.begin()


def test_its_log_records_are_kept_apart_without_what_they_say(store: StoreAt) -> None:
    provider = LoggerProvider(resource=SAID)
    exporter = OTLPLogExporter(endpoint=f"http://{store.address}", insecure=True, timeout=10)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("chat")
    for _ in range(3):
        logger.emit(body="a prompt", event_name="chat.asked", severity_text="INFO")
    provider.shutdown()
    assert store.info().unknown_points == 3
    store.end()
    rows = FileSource(store.folder).read("foreign_metric", float("-inf"), float("inf"))
    assert sum(r.count for r in rows) == 3
    assert {(r.engine, r.metric, r.kind) for r in rows} == {("chat-1", "chat.asked", "log")}
    assert "prompt" not in repr(rows)
    store.begin()
