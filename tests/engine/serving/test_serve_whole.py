"""The three processes together, on the synthetic model: what was answered is what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.config import Limits, Settings, Tenant
from engine.serving.api.auth import digest_of
from engine.serving.client import WorkerClient
from engine.serving.processes import ServeProcesses
from telemetry.source import open_source

SETTINGS = Settings(
    engine="whole",
    model="synthetic",
    dtype="float32",
    policy="fcfs",
    bucket_s=10.0,
    provisional_s=0.5,
    limits=Limits(slots=4, step_tokens=64, max_context=2048, pool_bytes=16 << 20),
    tenants=(
        Tenant(name="alice", key_sha256=(digest_of("ts-a"),)),
        Tenant(name="carol", concurrency=1, key_sha256=(digest_of("ts-c"),)),
        Tenant(name="bob", rpm=2, key_sha256=(digest_of("ts-b"),)),
    ),
)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ServeProcesses]:
    heard: list[str] = []
    with ServeProcesses(SETTINGS, tmp_path / "store", progress=heard.append) as running:
        yield running
    assert not [line for line in heard if "cleanly" in line]


def ask(processes: ServeProcesses, key: str = "ts-a", **body: Any) -> httpx.Response:
    asked = {"model": "synthetic", "prompt": "one two", "max_tokens": 12, "temperature": 0}
    return httpx.post(
        f"{processes.url}/v1/completions",
        json=asked | {"ignore_eos": True} | body,
        headers={"authorization": f"Bearer {key}"},
        timeout=60,
    )


def streaming(processes: ServeProcesses, key: str) -> AbstractContextManager[httpx.Response]:
    return httpx.stream(
        "POST",
        f"{processes.url}/v1/completions",
        json={
            "model": "synthetic",
            "prompt": "go",
            "max_tokens": 2000,  # far more than are made before the caller acts
            "stream": True,
            "ignore_eos": True,
        },
        headers={"authorization": f"Bearer {key}"},
        timeout=60,
    )


def leave_early(processes: ServeProcesses) -> None:
    """Carol hangs up in mid-stream; her one slot is free again once the pool has let go."""
    with streaming(processes, "ts-c") as response:
        assert next(response.iter_lines()).startswith("data: ")
    for _ in range(2000):
        if ask(processes, "ts-c").status_code == 200:
            return
    raise AssertionError("the request of a caller who left still holds her slot")


def test_what_callers_got_is_what_the_store_holds(
    processes: ServeProcesses, tmp_path: Path
) -> None:
    whole = ask(processes).json()
    streamed = ask(processes, stream=True)
    parts = [json.loads(line[6:]) for line in streamed.text.split("\n\n")[:-2]]
    text = whole["choices"][0]["text"]
    assert "".join(p["choices"][0]["text"] for p in parts) == text
    assert whole["usage"]["completion_tokens"] == 12
    by_bob = [ask(processes, "ts-b").status_code for _ in range(3)]
    assert by_bob == [200, 200, 429]
    leave_early(processes)
    with WorkerClient(processes.worker_address) as client:
        assert client.set_policy("vtc", who="test", why="to see it").previous == "fcfs"
        in_worker = client.status().output_tokens
    processes.stop()

    with_source = open_source(tmp_path / "store")
    try:
        start, end = 0.0, processes.clock.wall_s + 3600
        rows = with_source.read("tenant_minute", start, end)
        requests = with_source.read("request", start, end)
        policies = with_source.read("policy", start, end)
    finally:
        with_source.close()
    assert {r.run_id for r in (*rows, *requests)} == {processes.run_id}

    def total(column: str, tenant: str) -> int:
        return sum(getattr(r, column) or 0 for r in rows if r.tenant == tenant)

    assert total("output_tokens", "alice") == total("output_tokens", "bob") == 24
    assert (total("offered_requests", "alice"), total("admitted_requests", "alice")) == (2, 2)
    assert total("offered_requests", "bob") == 3
    assert total("admitted_requests", "bob") == 2
    assert total("rejected_rpm_requests", "bob") == 1
    assert sum(r.output_tokens or 0 for r in rows) == in_worker
    outcomes = sorted((r.tenant, r.outcome) for r in requests if r.tenant != "carol")
    assert outcomes == [
        ("alice", "finished"),
        ("alice", "finished"),
        ("bob", "finished"),
        ("bob", "finished"),
        ("bob", "rejected"),
    ]
    carols = {r.outcome for r in requests if r.tenant == "carol"}
    assert {"aborted", "finished"} <= carols <= {"aborted", "finished", "rejected"}
    by_id = {r.request_id: r for r in requests}
    assert by_id[whole["id"]].output_tokens == 12
    assert [p.policy for p in sorted(policies, key=lambda p: p.version)] == ["fcfs", "vtc"]
