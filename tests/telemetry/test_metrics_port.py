"""The metrics port: who gets an answer, and a store process that counts what it commits."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from telemetry.conventions import Emitter
from telemetry.errors import StoreError
from telemetry.otlp import encode
from telemetry.prometheus.counting import Counting
from telemetry.prometheus.port import MetricsPort, listen
from telemetry.records import Batch, EngineRun
from telemetry.service.client import StoreClient
from tests.telemetry.delivered import RUN, minute, until

ROOT = Path(__file__).parents[2]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
OUTPUT = "tenantscope_tenant_output_tokens_total"


def get(url: str, accept: str = "text/plain") -> tuple[str, str]:
    """(content type, body)"""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.fixture
def port() -> Iterator[MetricsPort]:
    serving = MetricsPort(Counting(time.time()), listen("127.0.0.1:0"))
    yield serving
    serving.stop()


def test_it_speaks_the_format_that_is_asked_for(port: MetricsPort):
    kind, body = get(port.url)
    assert kind.startswith("text/plain")
    assert list(parse_text(body))
    kind, body = get(port.url, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    assert list(parse_openmetrics(body))


def test_there_is_nothing_but_metrics(port: MetricsPort):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(port.url.removesuffix("/metrics") + "/")
    assert refused.value.code == 404


def test_scrapes_beyond_a_few_at_once_are_told_to_come_less_often(
    port: MetricsPort, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(port._turns, "acquire", lambda blocking: False)
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(port.url)
    assert refused.value.code == 503
    assert b"scrape less often" in refused.value.read()


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "10.0.0.1:9464", "localhost", "127.0.0.1:x"])
def test_off_loopback_it_refuses_to_start(address: str):
    with pytest.raises(StoreError, match="is no loopback address with a port"):
        listen(address)


def test_a_taken_port_is_named():
    with listen("127.0.0.1:0") as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StoreError, match=f"{address}.*already in use.*choose another port"):
            listen(address)
    with pytest.raises(StoreError, match=r"cannot serve metrics at 127\.0\.0\.1:70000"):
        listen("127.0.0.1:70000")


# --- a store process -----------------------------------------------------------------------------


class Process:
    """A store process that serves metrics on a socket it inherits, as under `serve`."""

    def __init__(self, folder: Path, listening: socket.socket) -> None:
        fd = listening.fileno()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "telemetry.service", "--store", str(folder / "store"),
             "--listen", f"unix:{folder}/s", "--metrics-fd", str(fd)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, pass_fds=[fd],
        )  # fmt: skip
        assert self._popen.stdout is not None
        assert self._popen.stdout.readline().startswith("ready ")
        self.client = StoreClient(f"unix:{folder}/s")

    def end(self, number: int) -> None:
        self.client.close()
        if self._popen.poll() is None:
            os.kill(self._popen.pid, number)
        self._popen.communicate(timeout=10)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with listen("127.0.0.1:0") as made:
        yield made


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for process in made:
        process.end(signal.SIGKILL)


def test_a_store_counts_what_it_commits_and_a_killed_one_begins_anew_without_doubling(
    tmp_path: Path, listening: socket.socket, processes: list[Process]
):
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    start = float(int(time.time()) // 60 * 60)
    config = json.dumps({"tenants": [{"name": "a", "slo": {"ttft_s": 1.0}}]})
    run = EngineRun(started=start, model="m", config=config, **RUN)

    def send(process: Process, tokens: int, seq: int) -> None:
        row = minute("a", start, output_tokens=tokens)
        one = Batch(**RUN, emitter=Emitter.WORKER, sealed=False, seq=seq, minutes=(row,))
        process.client.export(*encode(one))

    def shown() -> dict[str, float]:
        found = [s for f in parse_text(get(url)[1]) for s in f.samples]
        return {s.labels["tenant"]: s.value for s in found if s.name == OUTPUT}

    first = Process(tmp_path, listening)
    processes.append(first)
    first.client.export(
        *encode(Batch(**RUN, emitter=Emitter.WORKER, sealed=True, seq=0, logs=(run,)))
    )
    until(lambda: shown() == {"a": 0, "other": 0})
    for _ in range(3):
        send(first, 40, 1)
    until(lambda: shown() == {"a": 40, "other": 0})
    first.end(signal.SIGKILL)

    second = Process(tmp_path, listening)
    processes.append(second)
    assert shown() == {"a": 0, "other": 0}  # named again from the run's own row
    send(second, 40, 1)  # what the killed one did not acknowledge
    send(second, 45, 2)
    until(lambda: shown() == {"a": 5, "other": 0})
    second.end(signal.SIGTERM)
