"""The front's doors: what is malformed, what is not there, and what the process loads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from front_bench import ALICE, bench


def test_malformed_bodies_are_400_and_too_long_ones_413() -> None:
    with bench() as (_, client):
        headers = {"authorization": f"Bearer {ALICE}"}
        broken = client.post("/v1/completions", content=b"{", headers=headers)
        long = client.post("/v1/completions", content=b" " * (1 << 20) + b"{}", headers=headers)

        def unannounced() -> Iterator[bytes]:
            for _ in range(40):
                yield b" " * (1 << 15)

        chunked = client.post("/v1/completions", content=unannounced(), headers=headers)
    assert broken.status_code == 400
    assert "not valid JSON" in broken.json()["error"]["message"]
    assert long.status_code == chunked.status_code == 413
    assert long.json()["error"]["limit"] == 1 << 20


def test_an_unsupported_parameter_is_named() -> None:
    with bench() as (b, client):
        refused = b.post(client, echo=True)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "echo"


def test_a_wrong_path_or_method_is_said_in_the_same_shape() -> None:
    with bench() as (_, client):
        path, method = client.post("/v1/embeddings"), client.get("/v1/completions")
    assert (path.status_code, method.status_code) == (404, 405)
    assert "POST /v1/completions" in path.json()["error"]["message"]
    assert method.headers["allow"] == "POST"


def test_a_key_is_never_sent_on_to_where_a_host_header_points() -> None:
    with bench() as (b, client):
        told = b.post(client, headers={"host": "elsewhere.example"})
        slashed = client.post("/v1/completions/", headers={"host": "elsewhere.example"}, json={})
    assert told.status_code == 200
    assert slashed.status_code == 404
    assert "location" not in slashed.headers


def test_the_fronts_book_outlives_a_tick_that_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[float] = []
    again = threading.Event()

    def tick(now_s: float) -> None:
        ticks.append(now_s)
        if len(ticks) == 1:
            raise KeyError("ts-alice-key")
        again.set()

    monkeypatch.setattr("engine.serving.front._TICK_S", 0.001)
    with bench() as (b, client):
        monkeypatch.setattr(b.book, "tick", tick)
        assert again.wait(20)
        assert b.post(client).status_code == 200
    assert "the front's book: KeyError at " in caplog.text
    assert "ts-alice-key" not in caplog.text


def test_the_front_process_loads_no_torch_and_no_duckdb() -> None:
    script = (
        "import sys, engine.serving.front, engine.model.text, telemetry.pipeline.exporter\n"
        "engine.model.text.load_tokenizer('synthetic').stream().push(1)\n"
        "bad = {'torch', 'duckdb', 'triton'} & set(sys.modules)\n"
        "print(sorted(bad))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
