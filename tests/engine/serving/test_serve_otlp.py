"""A real `serve` that feeds a third party: the client's trace, whole, and the totals at the end."""

from __future__ import annotations

from pathlib import Path

import httpx
from test_serve_metrics import SETTINGS, ask

from engine.serving.processes import ServeProcesses
from tests.telemetry.otlp_collector import Collector, collecting

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CANARY = "canary-4711"


def output_tokens(collector: Collector) -> dict[str, int]:
    """By tenant, as last said."""
    return {
        point.attributes[0].value.string_value: point.as_int
        for sent in collector.metrics
        for resource in sent.resource_metrics
        for metric in resource.scope_metrics[0].metrics
        if metric.name == "tenantscope.tenant_minute.output_tokens"
        for point in metric.sum.data_points
    }


def test_a_third_party_gets_the_clients_trace_the_rejection_and_the_totals(tmp_path: Path) -> None:
    with collecting() as collector:
        with ServeProcesses(SETTINGS, tmp_path / "store", otlp_to=collector.url) as processes:
            answer = httpx.post(
                f"{processes.url}/v1/completions",
                json={"model": "synthetic", "prompt": CANARY, "max_tokens": 5, "ignore_eos": True},
                headers={
                    "authorization": "Bearer ts-a",
                    "traceparent": f"00-{TRACE}-{SPAN}-01",
                    "x-note": CANARY,
                },
                timeout=60,
            )
            assert answer.status_code == 200
            assert [ask(processes, "ts-b").status_code for _ in range(2)] == [200, 429]
            collector.wait(
                lambda: len([s for s in collector.spans() if s.name == "request"]) >= 2, 30.0
            )
        spans = collector.spans()
        [mine] = [s for s in spans if s.parent_span_id.hex() == SPAN]
        parts = [s for s in spans if s.parent_span_id == mine.span_id]
        said = {a.key: a.value for a in mine.attributes}
        outcomes = {
            a.value.string_value
            for s in spans
            for a in s.attributes
            if a.key == "tenantscope.outcome"
        }
    assert mine.trace_id.hex() == TRACE
    assert said["tenantscope.request_id"].string_value == answer.json()["id"]
    assert said["gen_ai.request.model"].string_value.startswith("synthetic")
    assert said["gen_ai.usage.output_tokens"].int_value == 5
    assert {"front", "prefill", "decode"} <= {s.name for s in parts}
    whole = mine.end_time_unix_nano - mine.start_time_unix_nano
    summed = sum(s.end_time_unix_nano - s.start_time_unix_nano for s in parts)
    assert abs(whole - summed) <= 10_000
    assert {"finished", "rejected"} <= outcomes
    assert output_tokens(collector) == {"alice": 5, "bob": 12, "other": 0}
    for sent in (*collector.traces, *collector.metrics):
        assert CANARY.encode() not in sent.SerializeToString()
