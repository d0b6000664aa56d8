"""What a worker computes on: its device, its cores, or why it cannot. Owns no process, loads no
torch: all of it must be settled before torch is imported.

On a CPU a pool's own cores are the top rung of isolation: no other pool's step takes time of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from engine.config import PoolSpec
from engine.errors import ConfigError


def device_refusal(pool: PoolSpec) -> str | None:
    """Why a worker of this version cannot compute on the pool's device; None where it can."""
    if pool.device == "cpu":
        return None
    return (
        f"pool {pool.name!r}: device = {pool.device!r}: this version's engine computes on the CPU "
        'only: write device = "cpu", or leave the key out'
    )


def cpus_refusal(pool: PoolSpec, here: Collection[int]) -> str | None:
    """Why the pool's workers cannot keep to its cores, where this process may use `here`."""
    missing = [c for c in pool.cpus if c not in here]
    if not missing:
        return None
    return (
        f"pool {pool.name!r}: cpus: {listed(missing)} {'is' if len(missing) == 1 else 'are'} not "
        f"among the cores that this process may use: {listed(sorted(here))}"
    )


def check_pools(pools: Sequence[PoolSpec], here: Collection[int] | None = None) -> None:
    """Raises ConfigError for the first pool that cannot be served here."""
    here = cores_here() if here is None else here
    for pool in pools:
        refusal = device_refusal(pool) or cpus_refusal(pool, here)
        if refusal is not None:
            raise ConfigError(refusal)


def cores_here() -> frozenset[int]:
    """The cores that this process may use."""
    return frozenset(os.sched_getaffinity(0))


def cores_of(pool: PoolSpec, replica: int) -> tuple[int, ...]:
    """The cores of one replica: its even part of the pool's, in their order; empty: no own ones."""
    each = len(pool.cpus) // pool.replicas
    return pool.cpus[replica * each : (replica + 1) * each]


def visible_devices(device: str) -> str:
    """CUDA_VISIBLE_DEVICES of a worker: the driver shows it this device and no other."""
    if device == "cpu":
        return ""
    return device.removeprefix("cuda:")


def settle(pool: PoolSpec, replica: int) -> None:
    """This process is the pool's replica from now on: it sees its device and keeps to its cores,
    all its threads do. Before torch is imported. Raises ConfigError."""
    check_pools([pool])
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(pool.device)
    cores = cores_of(pool, replica)
    if cores:
        for thread in os.listdir("/proc/self/task"):  # later ones follow who starts them
            os.sched_setaffinity(int(thread), cores)
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(len(cores))


def listed(cores: Sequence[int]) -> str:
    """Cores as a person writes them: 0-3, 8."""
    spans: list[list[int]] = []
    for core in cores:
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans) or "none"
