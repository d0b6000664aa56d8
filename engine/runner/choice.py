"""Makes the runner of a pool's device, and what reads adapters for it. Decides nothing at run time.

What needs a GPU is imported where one is asked for: a worker on the CPU never loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.config_pools import Limits
from engine.errors import AdapterError, ConfigError
from engine.model.adapter_folder import shown
from engine.model.adapter_reader import AdapterReader
from engine.model.loaders import LoadedModel
from engine.model.lora import AdapterWeights
from engine.runner.arena import kv_page_bytes
from engine.runner.torch_runner import TorchRunner

CPU = "cpu"


def runner_on(
    device: str,
    model: LoadedModel,
    pages: int,
    limits: Limits,
    say: Callable[[str], None] = lambda text: None,
    lost: Callable[[str], None] = lambda why: None,
) -> TorchRunner:
    """A runner of `pages` pages. `device`: a pool's; a worker sees no other than its own. `lost`
    hears, on any thread, that it will compute nothing more. Raises ConfigError where the arena
    cannot be had, or the device cannot compute the model."""
    if device == CPU:
        return TorchRunner(model, pages, limits.page_tokens)
    import torch

    from engine.runner.cuda import gpu
    from engine.runner.device_runner import DeviceRunner

    say("moving the model to the device, compiling kernels, recording decode steps")
    rows = max(limits.step_tokens, limits.slots)
    on = gpu(rows, limits.slots, min(limits.slots, limits.adapters_per_step))
    try:
        return DeviceRunner(model, pages, limits.page_tokens, on, lost)
    except torch.OutOfMemoryError as e:
        raise ConfigError(
            f"{on.device} has no memory for the model, a pool of {limits.pool_bytes} bytes and "
            "what steps need beside them: lower limits.pool_bytes, limits.step_tokens or "
            f"limits.slots ({str(e).splitlines()[0][:200]})"
        ) from None


def reader_for(
    device: str, model: LoadedModel, page_tokens: int
) -> Callable[[Path], AdapterWeights]:
    """What reads a folder into host memory as the device's copies need it. It raises AdapterError
    for a folder that is refused, or a rank that the device's runner has no room for."""
    page_bytes = kv_page_bytes(model.config, page_tokens, model.dtype)
    read = AdapterReader(model.config, model.dtype, page_bytes)
    if device == CPU:
        return read
    from engine.runner.cuda import pinned
    from engine.runner.device_runner import MAX_RANK

    def fitting(folder: Path) -> AdapterWeights:
        weights = read(folder)
        if weights.rank > MAX_RANK:
            raise AdapterError(
                f"adapter {shown(str(folder), 300)}: rank {weights.rank}: on {device} adapters of "
                f"ranks up to {MAX_RANK} are served; on the CPU any"
            )
        return weights

    return pinned(fitting)
