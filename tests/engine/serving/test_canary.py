"""A secret put wherever a caller or an operator can put one is found in nothing that is kept.

A real `serve` with its store, a third party's OTLP receiver, its logs, and reports on it all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from engine.config import Limits, Settings, Tenant
from engine.model.config import model_config
from engine.model.made_adapters import make_adapter
from engine.serving.api.auth import digest_of
from engine.serving.processes import ServeProcesses
from telemetry.source import open_source
from telemetry.tables import TABLES
from tests.telemetry.otlp_collector import collecting

CANARY = "CANARY-9b41d7"
PLACE = "PLACE-77c2e1"  # what an operator writes: paths, and what is in an adapter's files
KEY = f"ts-{CANARY}-key"


def settings(folder: Path) -> Settings:
    """Secrets in an adapter's path, in the files of one that is broken, and in a key."""
    good = make_adapter(folder / PLACE / "good", model_config("synthetic"), 4)
    broken = folder / PLACE / "broken"
    broken.mkdir(parents=True)
    (broken / "adapter_config.json").write_text(json.dumps({"r": PLACE, "peft_type": PLACE}))
    (broken / "adapter_model.safetensors").write_bytes(PLACE.encode() * 10)
    return Settings(
        engine="e",
        model="synthetic",
        dtype="float32",
        bucket_s=5.0,
        provisional_s=0.3,
        limits=Limits(slots=4, step_tokens=64, max_context=1024, pool_bytes=16 << 20),
        tenants=(
            Tenant(name="alice", rpm=12, adapters=("good", "broken"), key_sha256=(digest_of(KEY),)),
        ),
        adapters=(("good", str(good)), ("broken", str(broken))),
    )


def call(url: str) -> list[int]:
    """The canary in every place a caller fills, in what is answered and in what is refused."""
    sound = {"model": "synthetic", "max_tokens": 5, "ignore_eos": True}
    said = {"role": "user", "content": CANARY, "name": CANARY}
    bodies: list[tuple[str, Any]] = [
        ("completions", sound | {"prompt": CANARY, "user": CANARY, "stop": CANARY}),
        ("completions", sound | {"prompt": CANARY, "stream": True, "cache_salt": CANARY}),
        ("completions", sound | {"prompt": CANARY, "model": "good", "metadata": {"k": CANARY}}),
        ("completions", sound | {"prompt": CANARY, "model": "broken"}),
        ("completions", sound | {"prompt": CANARY, "model": CANARY}),
        ("completions", sound | {"prompt": CANARY, CANARY: CANARY}),
        ("completions", sound | {"prompt": CANARY, "seed": CANARY}),
        ("completions", sound | {"prompt": CANARY, "max_tokens": 5000}),
        ("chat/completions", sound | {"messages": [said], "stop": [CANARY]}),
        ("chat/completions", sound | {"messages": [said | {"role": CANARY}]}),
        (f"{CANARY}", sound),
    ]
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-request-id": CANARY,
        "x-secret": CANARY,
        "user-agent": CANARY,
        "traceparent": CANARY,
        "cookie": CANARY,
    }
    statuses = []
    with httpx.Client(base_url=url, timeout=60, params={"key": CANARY}) as client:
        for path, body in bodies:
            statuses.append(client.post(f"/v1/{path}", json=body, headers=headers).status_code)
        client.post("/v1/completions", content=CANARY.encode(), headers=headers)
        client.get(f"/v1/models/{CANARY}", headers=headers)
        client.get("/v1/usage", headers=headers)
        client.get("/v1/models", headers={"authorization": f"Bearer {CANARY}"})
        for _ in range(25):
            statuses.append(
                client.post("/v1/completions", json=bodies[0][1], headers=headers).status_code
            )
    return statuses


def reports(store: Path) -> dict[str, str]:
    """Every format, by the command a person types. A quiet window is a report too."""
    made = {}
    for form in ("term", "md", "html", "json"):
        command = ["postmortem", "report", "--store", str(store), "--format", form]
        code = "import sys; from console.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *command], capture_output=True, text=True
        )
        assert done.returncode in (0, 1), done.stderr
        assert done.stdout, done.stderr
        made[form] = done.stdout + done.stderr
    return made


def test_a_secret_is_found_in_no_store_no_export_no_log_and_no_report(tmp_path: Path) -> None:
    heard: list[str] = []
    store = tmp_path / "store"
    chosen = settings(tmp_path / "elsewhere")
    with collecting() as collector:
        with ServeProcesses(
            chosen,
            store,
            otlp_to=collector.url,
            progress=heard.append,
            on_line=lambda name, line: heard.append(line),
        ) as processes:
            statuses = call(processes.url)
            collector.wait(lambda: bool(collector.spans()), 30.0)
        exported = [m.SerializeToString() for m in (*collector.traces, *collector.metrics)]
    assert set(statuses) >= {200, 400, 404, 429, 500}, "every kind of answer was given"
    secrets = (CANARY.encode(), PLACE.encode())

    def clean(where: str, data: bytes) -> None:
        assert not [s for s in secrets if s in data], where

    assert exported
    for message in exported:
        clean("OTLP", message)
    files = [p for p in store.rglob("*") if p.is_file()]
    assert files
    for path in files:
        clean(path.name, path.read_bytes())
    with_source = open_source(store)
    try:  # and read back, for what is packed inside a file
        for table in TABLES:
            rows = with_source.read(table, 0.0, processes.clock.wall_s + 3600)
            clean(table, repr(rows).encode())
            if table == "request":
                assert {r.outcome for r in rows} >= {"finished", "rejected"}
    finally:
        with_source.close()
    for form, text in reports(store).items():
        assert "alice" in text or form == "term", form
        clean(form, text.encode())
    # The operator's own screen may say which of the operator's own folders is broken, and why.
    for line in heard:
        assert CANARY not in line
