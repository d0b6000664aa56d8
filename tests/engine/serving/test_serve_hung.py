"""A real worker that hangs, in its step or as a whole, is ended and started again, and said so."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from engine.serving.faults import NO_FAULTS, Faults
from engine.serving.processes import ServeProcesses
from tests.engine.serving.test_serve_whole import SETTINGS, ask

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("hung")]


@contextmanager
def serving(
    tmp_path: Path, faults: Faults = NO_FAULTS
) -> Iterator[tuple[ServeProcesses, queue.SimpleQueue[str]]]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ServeProcesses(
        replace(SETTINGS, hung_s=6.0),
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
