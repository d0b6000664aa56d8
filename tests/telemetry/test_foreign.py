"""Other people's metrics are kept apart and counted; they never cost more than their bound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from telemetry.conventions import metric_name
from telemetry.errors import MalformedBatch
from telemetry.otlp import decode_logs, decode_metrics, encode
from telemetry.otlp.foreign import Gate
from telemetry.otlp.read import Refused
from telemetry.records import ForeignMetric
from telemetry.source import FileSource, StoreSource
from telemetry.store import backup, forget, retention, sizes
from telemetry.store.store import Store
from tests.telemetry.delivered import DAY_S, ODD_NAMES, T0, batch, deliver, everything, minute
from tests.telemetry.foreign_requests import (
    OUTPUT,
    gauge,
    logs_request,
    metrics_request,
    ns,
    pairs,
    total,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def kept(store: Store) -> list[ForeignMetric]:
    return StoreSource(store).read("foreign_metric", float("-inf"), float("inf"))


def test_a_metric_of_no_name_of_ours_is_kept_apart_and_counted(store: Store) -> None:
    data = metrics_request(
        gauge("gpu.utilisation", ({"gpu": 0, "host": "h1"}, T0, 0.75), unit="1"),
        total("http.requests", ("a", T0, T0 + 5, 12)),
    )
    receipt = store.ingest_metrics(data)
    assert (receipt.kept, receipt.refused, receipt.accepted) == (2, 0, 0)
    assert store.info().unknown_points == 2
    first, second = sorted(kept(store), key=lambda r: r.metric)
    assert (first.engine, first.metric, first.kind, first.unit, first.value) == (
        "gen-1", "gpu.utilisation", "gauge", "1", 0.75,
    )  # fmt: skip
    assert json.loads(first.attributes) == {"gpu": 0, "host": "h1"}
    assert (second.kind, second.value) == ("cumulative sum", 12.0)


def test_it_is_kept_beside_our_own_points_which_lose_nothing(store: Store) -> None:
    metrics, _ = encode(batch(minute("a", output_tokens=4)))
    assert metrics is not None
    # Protobuf messages add up when they are put one behind the other.
    receipt = store.ingest_metrics(metrics + metrics_request(gauge("x", ({}, T0, 1.0))))
    assert (receipt.accepted, receipt.kept, receipt.refused) == (1, 1, 0)
    assert [r.output_tokens for r in everything(StoreSource(store))["tenant_minute"]] == [4]


def test_a_column_that_only_a_newer_sender_knows_is_kept_apart_too(store: Store) -> None:
    name = metric_name("tenant_minute", "a_column_of_next_year")
    assert store.ingest_metrics(metrics_request(gauge(name, ({}, T0, 1.0)))).kept == 1


def test_delivered_again_it_is_there_once(store: Store) -> None:
    data = metrics_request(gauge("x", ({"a": "1"}, T0, 1.0), ({"a": "2"}, T0, 2.0)))
    for _ in range(3):
        store.ingest_metrics(data)
    assert [(r.attributes, r.value) for r in kept(store)] == [
        ('{"a":"1"}', 1.0),
        ('{"a":"2"}', 2.0),
    ]


def test_of_a_foreign_log_record_only_name_severity_and_number_stay(store: Store) -> None:
    sent = logs_request(
        ("gen_ai.prompt", T0, "INFO"), ("gen_ai.prompt", T0, "INFO"), body="my secret prompt"
    )
    receipt = store.ingest_logs(sent)
    assert (receipt.kept, receipt.refused) == (2, 0)
    [row] = kept(store)
    assert (row.metric, row.kind, row.count) == ("gen_ai.prompt", "log", 2)
    assert "secret" not in repr(row)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_and_values_are_data(store: Store, name: str) -> None:
    data = metrics_request(
        gauge(name, ({name: name}, T0, 1.0)), resource={"service.instance.id": name}
    )
    assert store.ingest_metrics(data).kept == 1
    [row] = kept(store)
    assert (row.engine, row.metric, json.loads(row.attributes)) == (name, name, {name: name})


def test_a_sender_without_a_name_is_kept_too(store: Store) -> None:
    assert store.ingest_metrics(metrics_request(gauge("x", ({}, T0, 1.0)), resource={})).kept == 1
    assert [r.engine for r in kept(store)] == [""]


# --- malformed -----------------------------------------------------------------------------------


def nested(depth: int) -> AnyValue:
    value = AnyValue(string_value="deep")
    for _ in range(depth):
        outer = AnyValue()
        outer.array_value.values.append(value)
        value = outer
    return value


def unspecified() -> Metric:
    metric = total("x", ("a", T0, T0 + 1, 1))
    metric.sum.aggregation_temporality = 0
    return metric


def twice() -> Metric:
    metric = gauge("x", ({"a": 1}, T0, 1.0))
    metric.gauge.data_points[0].attributes.extend(pairs({"a": 2}))
    return metric


def no_value() -> Metric:
    metric = Metric(name="x")
    metric.gauge.data_points.add(time_unix_nano=ns(T0))
    return metric


def huge_count() -> Metric:
    metric = total("x", ("a", T0, T0 + 1, (1,)))
    metric.histogram.data_points[0].count = 1 << 63
    return metric


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (gauge("", ({}, T0, 1.0)), "a metric's name of 0 characters: expected 1 to 255"),
        (gauge("x" * 300, ({}, T0, 1.0)), "a metric's name of 300 characters"),
        (gauge("x", ({}, T0, float("nan"))), "nan: expected a finite number"),
        (gauge("x", ({}, T0, float("-inf"))), "-inf: expected a finite number"),
        (gauge("x", ({}, 0.0, 1.0)), "time_unix_nano = 0: not an instant"),
        (gauge("x", ({"a": "y" * 10_000_000}, T0, 1.0)), "an attribute of 10000000 characters"),
        (gauge("x", ({"a" * 2000: 1}, T0, 1.0)), "an attribute's name of 2000 characters"),
        (gauge("x", ({str(i): "y" * 99 for i in range(99)}, T0, 1.0)), "at most 4096"),
        (gauge("x", ({"a": nested(12)}, T0, 1.0)), "nested deeper than 8"),
        (gauge("x", ({}, T0, 1.0), unit="u" * 64), "a unit of 64 characters"),
        (unspecified(), "neither delta nor cumulative"),
        (twice(), "'a' stands there twice"),
        (no_value(), "a point without a value"),
        (huge_count(), "count = 9223372036854775808"),
    ],
)
def test_what_is_malformed_is_refused_with_the_reason(metric: Metric, reason: str) -> None:
    decoded = decode_metrics(metrics_request(metric, gauge("good", ({}, T0, 1.0))))
    assert (decoded.refused, [f.metric for f in decoded.foreign]) == (1, ["good"])
    assert reason in decoded.reasons[0]


def nested_bytes(depth: int) -> bytes:
    """A request with an attribute nested deeper than protobuf itself would write."""

    def field(tag: int, inside: bytes) -> bytes:
        size, length = b"", len(inside)
        while length >= 128:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        return bytes([tag]) + size + bytes([length]) + inside

    value = field(0x0A, b"deep")
    for _ in range(depth):
        value = field(0x2A, field(0x0A, value))
    pair = field(0x0A, b"a") + field(0x12, value)
    return field(0x0A, field(0x0A, field(0x0A, pair)))


def test_what_is_nested_beyond_what_protobuf_reads_is_no_request() -> None:
    assert decode_metrics(nested_bytes(10)).refused == 0
    with pytest.raises(MalformedBatch, match="are not an ExportMetricsServiceRequest"):
        decode_metrics(nested_bytes(500))


def test_log_records_without_an_instant_or_with_a_long_name_are_refused() -> None:
    decoded = decode_logs(logs_request(("x", 0.0, ""), ("y" * 300, T0, ""), ("z", T0, "s" * 99)))
    assert (decoded.refused, decoded.foreign) == (3, ())
    assert len(decoded.reasons) == 3


# --- the bound -----------------------------------------------------------------------------------


def row(number: int, at: float = T0) -> ForeignMetric:
    return ForeignMetric(
        engine="e", run_id="", pool="", at=at, metric=f"m{number}", attributes="{}", kind="gauge"
    )


def test_a_day_has_so_many_series_and_known_ones_still_come_in() -> None:
    gate = Gate(lambda day: [], series_a_day=2, rows_a_minute=100)
    gate.admit(row(0), 0.0)
    gate.admit(row(1), 0.0)
    with pytest.raises(Refused, match="2027-01-15 has 2 such series: no more are kept"):
        gate.admit(row(2), 0.0)
    gate.admit(row(0), 1.0)
    gate.admit(row(2, T0 + DAY_S), 1.0)


def test_a_minute_has_so_many_rows_and_the_next_one_as_many() -> None:
    gate = Gate(lambda day: [], series_a_day=100, rows_a_minute=2)
    gate.admit(row(0), 0.0)
    gate.admit(row(0), 59.0)
    with pytest.raises(Refused, match="2 such rows were kept this minute"):
        gate.admit(row(0), 59.9)
    gate.admit(row(0), 60.0)


def test_a_restart_does_not_open_the_gate_wider(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Store.open(folder) as store:
        store.ingest_metrics(metrics_request(gauge("first", ({}, T0, 1.0))))
    with Store.open(folder) as store:
        store._arriving._gate._series_a_day = 1
        receipt = store.ingest_metrics(
            metrics_request(gauge("first", ({}, T0 + 1, 1.0)), gauge("second", ({}, T0, 1.0)))
        )
        assert (receipt.kept, receipt.refused) == (1, 1)
        assert "'second' is not in the vocabulary" in receipt.reasons[0]


# --- what the store does for all its tables ------------------------------------------------------


def fill(store: Store) -> None:
    deliver(store, batch(minute("acme", output_tokens=1)))
    for day in range(2):
        store.ingest_metrics(
            metrics_request(
                gauge("load", ({"customer": "acme"}, T0 + day * DAY_S, 1.0)),
                gauge("load", ({"customer": "acme corp"}, T0 + day * DAY_S, 2.0)),
                gauge("load", ({"path": 'say "acme"!'}, T0 + day * DAY_S, 3.0)),
                gauge("load", ({"who": nested_name("acme")}, T0 + day * DAY_S, 4.0)),
            )
        )


def nested_name(name: str) -> AnyValue:
    value = AnyValue()
    value.kvlist_value.values.extend(pairs({"tenant": name}))
    return value


def values(source: Any) -> list[float]:
    return [r.value for r in source.read("foreign_metric", float("-inf"), float("inf"))]


def test_to_forget_a_tenant_drops_the_rows_that_say_its_name(store: Store) -> None:
    fill(store)
    store.close_day("2027-01-15")
    forget.forget(store, "acme")
    assert sorted(values(StoreSource(store))) == [2.0, 2.0, 3.0, 3.0]


def test_it_is_closed_measured_backed_up_and_dropped_like_the_rest(
    store: Store, tmp_path: Path
) -> None:
    fill(store)
    store.close_day("2027-01-15")
    with store.alone("cannot be measured") as shelf:
        sized = sizes.measure(shelf.con, shelf.parts.values()).dicts()
    assert [r["rows"] for r in sized if r["table"] == "foreign_metric"] == [4, 4]
    backup.back_up(store, tmp_path / "copy", 0.0)
    backup.restore(tmp_path / "copy", tmp_path / "back")
    assert len(values(FileSource(tmp_path / "back"))) == 8
    dropped = retention.apply(store, T0 + 8 * DAY_S).dicts()
    assert [(r["day"], r["table"], r["rows"]) for r in dropped] == [
        ("2027-01-15", "foreign_metric", 4)
    ]
    assert len(values(StoreSource(store))) == 4


def test_a_query_says_who_sends_what(store: Store) -> None:
    fill(store)
    answer = StoreSource(store).query("foreign", start=T0, end=T0 + 60).dicts()
    [one] = answer
    assert (one["engine"], one["metric"], one["points"], one["series"]) == ("gen-1", "load", 4, 4)


def test_our_names_from_a_generic_sender_are_not_foreign(store: Store) -> None:
    receipt = store.ingest_metrics(metrics_request(total(OUTPUT, ("a", T0, T0 + 5, 12))))
    assert (receipt.kept, receipt.accepted) == (0, 1)
