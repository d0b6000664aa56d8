"""Alerts inside a real store process: told over HTTP, killed, started again, stopped in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.cli import invoke
from telemetry.otlp import encode
from telemetry.service.client import StoreClient
from tests.telemetry.delivered import batch, engine_minute, until
from tests.telemetry.test_alert_delivery import Server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Any]:
    made: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        one = subprocess.Popen(
            [sys.executable, "-m", "telemetry.service", "--store", str(tmp_path / "store"),
             "--listen", f"unix:{tmp_path}/s"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            env={**os.environ, "HOOK": "s3cret"},
        )  # fmt: skip
        made.append(one)
        assert one.stdout is not None
        assert one.stdout.readline().startswith("ready")
        return one

    yield begin
    for one in made:
        one.kill()
        one.wait()


def test_a_stalled_engine_is_told_once_over_a_kill_and_acknowledged(
    tmp_path: Path, process: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(200)
    store = tmp_path / "store"
    store.mkdir()
    (store / "settings.toml").write_text(
        f'[alerts]\nevery_s = 1\n[[alerts.webhook]]\nurl = "{server.url}"\nsecret = "env:HOOK"\n'
    )
    first = process()
    now = time.time()
    start = now - now % 60
    row = engine_minute(start, observed_seconds=now - start + 1.0, last_token_age_s=30.0)
    client = StoreClient(f"unix:{tmp_path}/s")
    client.export(*encode(batch(row)))
    assert server.asked.wait(30)
    said = json.loads(server.came[0][2])
    name = said["incident"]["id"]
    assert said["transition"] == "opened"
    assert [a["alert"] for a in said["incident"]["alerts"]] == ["TenantscopeEngineStalled"]

    def told() -> Any:
        rows = client.query("alert_events", start=0.0, end=float("inf"), states=True).rows
        states = [json.loads(r[4]) for r in rows if r[1] == "incident_state"]
        return max(states, key=lambda s: s["seq"])["told"] if states else ()

    until(lambda: bool(told()))
    assert told() == [["webhook", 1]]
    client.close()

    first.kill()
    first.wait()
    second = process()
    where = ["--store", str(store)]
    assert invoke(["incidents", "ack", name, "--as", "ann", *where]) == 0
    capsys.readouterr()
    assert invoke(["incidents", "list", "--json", *where]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["state"]) == (name, "acknowledged")
    assert {json.loads(b)["dedup_key"] for _, _, b in server.came} == {f"{name}/1"}
    second.send_signal(signal.SIGTERM)
    assert second.wait(5) == 0
    assert len(server.came) == 1
    server.stop()


def test_a_webhook_that_hangs_does_not_hold_up_the_end(tmp_path: Path, process: Any) -> None:
    server = Server(200, hang=True)
    store = tmp_path / "store"
    store.mkdir()
    (store / "settings.toml").write_text(
        f'[alerts]\nevery_s = 1\n[[alerts.webhook]]\nurl = "{server.url}"\ntimeout_s = 60\n'
    )
    one = process()
    now = time.time()
    start = now - now % 60
    row = engine_minute(start, observed_seconds=now - start + 1.0, last_token_age_s=30.0)
    client = StoreClient(f"unix:{tmp_path}/s")
    client.export(*encode(batch(row)))
    assert server.asked.wait(30)
    client.close()
    one.send_signal(signal.SIGTERM)
    assert one.wait(5) == 0
    server.stop()
