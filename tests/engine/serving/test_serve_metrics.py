"""A real `serve` with a metrics port: what callers got is what Prometheus reads, to the token."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from engine.config import Limits, Settings, Slo, Tenant
from engine.serving.api.auth import digest_of
from engine.serving.processes import ServeProcesses
from telemetry.source import open_source

SETTINGS = Settings(
    engine="measured",
    model="synthetic",
    dtype="float32",
    bucket_s=10.0,
    provisional_s=0.2,
    limits=Limits(slots=4, step_tokens=64, max_context=2048, pool_bytes=16 << 20),
    tenants=(
        Tenant(name="alice", slo=Slo(ttft_s=60.0), key_sha256=(digest_of("ts-a"),)),
        Tenant(name="bob", rpm=1, key_sha256=(digest_of("ts-b"),)),
    ),
)
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}


def ask(processes: ServeProcesses, key: str) -> httpx.Response:
    return httpx.post(
        f"{processes.url}/v1/completions",
        json={"model": "synthetic", "prompt": "one two", "max_tokens": 12, "ignore_eos": True},
        headers={"authorization": f"Bearer {key}"},
        timeout=60,
    )


def test_callers_store_and_prometheus_agree_to_the_token(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ServeProcesses(SETTINGS, tmp_path / "store", metrics_port=port) as processes:
        url = processes.metrics_url
        assert url is not None
        answers = [ask(processes, key) for key in ("ts-a", "ts-a", "ts-b", "ts-b")]
        assert [a.status_code for a in answers] == [200, 200, 200, 429]
        asked = {a.json()["id"] for a in answers[:2]}
        for _ in range(2000):
            families = list(
                text_string_to_metric_families(httpx.get(url, headers=OPENMETRICS, timeout=30).text)
            )
            samples = [s for f in families for s in f.samples]
            got = {
                (s.name.removeprefix("tenantscope_tenant_"), s.labels["tenant"]): s.value
                for s in samples
                if "tenant" in s.labels and "le" not in s.labels
            }
            exemplars = {s.exemplar.labels["request_id"] for s in samples if s.exemplar}
            told = [got.get((f"{c}_total", "bob")) for c in ("finished", "offered_requests")]
            if told == [1, 2] and exemplars & asked:
                break
        with_source = open_source(tmp_path / "store")
        stored = {
            r["tenant"]: r["output_tokens"]
            for r in with_source.query("token_totals", start=0.0, end=float("inf")).dicts()
        }
        with_source.close()
    assert stored == {"alice": 24, "bob": 12}
    assert {t: got["output_tokens_total", t] for t in stored} == stored
    assert got["offered_requests_total", "alice"] == got["slo_met_total", "alice"] == 2
    assert got["rejected_rpm_requests_total", "bob"] == 1
    assert got["output_tokens_total", "other"] == 0
    assert exemplars & asked  # the latest request of each bucket stands for it
