"""Rows survive the way through OTLP; what is malformed is counted and sinks nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter
from telemetry.errors import MalformedBatch
from telemetry.otlp import Decoded, decode_logs, decode_metrics, encode
from telemetry.otlp.rows import ROWS_A_REQUEST
from telemetry.records import Batch
from telemetry.tables import TABLES
from tests.telemetry.delivered import (
    ADAPTER_ROW,
    ODD_NAMES,
    RUN,
    RUN_ROW,
    T0,
    any_rows,
    batch,
    charge,
    engine_minute,
    event,
    minute,
    request,
)

HISTOGRAM = (1,) + (0,) * 19 + (7,)


def same_rows(left: list[Any], right: list[Any]) -> bool:
    return sorted(map(repr, left)) == sorted(map(repr, right))


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), sealed=st.booleans(), seq=st.integers(0, (1 << 40) - 1))
def test_any_batch_comes_back_as_it_was(
    name: str, data: st.DataObject, sealed: bool, seq: int
) -> None:
    rows = data.draw(any_rows(TABLES[name]))
    sent = batch(*rows, emitter=Emitter.FRONT, sealed=sealed, seq=seq)
    metrics, logs = encode(sent)
    back = [
        decode_metrics(metrics) if metrics else Decoded(),
        decode_logs(logs) if logs else Decoded(),
    ]
    assert same_rows([r for d in back for r in d.rows(name)], rows)
    for decoded in back:
        assert decoded.refused == 0
        for b in decoded.batches:
            assert (b.emitter, b.sealed, b.seq) == (Emitter.FRONT, sealed, seq)
            assert (b.engine, b.run_id, b.pool) == tuple(RUN.values())


def test_points_carry_the_buckets_bounds_the_kind_and_the_unit() -> None:
    row = minute("a", service=3.5, prompt_tokens=4, kv_bytes_avg=8.0, ttft=HISTOGRAM)
    metrics, logs = encode(batch(row))
    assert logs is None
    assert metrics is not None
    [resource] = ExportMetricsServiceRequest.FromString(metrics).resource_metrics
    found = {m.name: m for s in resource.scope_metrics for m in s.metrics}
    tokens = found["tenantscope.tenant_minute.prompt_tokens"]
    assert tokens.unit == "{token}"
    assert tokens.sum.is_monotonic
    [point] = tokens.sum.data_points
    assert point.as_int == 4
    assert point.start_time_unix_nano == 1_800_000_000 * 10**9
    assert point.time_unix_nano == 1_800_000_060 * 10**9
    assert [(a.key, a.value.string_value) for a in point.attributes] == [
        ("tenantscope.tenant", "a")
    ]
    assert found["tenantscope.tenant_minute.kv_bytes_avg"].gauge.data_points[0].as_double == 8.0
    [ttft] = found["tenantscope.tenant_minute.ttft"].histogram.data_points
    assert (tuple(ttft.explicit_bounds), ttft.count) == (LATENCY_BOUNDS_S, 8)
    resource_keys = {a.key for a in resource.resource.attributes}
    assert {"service.name", "service.instance.id", "tenantscope.run_id"} <= resource_keys


def test_absent_is_no_point_and_zero_is_one() -> None:
    metrics, _ = encode(batch(minute("a", prompt_tokens=0)))
    assert metrics is not None
    [resource] = ExportMetricsServiceRequest.FromString(metrics).resource_metrics
    assert [m.name for s in resource.scope_metrics for m in s.metrics] == [
        "tenantscope.tenant_minute.prompt_tokens"
    ]
    assert encode(batch(minute("a"))) == (None, None)


@pytest.mark.parametrize("name", [n for n in TABLES if not TABLES[n].log])
@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_points_of_another_form_make_the_same_rows(
    name: str, data: st.DataObject, seed: int
) -> None:
    """A sender may add what we do not ask for, and say the same in another way."""
    rows, chance = data.draw(any_rows(TABLES[name], most=6)), random.Random(seed)
    metrics, _ = encode(batch(*rows))
    if metrics is None:
        return
    request = ExportMetricsServiceRequest.FromString(metrics)
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            how = chance.choice(["as it is", "flags", "exemplar", "attribute", "sum"])
            if how == "flags":
                point.flags = 1
            elif how == "exemplar":
                point.exemplars.add(as_int=3)
            elif how == "attribute":
                point.attributes.add(key="zone").value.int_value = 3
            elif how == "sum" and metric.WhichOneof("data") == "histogram":
                point.sum = 1.0
            elif how == "sum" and 0 < point.as_double < 2**53 and point.as_double.is_integer():
                point.as_int = int(point.as_double)
    other = decode_metrics(request.SerializeToString())
    whole = decode_metrics(metrics)
    assert (other.accepted, other.refused) == (whole.accepted, 0)
    assert same_rows(other.rows(name), whole.rows(name))
    assert same_rows(whole.rows(name), rows)


def test_a_column_of_the_same_length_with_others_values_is_read_point_by_point() -> None:
    """Names of one length, in another order: nothing but the bytes tells the columns apart."""
    rows = [minute(n, service=1.0, stall_s=2.0, finished=3, aborted=4) for n in ("aa", "bb", "cc")]
    metrics, _ = encode(batch(*rows))
    assert metrics is not None
    request = ExportMetricsServiceRequest.FromString(metrics)
    found = {
        m.name.rpartition(".")[2]: m for m in request.resource_metrics[0].scope_metrics[0].metrics
    }
    points = found["stall_s"].sum.data_points
    points[0].as_double = 7.0
    points.reverse()
    found["aborted"].sum.data_points[1].as_int = -1
    decoded = decode_metrics(request.SerializeToString())
    assert {(r.tenant, r.service, r.stall_s, r.finished, r.aborted)
            for r in decoded.rows("tenant_minute")} == {
        ("aa", 1.0, 7.0, 3, 4), ("bb", 1.0, 2.0, 3, None), ("cc", 1.0, 2.0, 3, 4)
    }  # fmt: skip
    assert decoded.refused == 1


def test_two_bucket_lengths_in_a_batch_stay_apart() -> None:
    rows = [minute("a", prompt_tokens=1), engine_minute(steps=2)]
    longer = type(rows[1])(bucket_start=T0, bucket_s=10.0, **RUN, steps=3)
    metrics, _ = encode(batch(*rows, longer))
    assert metrics is not None
    back = decode_metrics(metrics)
    assert same_rows([r for b in back.batches for r in b.minutes], [*rows, longer])


def test_log_rows_are_events_with_their_instant_and_types() -> None:
    _, logs = encode(batch(request(1, T0 + 0.25, ttft_s=1.0, slo_met=False), ADAPTER_ROW))
    assert logs is not None
    [resource] = ExportLogsServiceRequest.FromString(logs).resource_logs
    first, second = (r for s in resource.scope_logs for r in s.log_records)
    assert first.event_name == "tenantscope.request"
    assert first.time_unix_nano == 1_800_000_000_250_000_000
    have = {a.key.rpartition(".")[2]: a.value for a in first.attributes}
    assert have["arrived"].int_value == 1_800_000_000_250_000
    assert have["slo_met"].WhichOneof("value") == "bool_value"
    assert have["ttft_s"].WhichOneof("value") == "double_value"
    assert "first_token" not in have
    assert second.event_name == "tenantscope.adapter"


@pytest.mark.parametrize("name", [n for n, table in TABLES.items() if table.log])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_log_bytes_are_what_the_official_classes_write(name: str, data: st.DataObject) -> None:
    rows = data.draw(any_rows(TABLES[name]))
    _, logs = encode(batch(*rows))
    if logs is None:
        assert rows == []
        return
    assert ExportLogsServiceRequest.FromString(logs).SerializeToString() == logs


def test_a_row_of_another_run_does_not_enter_a_batch() -> None:
    stray = Batch("e1", "r2", "main", Emitter.WORKER, True, 1, (minute("a", finished=1),))
    with pytest.raises(ValueError, match=r"e1/r1/main in a batch of e1/r2/main"):
        encode(stray)


# --- malformed -----------------------------------------------------------------------------------


def spoilt(change: Any) -> Decoded:
    """A request with one good point of tenant b, after `change` has spoilt the metrics."""
    row = minute("a", service=3.5, prompt_tokens=4, ttft=HISTOGRAM)
    metrics, _ = encode(batch(row, minute("b", output_tokens=9)))
    assert metrics is not None
    parsed = ExportMetricsServiceRequest.FromString(metrics)
    resource = parsed.resource_metrics[0]
    change(resource, {m.name.rpartition(".")[2]: m for m in resource.scope_metrics[0].metrics})
    return decode_metrics(parsed.SerializeToString())


def set_nan(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].as_double = float("nan")


def set_infinite(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].as_double = float("inf")


def set_negative(_: Any, m: Any) -> None:
    m["prompt_tokens"].sum.data_points[0].as_int = -1


def set_fraction(_: Any, m: Any) -> None:
    m["prompt_tokens"].sum.data_points[0].as_double = 1.5


def set_cumulative(_: Any, m: Any) -> None:
    m["service"].sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE


def set_gauge(_: Any, m: Any) -> None:
    point = m["service"].sum.data_points[0]
    m["service"].gauge.data_points.append(point)


def set_no_tenant(_: Any, m: Any) -> None:
    del m["service"].sum.data_points[0].attributes[:]


def set_other_interval(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].time_unix_nano += 10**9


def set_no_start(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].start_time_unix_nano = 0


def set_few_buckets(_: Any, m: Any) -> None:
    del m["ttft"].histogram.data_points[0].bucket_counts[5:]


def set_other_bounds(_: Any, m: Any) -> None:
    m["ttft"].histogram.data_points[0].explicit_bounds[0] = 0.002


def set_wrong_count(_: Any, m: Any) -> None:
    m["ttft"].histogram.data_points[0].count = 9


def set_no_value(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].ClearField("as_double")


def set_minus_infinite(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].as_double = float("-inf")


def set_2_63(_: Any, m: Any) -> None:
    m["prompt_tokens"].sum.data_points[0].as_double = 2.0**63


def set_whole_double(_: Any, m: Any) -> None:
    m["prompt_tokens"].sum.data_points[0].as_double = 4.0


def set_huge_count(_: Any, m: Any) -> None:
    point = m["ttft"].histogram.data_points[0]
    point.bucket_counts[0], point.count = 1 << 63, (1 << 63) + 7


def set_counts_that_overflow(_: Any, m: Any) -> None:
    point = m["ttft"].histogram.data_points[0]
    del point.bucket_counts[:]
    point.bucket_counts.extend([(1 << 64) - 1] * 21)
    point.count = (1 << 64) - 21


def set_start_after_end(_: Any, m: Any) -> None:
    point = m["service"].sum.data_points[0]
    point.start_time_unix_nano, point.time_unix_nano = (
        point.time_unix_nano,
        point.start_time_unix_nano,
    )


def set_no_end(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].time_unix_nano = 0


def set_year_2262(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].start_time_unix_nano = (1 << 63) - 1


def set_last_instant(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].start_time_unix_nano = (1 << 64) - 1


def set_tenant_twice(_: Any, m: Any) -> None:
    point = m["service"].sum.data_points[0]
    point.attributes.add().CopyFrom(point.attributes[0])


def set_numeric_tenant(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].attributes[0].value.int_value = 7


def set_long_tenant(_: Any, m: Any) -> None:
    m["service"].sum.data_points[0].attributes[0].value.string_value = "x" * 10_000_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_nan, "nan: expected a finite number"),
        (set_infinite, "inf: expected a finite number"),
        (set_negative, "a delta sum cannot be negative"),
        (set_fraction, "1.5: expected an integer"),
        (set_cumulative, "not delta"),
        (set_gauge, "came as gauge: expected sum"),
        (set_no_tenant, "a point without tenantscope.tenant"),
        (set_other_interval, "in a bucket of 60.0 s"),
        (set_no_start, "not an instant"),
        (set_few_buckets, "5 buckets: expected 21"),
        (set_other_bounds, "bounds other than the vocabulary's"),
        (set_wrong_count, "buckets add up to 8, the count says 9"),
        (set_no_value, "a point without a value"),
        (set_minus_infinite, "-inf: expected a finite number"),
        (set_2_63, "9.223372036854776e+18: expected an integer"),
        (set_whole_double, "4.0: expected an integer"),
        (set_huge_count, "the count says"),
        (set_counts_that_overflow, "the count says"),
        (set_start_after_end, "in a bucket of 60.0 s"),
        (set_no_end, "in a bucket of 60.0 s"),
        (set_year_2262, "not an instant"),
        (set_last_instant, "not an instant"),
        (set_tenant_twice, "stands there twice"),
        (set_numeric_tenant, "a point without tenantscope.tenant"),
        (set_long_tenant, "a name of 10000000 characters: expected at most 1024"),
    ],
)
def test_a_malformed_point_is_counted_and_sinks_nothing_else(change: Any, reason: str) -> None:
    decoded = spoilt(change)
    assert decoded.refused == 1
    assert reason in decoded.reasons[0]
    rows = {r.tenant: r for r in decoded.rows("tenant_minute")}
    assert rows["b"].output_tokens == 9
    survivors = [rows["a"].service, rows["a"].prompt_tokens, rows["a"].ttft]
    assert survivors.count(None) == 1


@pytest.mark.parametrize("missing", ["engine", "run_id", "pool", "emitter", "sealed", "seq"])
def test_points_of_a_resource_that_says_not_whose_they_are_are_all_refused(missing: str) -> None:
    def drop(resource: Any, _: Any) -> None:
        kept = [a for a in resource.resource.attributes if a.key != f"tenantscope.{missing}"]
        del resource.resource.attributes[:]
        resource.resource.attributes.extend(kept)

    decoded = spoilt(drop)
    assert (decoded.refused, decoded.batches) == (4, ())
    assert f"tenantscope.{missing} is None" in decoded.reasons[0]


def test_bytes_that_are_no_request_raise() -> None:
    for data in (b"\xff\xff\xff", b"not protobuf at all", b"\x0a\xff"):
        with pytest.raises(MalformedBatch, match=f"{len(data)} bytes"):
            decode_metrics(data)
        with pytest.raises(MalformedBatch, match=f"{len(data)} bytes"):
            decode_logs(data)


@given(cut=st.integers(0, 400), noise=st.binary(max_size=6))
def test_damaged_bytes_never_raise_anything_but_malformed(cut: int, noise: bytes) -> None:
    metrics, logs = encode(batch(minute("a", service=1.0, ttft=HISTOGRAM), request(1), event(1)))
    assert metrics is not None
    assert logs is not None
    for decode, data in ((decode_metrics, metrics), (decode_logs, logs)):
        at = cut % len(data)
        damaged = data[:at] + noise + data[at + len(noise) :]
        try:
            decoded = decode(damaged)
        except MalformedBatch:
            continue
        assert decoded.refused >= 0


def spoilt_log(change: Any) -> Decoded:
    _, logs = encode(batch(request(1, ttft_s=0.5), request(2)))
    assert logs is not None
    parsed = ExportLogsServiceRequest.FromString(logs)
    record = parsed.resource_logs[0].scope_logs[0].log_records[0]
    change(record, {a.key.rpartition(".")[2]: a for a in record.attributes})
    return decode_logs(parsed.SerializeToString())


def text_ttft(_: Any, a: Any) -> None:
    a["ttft_s"].value.string_value = "0.5"


def nan_ttft(_: Any, a: Any) -> None:
    a["ttft_s"].value.double_value = float("nan")


def far_arrival(_: Any, a: Any) -> None:
    a["arrived"].value.int_value = 1 << 62


def other_attribute(record: Any, _: Any) -> None:
    record.attributes.add(key="tenantscope.request.mood").value.string_value = "good"


def twice(record: Any, a: Any) -> None:
    record.attributes.add().CopyFrom(a["ttft_s"])


def other_engine(record: Any, _: Any) -> None:
    record.attributes.add(key="tenantscope.request.engine").value.string_value = "e2"


def long_text(_: Any, a: Any) -> None:
    a["outcome"].value.string_value = "x" * 70_000


def no_outcome(_: Any, a: Any) -> None:
    a["outcome"].key = "tenantscope.request.adapter"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_attribute, "'tenantscope.request.mood' is not in the vocabulary"),
        (twice, "stands there twice"),
        (other_engine, "tenantscope.request.engine stands there twice"),
        (long_text, "70000 characters: expected at most 65536"),
        (text_ttft, "'0.5': expected DOUBLE"),
        (nan_ttft, "nan: expected DOUBLE"),
        (far_arrival, "expected TIMESTAMP"),
        (no_outcome, "without tenantscope.request.outcome"),
    ],
)
def test_a_malformed_record_is_counted_and_sinks_nothing_else(change: Any, reason: str) -> None:
    decoded = spoilt_log(change)
    assert decoded.refused == 1
    assert reason in decoded.reasons[0]
    assert [r.request_id for r in decoded.rows("request")] == ["q2"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_data(name: str) -> None:
    rows = [minute(name, prompt_tokens=1), charge(name, name, 2.0)]
    metrics, logs = encode(batch(*rows, request(1, tenant=name), RUN_ROW))
    assert metrics is not None
    assert logs is not None
    assert same_rows([r for b in decode_metrics(metrics).batches for r in b.minutes], rows)
    assert decode_logs(logs).rows("request")[0].tenant == name


def test_what_rounding_leaves_below_zero_is_zero_and_a_negative_sum_is_still_refused() -> None:
    def arrives(stall_s: float) -> Decoded:
        metrics, _ = encode(batch(minute("a", stall_s=stall_s, output_tokens=3)))
        assert metrics is not None
        return decode_metrics(metrics)

    assert arrives(-2e-19).rows("tenant_minute") == [minute("a", stall_s=0.0, output_tokens=3)]
    assert arrives(-2e-19).refused == 0
    assert arrives(-0.001).refused == 1


def test_the_largest_whole_number_is_kept_and_minus_nothing_is_nothing() -> None:
    metrics, _ = encode(batch(minute("a", prompt_tokens=(1 << 63) - 1, service=-0.0)))
    assert metrics is not None
    [row] = decode_metrics(metrics).rows("tenant_minute")
    assert (row.prompt_tokens, repr(row.service)) == ((1 << 63) - 1, "0.0")


def test_a_request_of_too_many_tenants_keeps_the_first_and_says_how_many_it_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ROWS_A_REQUEST, "tenant_minute", 3)
    metrics, _ = encode(batch(*(minute(f"t{i}", prompt_tokens=i, finished=1) for i in range(5))))
    assert metrics is not None
    decoded = decode_metrics(metrics)
    assert [r.tenant for r in decoded.rows("tenant_minute")] == ["t0", "t1", "t2"]
    assert (decoded.accepted, decoded.refused) == (6, 4)
    assert "more than 3 rows in a request" in decoded.reasons[0]


def test_text_that_is_no_utf_8_is_no_request() -> None:
    metrics, _ = encode(batch(minute("a-tenant", prompt_tokens=1)))
    assert metrics is not None
    with pytest.raises(MalformedBatch, match="are not an ExportMetricsServiceRequest"):
        decode_metrics(metrics.replace(b"a-tenant", b"a-ten\xff\xfet"))
