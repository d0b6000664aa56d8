"""A real worker that hangs, in its step or as a whole, is ended and started again, and said so."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from engine.config import PoolSpec, Settings
from engine.serving.faults import NO_FAULTS, Faults
from engine.serving.processes import ServeProcesses
from tests.engine.serving.test_serve_whole import SETTINGS, ask

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("hung")]

BOTH = {"ready": 2, "of": 2}


@contextmanager
def serving(
    tmp_path: Path, faults: Faults = NO_FAULTS, settings: Settings = SETTINGS, hung_s: float = 6.0
) -> Iterator[tuple[ServeProcesses, queue.SimpleQueue[str]]]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ServeProcesses(
        replace(settings, hung_s=hung_s),
        tmp_path / "store",
        faults=faults,
        progress=lines.put,
        on_line=lambda name, line: lines.put(f"[{name}] {line}"),
    ) as running:
        yield running, lines


def until(lines: queue.SimpleQueue[str], end: str) -> list[str]:
    heard = [lines.get(timeout=60)]
    while end not in heard[-1]:
        heard.append(lines.get(timeout=60))
    return heard


def test_a_step_that_is_never_over_costs_its_request_and_a_restart_and_says_where_it_hung(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, Faults(freeze_at_s=0.0, freeze_s=600.0)) as (running, lines):
        answer = ask(running)
        heard = until(lines, "the worker process is back")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "worker_lost"
    assert answer.headers["retry-after"]
    words = "\n".join(heard)
    assert "[worker] error: a step is not over after 6 s (hung_s)" in words
    assert "in execute" in words, "where it hung"
    assert "the worker process ended with exit code 1" in words


def test_a_worker_that_is_stopped_while_idle_is_missed_ended_and_replaced(tmp_path: Path) -> None:
    with serving(tmp_path) as (running, lines):
        workers = running._workers
        assert workers is not None
        assert ask(running).status_code == 200
        os.kill(workers.keepers[0].child.pid, signal.SIGSTOP)
        heard = until(lines, "the worker process is back")
        for _ in range(3000):
            answer = ask(running)
            if answer.status_code == 200:
                break
            assert answer.status_code == 503
        ready = httpx.get(f"{running.url}/ready")
    assert answer.status_code == 200
    assert ready.status_code == 200
    assert any("no sign of life for 6 s, and was ended for it" in line for line in heard)


def test_a_replica_that_is_stopped_costs_nobody_an_answer_and_serves_again_when_it_goes_on(
    tmp_path: Path,
) -> None:
    two = replace(SETTINGS, pools=(PoolSpec("main", 2, SETTINGS.limits),))
    with serving(tmp_path, settings=two, hung_s=600.0) as (running, lines):
        workers = running._workers
        assert workers is not None
        stopped = workers.keepers[0].child.pid
        os.kill(stopped, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(6) as callers:  # every other one waits at the stopped worker
                answers = list(callers.map(lambda _: ask(running), range(6)))
            until(lines, "gives no sign of life")
            later = ask(running)
            ready = httpx.get(f"{running.url}/ready").json()
        finally:
            os.kill(stopped, signal.SIGCONT)
        while httpx.get(f"{running.url}/ready").json() != {"status": "ready", "workers": BOTH}:
            assert running.failure() is None
        again = [ask(running).status_code for _ in range(4)]
    assert [a.status_code for a in answers] == [200] * 6, [a.text for a in answers]
    assert len({a.json()["choices"][0]["text"] for a in answers}) == 1
    assert later.status_code == 200
    assert ready == {"status": "ready", "workers": {"ready": 1, "of": 2}}
    assert again == [200] * 4


def test_a_pool_whose_only_worker_is_stopped_refuses_within_seconds_not_at_its_end(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, hung_s=600.0) as (running, _):
        workers = running._workers
        assert workers is not None
        stopped = workers.keepers[0].child.pid
        os.kill(stopped, signal.SIGSTOP)
        try:
            waiting, after = ask(running), ask(running)
        finally:
            os.kill(stopped, signal.SIGCONT)
        while httpx.get(f"{running.url}/ready").status_code != 200:
            assert running.failure() is None
        again = ask(running)
    codes = [(a.status_code, a.json()["error"]["code"]) for a in (waiting, after)]
    assert codes == [(503, "worker_lost"), (503, "worker_down")]
    assert {a.headers["retry-after"] for a in (waiting, after)} == {"1"}
    assert again.status_code == 200
