"""What a worker computes on: its device, its cores, or why it cannot. Loads no torch: all of it
must be settled before torch is imported; what torch sees, a process of its own is asked.

On a CPU a pool's own cores are the top rung of isolation: no other pool's step takes time of them.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import metadata

from engine.config import PoolSpec
from engine.errors import ConfigError

# The kernels are Triton's; the device that is shown is the only one.
_LOOK = "import torch, triton; print(torch.cuda.device_count())"
_LOOK_S = 120.0


def device_refusal(pool: PoolSpec, unseen: Callable[[str], str | None] | None = None) -> str | None:
    """Why a worker of this version cannot compute on the pool's device; None where it can.
    `unseen`: why torch does not see a device, `why_unseen` by default."""
    if pool.device == "cpu":
        return None
    if pool.tp > 1:
        return (
            f"pool {pool.name!r}: tp = {pool.tp} with device = {pool.device!r}: ranks compute on "
            'the CPU only: write device = "cpu", or leave tp out'
        )
    why = (unseen or why_unseen)(pool.device)
    if why is None:
        return None
    return (
        f"pool {pool.name!r}: device = {pool.device!r}: this version's engine computes on the CPU "
        f'only here, where {why}: write device = "cpu", or leave the key out'
    )


@functools.cache
def why_unseen(device: str) -> str | None:
    """Why torch does not see the device here, or cannot compute on it; None where it can. Asks a
    process, once, but where the installed torch has no way to it anyway."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "torch is not installed"
    if version.endswith("+cpu"):
        return f"torch ({version}) is built for CPUs"
    seen = {**os.environ, "CUDA_VISIBLE_DEVICES": visible_devices(device)}
    try:
        told = subprocess.run(
            [sys.executable, "-c", _LOOK], env=seen, capture_output=True, text=True,
            timeout=_LOOK_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"torch did not say within {_LOOK_S:.0f} s whether it sees that device"
    if told.returncode:
        last = (told.stderr.strip().splitlines() or [f"exit status {told.returncode}"])[-1]
        return f"torch or triton does not load ({last[:200]})"
    return None if told.stdout.strip() == "1" else "torch sees no such device"


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


def cores_of(pool: PoolSpec, replica: int, rank: int = 0) -> tuple[int, ...]:
    """The cores of one rank of a replica: its even part of the pool's, in their order; empty: no
    own ones."""
    each = len(pool.cpus) // (pool.replicas * pool.tp)
    place = replica * pool.tp + rank
    return pool.cpus[place * each : (place + 1) * each]


def visible_devices(device: str) -> str:
    """CUDA_VISIBLE_DEVICES of a worker: the driver shows it this device and no other."""
    if device == "cpu":
        return ""
    return device.removeprefix("cuda:")


def dtype_on(device: str, dtype: str) -> str:
    """What a model is loaded in: `auto` is what the device is fast in, which is not the CPU's to
    say."""
    return "bfloat16" if dtype == "auto" and device != "cpu" else dtype


def settle(pool: PoolSpec, replica: int, rank: int = 0) -> None:
    """This process is the pool's replica, or a rank of it, from now on: it sees its device and
    keeps to its cores, all its threads do. Before torch is imported. Raises ConfigError."""
    if rank == 0:  # the others are started by it, and held to its cores until here
        check_pools([pool])
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(pool.device)
    cores = cores_of(pool, replica, rank)
    if not cores and pool.tp > 1:  # ranks that all take every core wait for each other's threads
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(cores_here()) // pool.tp)))
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
