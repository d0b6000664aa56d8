"""A step that hangs, in a real worker: seen in status and store while it hangs, not afterwards."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from engine.serving.client import WorkerClient
from engine.serving.faults import Faults
from engine.serving.processes import ServeProcesses
from telemetry.source import open_source
from tests.engine.serving.test_serve_whole import SETTINGS, ask


def test_a_frozen_step_grows_capacity_and_token_age_while_it_is_frozen(tmp_path: Path) -> None:
    settings = replace(SETTINGS, bucket_s=60.0)
    faults = Faults(freeze_at_s=0.0, freeze_s=5.0)
    answers: list[int] = []
    seen: list[tuple[float, bool, float]] = []  # age by status, frozen, capacity in the store
    with ServeProcesses(settings, tmp_path / "store", faults=faults) as running:
        asking = threading.Thread(target=lambda: answers.append(ask(running).status_code))
        asking.start()
        worker = WorkerClient(running.worker_address)
        source = open_source(running.store_address)
        while not answers:
            status = worker.status()
            rows = source.read("engine_minute", 0.0, float("inf"))
            capacity = sum(r.capacity_s or 0.0 for r in rows)
            if status.steps == 0 and status.running and not answers:
                seen.append((status.last_token_age_s, status.frozen, capacity))
            time.sleep(0.2)
        asking.join()
        source.close()
        worker.close()
    assert answers == [200]
    ages = [age for age, _, _ in seen]
    assert ages == sorted(ages)
    assert ages[-1] > 3.0
    assert seen[-1][1], "status says frozen during the step"
    capacities = [c for _, _, c in seen]
    assert capacities == sorted(capacities)
    assert len(set(capacities)) >= 3, "the store hears of it more than once during the step"
    assert capacities[-1] > 2.0
