"""Whatever comes in: every point is accepted, kept apart, known already or refused with a reason,
and what is accepted is committed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from telemetry.errors import MalformedBatch
from telemetry.instants import LAST_US
from telemetry.otlp import Decoded, decode_logs, decode_metrics, encode
from telemetry.source import StoreSource
from telemetry.store.store import Store
from tests.telemetry.delivered import T0, batch, charge, engine_minute, event, minute, request
from tests.telemetry.foreign_requests import (
    KV,
    OUTPUT,
    TTFT,
    gauge,
    logs_request,
    metrics_request,
    total,
)

COUNTS = (0,) * 19 + (3, 4)
NUMBERS = st.sampled_from(
    (0.0, -0.0, 1.0, -1.0, 0.5, 4.0, 2.0**53, 2.0**53 + 2, 2.0**63, 1e308, -1e308, 5e-324,
     math.nan, math.inf, -math.inf)
)  # fmt: skip
WHOLES = st.sampled_from([0, 1, -1, 7, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)])
INSTANTS = st.sampled_from(
    (0, 1, 999, 1000, 10**9, round(T0) * 10**9, round(T0 + 60) * 10**9,
     LAST_US * 1000, LAST_US * 1000 + 1000, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
)  # fmt: skip
COUNTERS = st.sampled_from([0, 1, 7, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
TEXTS = st.sampled_from(["", "a", "x" * 300, "y" * 70_000, "\x00", "n\x00l", "🐘", "'; --", OUTPUT])
KEYS = st.sampled_from(
    ["tenantscope.tenant", "tenantscope.seq", "tenantscope.bucket_s", "service.instance.id", "k"]
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("fuzz") / "store") as opened:
        yield opened


def valid() -> tuple[ExportMetricsServiceRequest, ExportLogsServiceRequest]:
    """Ours, a generic sender's, and somebody else's, in one request each."""
    rows = [
        minute("a", service=3.5, prompt_tokens=4, ttft=COUNTS, kv_bytes_max=2.0),
        minute("b", output_tokens=9),
        engine_minute(steps=2, step_time=COUNTS),
        charge("a", "b", 1.0),
    ]
    metrics, logs = encode(batch(*rows, request(1, ttft_s=0.5), event(1, value=2.0)))
    assert metrics is not None
    assert logs is not None
    generic = metrics_request(
        total(OUTPUT, ("a", T0, T0 + 30, 10), ("b", T0, T0 + 30, 10)),
        total(TTFT, ("a", T0, T0 + 30, COUNTS), delta=True),
        gauge(KV, ({"tenantscope.tenant": "a"}, T0, 1.0)),
        gauge("load", ({"host": "h", "n": 3}, T0, 1.0)),
        total("latency", ("a", T0, T0 + 30, COUNTS)),
    )
    return (
        ExportMetricsServiceRequest.FromString(metrics + generic),
        ExportLogsServiceRequest.FromString(logs + logs_request(("x", T0, "INFO"))),
    )


def spoil(message: Any, data: st.DataObject) -> None:
    """Walk down to some field and set it to something odd, or remove or repeat it."""
    while True:
        field, value = data.draw(st.sampled_from(message.ListFields()))
        if field.is_repeated:
            act = data.draw(st.sampled_from(["down", "down", "down", "drop", "again"]))
            index = data.draw(st.integers(0, len(value) - 1))
            if act == "drop":
                del value[index]
                return
            if act == "again":
                value.append(value[index])
                return
            if field.message_type is None:
                value[index] = odd(field, data)
                return
            message = value[index]
        elif field.message_type is not None:
            message = value
        else:
            setattr(message, field.name, odd(field, data))
            return
        if not message.ListFields():
            return


def odd(field: Any, data: st.DataObject) -> Any:
    if field.type == field.TYPE_STRING:
        return data.draw(KEYS if field.name == "key" else TEXTS)
    if field.type == field.TYPE_DOUBLE:
        return data.draw(NUMBERS)
    if field.type == field.TYPE_BOOL:
        return data.draw(st.booleans())
    if field.type == field.TYPE_ENUM:
        return data.draw(st.integers(0, 3))
    if field.name.endswith("unix_nano"):
        return data.draw(INSTANTS)
    if field.type in (field.TYPE_INT64, field.TYPE_SFIXED64):
        return data.draw(WHOLES)
    if field.type in (field.TYPE_FIXED64, field.TYPE_UINT64):
        return data.draw(COUNTERS)
    return data.draw(st.integers(0, 1 << 20))


def points_of(request: Any) -> int:
    if isinstance(request, ExportLogsServiceRequest):
        return sum(len(s.log_records) for r in request.resource_logs for s in r.scope_logs)
    return sum(
        len(getattr(m, kind).data_points)
        for r in request.resource_metrics
        for s in r.scope_metrics
        for m in s.metrics
        if (kind := m.WhichOneof("data"))
    )


def closes(decoded: Decoded, sent: int, store: Store) -> None:
    foreign = sum(f.count or 0 if f.kind == "log" else 1 for f in decoded.foreign)
    assert decoded.accepted + len(decoded.arrivals) + foreign + decoded.refused == sent
    assert bool(decoded.refused) == bool(decoded.reasons)
    assert all(len(reason) <= 300 for reason in decoded.reasons)
    receipt = store.ingest(decoded)
    became = (receipt.accepted, receipt.kept, receipt.repeated, receipt.baselines, receipt.refused)
    assert sum(became) == sent
    assert min(became) >= 0


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), times=st.integers(0, 4))
def test_every_point_of_a_spoilt_request_is_accounted_for(
    store: Store, data: st.DataObject, times: int
) -> None:
    metrics, logs = valid()
    for message, decode in ((metrics, decode_metrics), (logs, decode_logs)):
        for _ in range(times):
            if message.ListFields():
                spoil(message, data)
        try:
            decoded = decode(message.SerializeToString())
        except MalformedBatch:
            raise AssertionError("a request that protobuf wrote is one that it reads") from None
        closes(decoded, points_of(message), store)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(at=st.floats(0, 1), noise=st.binary(min_size=1, max_size=4), which=st.booleans())
def test_every_point_of_damaged_bytes_is_accounted_for(
    store: Store, at: float, noise: bytes, which: bool
) -> None:
    message, decode = (valid()[0], decode_metrics) if which else (valid()[1], decode_logs)
    data = message.SerializeToString()
    place = int(at * len(data))
    damaged = data[:place] + noise + data[place + len(noise) :]
    try:
        read = type(message).FromString(damaged)
    except DecodeError:
        with pytest.raises(MalformedBatch):
            decode(damaged)
        return
    try:
        decoded = decode(damaged)
    except MalformedBatch:
        assert not read.ListFields()
        return
    closes(decoded, points_of(read), store)


@pytest.mark.full
@settings(max_examples=3_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), times=st.integers(1, 8))
def test_every_point_of_a_badly_spoilt_request_is_accounted_for(
    store: Store, data: st.DataObject, times: int
) -> None:
    metrics, _ = valid()
    for _ in range(times):
        if metrics.ListFields():
            spoil(metrics, data)
    closes(decode_metrics(metrics.SerializeToString()), points_of(metrics), store)


def test_what_was_accepted_of_odd_names_is_read_back(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as fresh:
        names = ["", "\x00", "n\x00l", "x" * 300, "🐘"]
        metrics, _ = encode(batch(*(minute(n, output_tokens=1) for n in names)))
        assert metrics is not None
        assert fresh.ingest_metrics(metrics).rows == len(names)
        fresh.close_day("2027-01-15")
        rows = StoreSource(fresh).read("tenant_minute", T0, T0 + 60)
        assert sorted(r.tenant for r in rows) == sorted(names)
