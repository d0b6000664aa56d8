"""What a worker computes on: refused in a sentence, or settled before torch is there."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import PoolSpec, Settings
from engine.errors import ConfigError
from engine.serving import device
from engine.serving.device import (
    check_pools,
    cores_here,
    cores_of,
    device_refusal,
    dtype_on,
    listed,
    visible_devices,
)


def test_a_device_other_than_the_cpu_is_refused_with_pool_device_and_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"'gold'.*'cuda:1'.*CPU only.*write device = \"cpu\""):
        check_pools([PoolSpec("bulk"), PoolSpec("gold", device="cuda:1")], here={0})


def unseen(device: str) -> str | None:
    return None if device == "cuda:1" else f"torch sees no {device}"


def test_a_device_that_torch_sees_is_served_and_another_is_refused_with_the_reason() -> None:
    assert device_refusal(PoolSpec("gold", device="cuda:1"), unseen) is None
    assert device_refusal(PoolSpec("bulk"), lambda device: "never asked") is None
    said = device_refusal(PoolSpec("gold", device="cuda:2"), unseen)
    assert said is not None
    assert "the CPU only here, where torch sees no cuda:2: write device" in said


@pytest.mark.parametrize(
    ("version", "answer", "says"),
    [
        ("2.13.0+cpu", None, "torch (2.13.0+cpu) is built for CPUs"),
        ("2.11.0", (0, "1\n", ""), None),
        ("2.11.0", (0, "0\n", ""), "torch sees no such device"),
        (
            "2.11.0",
            (1, "", "Traceback\nNo module named 'triton'"),
            "not load (No module named 'tri",
        ),
        ("2.11.0", (-11, "", ""), "does not load (exit status -11)"),
    ],
)
def test_torch_is_asked_in_a_process_that_is_shown_that_device_alone(
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    answer: tuple[int, str, str] | None,
    says: str | None,
) -> None:
    def run(command: list[str], env: dict[str, str], **more: object):
        assert answer is not None, "no process is started"
        assert env["CUDA_VISIBLE_DEVICES"] == "7"
        return subprocess.CompletedProcess(command, *answer)

    monkeypatch.setattr(device.metadata, "version", lambda name: version)
    monkeypatch.setattr(device.subprocess, "run", run)
    why = device.why_unseen.__wrapped__("cuda:7")
    assert why is None if says is None else says in why


def test_auto_is_the_devices_own_dtype() -> None:
    assert dtype_on("cpu", "auto") == "auto"
    assert dtype_on("cuda:0", "auto") == "bfloat16"
    assert dtype_on("cuda:0", "float32") == "float32"


def test_cores_that_are_not_there_are_named_beside_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'gold': cpus: 8-9 are not .*may use: 0-3, 6$"):
        check_pools([PoolSpec("gold", cpus=(1, 8, 9))], here={0, 1, 2, 3, 6})


@given(st.integers(1, 6), st.integers(0, 4))
def test_replicas_share_their_pools_cores_evenly_and_none_has_anothers(
    replicas: int, each: int
) -> None:
    pool = PoolSpec("p", replicas, cpus=tuple(range(replicas * each)))
    parts = [cores_of(pool, n) for n in range(replicas)]
    assert {len(p) for p in parts} == {each}
    assert tuple(c for p in parts for c in p) == pool.cpus


@pytest.mark.parametrize(
    ("named", "shown"), [("cpu", ""), ("cuda:1", "1"), ("MIG-0a1b2c3d", "MIG-0a1b2c3d")]
)
def test_a_worker_is_shown_its_own_device_and_no_other(named: str, shown: str) -> None:
    assert visible_devices(named) == shown


def test_a_worker_keeps_to_its_cores_with_the_threads_it_starts_later() -> None:
    core = max(cores_here())
    script = f"""
import os, sys, threading
from engine.config import PoolSpec, Settings
from engine.serving.device import settle
settle(PoolSpec("gold", cpus=({core},)), 0)
seen = []
thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
thread.start()
thread.join()
assert seen == [{{{core}}}], seen
assert os.environ["OMP_NUM_THREADS"] == "1"
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_cores_are_written_as_spans() -> None:
    assert listed([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert listed([]) == "none"


def test_the_command_lines_device_is_every_pools_and_stays_when_the_file_is_read_again() -> None:
    two = Settings(pools=(PoolSpec("a"), PoolSpec("b", device="cuda:3")))
    running = two.with_device("cuda:1")
    assert [p.device for p in running.pools] == ["cuda:1", "cuda:1"]
    assert [p.device for p in Settings().with_device("cuda:1").all_pools()] == ["cuda:1"]
    assert Settings(pools=(PoolSpec("a"), PoolSpec("b"))).cut_as(running) == running
    assert two.cut_as(running).pools[1].device == "cuda:3"  # what the file names is not overlooked
