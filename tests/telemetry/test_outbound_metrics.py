"""What third parties' metrics say: the same totals as Prometheus, or each sealed bucket once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from telemetry.conventions import LATENCY_BOUNDS_S, Emitter, Kind
from telemetry.otlp import encode
from telemetry.outbound.delta import Deltas
from telemetry.outbound.metrics import cumulative
from telemetry.outbound.queue import Payload
from telemetry.prometheus.counting import Counting
from telemetry.prometheus.naming import MOST_NAMES
from telemetry.records import EngineRun
from telemetry.service.client import StoreClient
from telemetry.tables import TABLES
from tests.telemetry.delivered import (
    RUN,
    T0,
    any_rows,
    batch,
    charge,
    engine_minute,
    minute,
    request,
)
from tests.telemetry.otlp_collector import collecting
from tests.telemetry.sending import counting

ROOT = Path(__file__).parents[2]
COUNTS = tuple(range(len(LATENCY_BOUNDS_S) + 1))
NO_TRACE = lambda *_: None  # noqa: E731
Series = tuple[Any, ...]


def read(payloads: Iterable[Payload]) -> dict[Series, Any]:
    """(name, engine, attributes) -> its point; a series twice fails."""
    found: dict[Series, Any] = {}
    for payload in payloads:
        request = ExportMetricsServiceRequest.FromString(payload.data)
        points = 0
        for resource in request.resource_metrics:
            who = {a.key: a.value.string_value for a in resource.resource.attributes}
            assert who["service.name"] == "tenantscope"
            for metric in resource.scope_metrics[0].metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                for point in data.data_points:
                    labels = sorted((a.key, a.value.string_value) for a in point.attributes)
                    run = who.get("tenantscope.run_id", "")
                    key = (metric.name, who["service.instance.id"], run, *labels)
                    assert key not in found, key
                    found[key] = point
                    points += 1
        assert points == payload.items
    return found


def of_tenant(column: str, tenant: str, run: str = "") -> Series:
    return (f"tenantscope.tenant_minute.{column}", "e1", run, ("tenantscope.tenant", tenant))


def test_totals_are_what_was_delivered_with_names_units_and_meanings():
    heard = counting("a")
    heard.hear(
        [
            batch(
                minute("a", output_tokens=7, wait_kv_s=1.5, kv_bytes_avg=64.0, ttft=COUNTS),
                minute("stranger", output_tokens=4),
                engine_minute(steps=9),
                charge("b", "a", 2.5),
            )
        ],
        T0 + 60,
    )
    [payload] = cumulative(heard, T0 + 60, NO_TRACE)
    found = read([payload])
    assert found[of_tenant("output_tokens", "a")].as_int == 7
    assert found[of_tenant("output_tokens", "other")].as_int == 4
    assert found[of_tenant("wait_kv_s", "a")].as_double == 1.5
    assert found[of_tenant("kv_bytes_avg", "a")].as_double == 64.0
    assert found[of_tenant("ttft", "a")].bucket_counts == list(COUNTS)
    assert found["tenantscope.engine_minute.steps", "e1", ""].as_int == 9
    held = (("holder", "a"), ("holder_kind", "tenant"), ("reason", "kv"))
    key = tuple((f"tenantscope.{name}", value) for name, value in held)
    assert found["tenantscope.interference_minute.charged_s", "e1", "", *key].as_double == 2.5
    sent = ExportMetricsServiceRequest.FromString(payload.data)
    metrics = {m.name: m for m in sent.resource_metrics[0].scope_metrics[0].metrics}
    for column in TABLES["tenant_minute"].columns:
        metric = metrics.get(f"tenantscope.tenant_minute.{column.name}")
        if metric is None:
            continue
        assert (metric.unit, metric.description) == (column.unit, column.meaning)
        if column.kind is Kind.SUM:
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == 2


@given(st.lists(st.tuples(any_rows(TABLES["tenant_minute"]), st.booleans()), max_size=5))
@settings(max_examples=15, deadline=None)
def test_whatever_is_delivered_totals_never_decrease_and_their_start_stands(
    deliveries: list[Any],
):
    heard = counting("a", "self")
    before: dict[Series, Any] = {}
    for seq, (rows, sealed) in enumerate(deliveries):
        heard.hear([batch(*rows, sealed=sealed, seq=seq)], T0 + seq)
        after = read(cumulative(heard, T0 + seq, NO_TRACE))
        for key, point in before.items():
            if hasattr(point, "bucket_counts"):
                pairs = zip(point.bucket_counts, after[key].bucket_counts, strict=True)
                assert all(old <= new for old, new in pairs)
            elif point.start_time_unix_nano:  # a sum; a gauge has no start
                assert point.as_int <= after[key].as_int
                assert point.as_double <= after[key].as_double
        counted = {k: p for k, p in after.items() if p.start_time_unix_nano}
        assert {p.start_time_unix_nano for p in counted.values()} <= {int(T0) * 10**9}
        before = counted


def test_another_process_begins_anew_with_another_start():
    first, second = counting("a"), counting("a", at=T0 + 100)
    for heard in (first, second):
        heard.hear([batch(minute("a", T0 + 60, output_tokens=7))], T0 + 100)
    starts = [
        read(cumulative(h, T0 + 100, NO_TRACE))[of_tenant("output_tokens", "a")]
        for h in (first, second)
    ]
    assert starts[0].start_time_unix_nano < starts[1].start_time_unix_nano


def test_however_many_tenants_there_are_the_points_are_bounded():
    heard = counting(*(f"t{n}" for n in range(2000)))
    heard.hear(
        [batch(*(minute(f"t{n}", output_tokens=1, service=float(n)) for n in range(2000)))], T0
    )
    found = read(cumulative(heard, T0, NO_TRACE))
    assert sum(k[0].endswith(".output_tokens") for k in found) <= MOST_NAMES + 1


def test_an_exemplar_names_its_request_and_the_trace_there_is_to_look_at():
    heard = counting("a")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    counts = tuple(int(i in (4, 8)) for i in range(len(COUNTS)))
    heard.hear(
        [
            batch(
                minute("a", ttft=counts),
                request(1, ttft_s=0.3, first_token=T0 + 1, ended=T0 + 2, trace_id=trace),
                request(2, ttft_s=0.015, first_token=T0 + 1, ended=T0 + 2),
            )
        ],
        T0,
    )
    kept = {("e1", "q2"): ("ab" * 16, "cd" * 8)}
    found = read(cumulative(heard, T0, lambda e, r: kept.get((e, r))))
    quick, slow = found[of_tenant("ttft", "a")].exemplars
    assert quick.trace_id.hex() == "ab" * 16
    assert quick.span_id.hex() == "cd" * 8
    assert slow.trace_id.hex() == trace
    assert slow.span_id == b""
    assert [e.filtered_attributes[0].value.string_value for e in (quick, slow)] == ["q2", "q1"]
    assert slow.as_double == 0.3


# --- deltas ---


def deltas(heard: Counting) -> Deltas:
    return Deltas(heard, NO_TRACE)


def test_a_sealed_bucket_is_passed_on_once_with_its_own_bounds():
    heard = counting("a")
    passing = deltas(heard)
    still_open = batch(minute("a", output_tokens=5), sealed=False)
    sealed = batch(
        minute("a", output_tokens=7, ttft=COUNTS, waiting_max=3.0),
        minute("b", output_tokens=2, waiting_max=9.0, quota_rpm_level=1.0),
        minute("c", output_tokens=4, waiting_max=1.0),
        engine_minute(steps=9),
        charge("b", "a", 2.0),
        charge("c", "a", 0.5),
        seq=2,
    )
    assert passing.take(still_open, T0) == []
    found = read(passing.take(sealed, T0 + 60))
    assert passing.take(sealed, T0 + 61) == []
    mine = found[of_tenant("output_tokens", "a", "r1")]
    assert mine.as_int == 7
    assert mine.start_time_unix_nano == int(T0) * 10**9
    assert mine.time_unix_nano == int(T0 + 60) * 10**9
    assert found[of_tenant("output_tokens", "other", "r1")].as_int == 6
    assert found[of_tenant("waiting_max", "other", "r1")].as_double == 9.0
    assert of_tenant("quota_rpm_level", "other", "r1") not in found  # of a crowd it says nothing
    [held] = [p for k, p in found.items() if k[0].endswith("charged_s")]
    assert held.as_double == 2.5


def test_parts_of_a_bucket_that_come_apart_are_passed_on_apart():
    passing = deltas(counting("a", "b"))
    first = read(passing.take(batch(minute("a", output_tokens=7)), T0))
    both = batch(minute("a", output_tokens=7), minute("b", output_tokens=1), seq=2)
    second = read(passing.take(both, T0))
    assert [k[3][1] for k in first] == ["a"]
    assert [k[3][1] for k in second] == ["b"]


def test_fronts_and_workers_rows_of_one_bucket_are_both_passed_on():
    passing = deltas(counting("a"))
    worker = read(passing.take(batch(minute("a", output_tokens=7)), T0))
    front = read(passing.take(batch(minute("a", offered_requests=2), emitter=Emitter.FRONT), T0))
    assert of_tenant("output_tokens", "a", "r1") in worker
    assert of_tenant("offered_requests", "a", "r1") in front


def test_what_is_of_long_ago_is_not_passed_on_and_counted_and_nothing_is_kept_for_ever():
    passing = deltas(counting("a"))
    assert passing.take(batch(minute("a", T0 - 7200, output_tokens=1)), T0) == []
    assert passing.late == 1
    passing.take(batch(minute("a", output_tokens=1)), T0)
    passing.take(batch(minute("a", T0 + 7200, output_tokens=1)), T0 + 7200)
    assert len(passing._seen) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("abcxyz"), st.integers(0, 2), st.integers(0, 100)), max_size=30
    ),
    st.randoms(use_true_random=False),
)
def test_however_sealed_rows_are_batched_and_repeated_the_deltas_add_up(rows: Any, random: Any):
    truth = {(name, bucket): tokens for name, bucket, tokens in rows}
    made = [minute(n, T0 + 60 * b, output_tokens=v) for (n, b), v in truth.items()]
    deliveries = []
    for _ in range(3):
        random.shuffle(made)
        cut = random.randint(0, len(made))
        deliveries += [batch(*made[:cut]), batch(*made[cut:])]
    passing = deltas(counting("a", "b", "c"))
    total = 0
    for one in deliveries:
        for payload in passing.take(one, T0):
            total += sum(
                p.as_int for k, p in read([payload]).items() if k[0].endswith(".output_tokens")
            )
    assert total == sum(truth.values())


# --- a store process ---


class Process:
    """A store process that sends to a collector, and has been given a request and a minute."""

    def __init__(self, folder: Path, url: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "telemetry.service", "--store", str(folder / "store"),
             "--listen", "127.0.0.1:0", "--otlp-to", url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self.popen.stdout is not None
        client = StoreClient(self.popen.stdout.readline().split()[1])
        start = float(int(time.time()) // 60 * 60)
        config = json.dumps({"tenants": [{"name": "a"}]})
        run = EngineRun(started=start, model="tiny", config=config, **RUN)
        failed = request(1, start, outcome="failed", ended=start + 1)
        metrics, logs = encode(batch(minute("a", start, output_tokens=7), run, failed))
        client.export(None, logs)
        client.export(metrics, None)
        client.close()

    def end(self) -> tuple[float, str]:
        """Seconds that it took, and what it said."""
        began = time.monotonic()
        os.kill(self.popen.pid, signal.SIGTERM)
        _, said = self.popen.communicate(timeout=20)
        assert self.popen.returncode == 0
        return time.monotonic() - began, said


def test_a_store_process_sends_what_it_commits_and_at_its_end_the_totals(tmp_path: Path):
    with collecting() as collector:
        process = Process(tmp_path, collector.url)
        try:
            collector.wait(lambda: bool(collector.spans()))
            took_s, said = process.end()
        finally:
            process.popen.kill()
        found = read([Payload(m.SerializeToString(), points_in(m)) for m in collector.metrics[-1:]])
    assert took_s < 5.0
    assert found[of_tenant("output_tokens", "a")].as_int == 7
    assert f"metrics and traces sent to {collector.url}" in said


def test_a_store_process_ends_in_time_though_a_third_party_hangs(tmp_path: Path):
    with collecting() as collector:
        collector.answers(collector.hangs)
        process = Process(tmp_path, collector.url)
        try:
            collector.wait(lambda: collector.calls >= 1)
            took_s, said = process.end()
        finally:
            process.popen.kill()
    assert took_s < 5.0
    assert "1 spans were not sent before the end" in said


def points_in(request: ExportMetricsServiceRequest) -> int:
    return sum(
        len(getattr(m, m.WhichOneof("data")).data_points)
        for r in request.resource_metrics
        for s in r.scope_metrics
        for m in s.metrics
    )
