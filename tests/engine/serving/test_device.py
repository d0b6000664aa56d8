"""What a worker computes on: refused in a sentence, or settled before torch is there."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import PoolSpec
from engine.errors import ConfigError
from engine.serving.device import check_pools, cores_here, cores_of, listed, visible_devices


def test_a_device_other_than_the_cpu_is_refused_with_pool_device_and_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"'gold'.*'cuda:1'.*CPU only.*write device = \"cpu\""):
        check_pools([PoolSpec("bulk"), PoolSpec("gold", device="cuda:1")], here={0})


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
    ("device", "shown"), [("cpu", ""), ("cuda:1", "1"), ("MIG-0a1b2c3d", "MIG-0a1b2c3d")]
)
def test_a_worker_is_shown_its_own_device_and_no_other(device: str, shown: str) -> None:
    assert visible_devices(device) == shown


def test_a_worker_keeps_to_its_cores_with_the_threads_it_starts_later() -> None:
    core = max(cores_here())
    script = f"""
import os, sys, threading
from engine.config import PoolSpec
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
