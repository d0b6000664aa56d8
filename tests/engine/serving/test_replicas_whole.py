"""Two replicas as processes of their own: one is killed, and who was not answered yet is answered.

On the synthetic model, over HTTP.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from engine.config import Limits, PoolSpec, Settings, Tenant
from engine.serving.api.auth import digest_of
from engine.serving.client import WorkerClient
from engine.serving.processes import ServeProcesses
from engine.serving.workers import places
from telemetry.source import open_source

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("ladder")]

LIMITS = Limits(slots=4, step_tokens=64, max_context=2048, pool_bytes=16 << 20)
SETTINGS = Settings(
    engine="replicas",
    model="synthetic",
    dtype="float32",
    bucket_s=10.0,
    provisional_s=0.5,
    limits=LIMITS,
    pools=(PoolSpec("shared", 2, LIMITS),),
    tenants=(Tenant("many", tpm=1_000_000, key_sha256=(digest_of("ts-many"),)),),
)
TOKENS = 1500


def ask(url: str) -> httpx.Response:
    body = {
        "model": "synthetic", "prompt": "one two", "max_tokens": TOKENS, "temperature": 0,
        "ignore_eos": True,
    }  # fmt: skip
    return httpx.post(
        f"{url}/v1/completions",
        json=body,
        headers={"authorization": "Bearer ts-many"},
        timeout=120,
    )


def test_a_killed_replicas_whole_answers_come_from_the_other_and_are_charged_once(
    tmp_path: Path,
) -> None:
    with (
        ServeProcesses(SETTINGS, tmp_path / "store") as processes,
        ThreadPoolExecutor(2) as callers,
    ):
        undisturbed = ask(processes.url).json()["choices"][0]["text"]
        workers = processes._workers
        assert workers is not None
        answers = [callers.submit(ask, processes.url) for _ in range(2)]
        for place in places(SETTINGS, processes.runtime_dir):
            with WorkerClient(place.address) as worker:
                while not worker.status().running:
                    assert not any(a.done() for a in answers), "one on each, under way"
        os.kill(workers.keepers[1].child.pid, signal.SIGKILL)
        told = [a.result(120) for a in answers]
        usage = httpx.get(
            f"{processes.url}/v1/usage", headers={"authorization": "Bearer ts-many"}
        ).json()
    assert [r.status_code for r in told] == [200, 200], [r.text for r in told]
    assert [r.json()["choices"][0]["text"] for r in told] == [undisturbed] * 2
    spent = [r.json()["usage"]["total_tokens"] for r in told]
    assert usage["quota"]["tokens_per_minute"]["reserved"] == 0
    source = open_source(tmp_path / "store")
    try:
        span = 0.0, processes.clock.wall_s + 3600
        rows = [r for r in source.read("request", *span) if r.outcome == "finished"]
        faults = [e.detail for e in source.read("event", *span) if e.kind == "fault"]
    finally:
        source.close()
    assert len(rows) == 3
    assert sum(r.prompt_tokens + r.output_tokens for r in rows) == sum(spent) + spent[0]
    assert any("0 open requests failed, 1 of which nothing had been said" in d for d in faults)
