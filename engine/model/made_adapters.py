"""Makes synthetic PEFT adapters: seeded, labelled as made up, of no use but to load. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.errors import AdapterError
from engine.model.config import ATTENTION_MODULES, MODULES, ModelConfig

SYNTHETIC_KEY = "tenantscope_synthetic"
# Standard deviation of what an adapter adds to a linear's output, its normed input being about 1
# an element: enough to change the text, little enough to keep it sane.
_STRENGTH = 0.1


def make_adapter(
    folder: Path,
    config: ModelConfig,
    rank: int,
    modules: Sequence[str] = MODULES,
    seed: int = 0,
    alpha: float | None = None,
    base_model: str = "",
) -> Path:
    """Write a PEFT LoRA folder with random A and B (neither is zero), `alpha` = rank by default.

    Returns the folder. Raises AdapterError when rank or a module is impossible, or the folder
    cannot be written.
    """
    if rank < 1:
        raise AdapterError(f"rank {rank}: an adapter's rank is at least 1")
    for module in modules:
        if module not in MODULES:
            raise AdapterError(f"module {module!r}: choose among {', '.join(MODULES)}")
    if len(set(modules)) < len(modules):
        raise AdapterError(f"modules {', '.join(modules)}: name each one once")
    if not modules:
        raise AdapterError(f"an adapter needs at least one module of {', '.join(MODULES)}")
    alpha = float(rank) if alpha is None else alpha
    options = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "target_modules": list(modules),
        SYNTHETIC_KEY: True,
    }
    tensors = _tensors(config, rank, modules, seed)
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        # Last: what was interrupted is no adapter, and making it again needs no --force.
        (folder / "adapter_config.json").write_text(json.dumps(options, indent=2) + "\n")
    except (OSError, SafetensorError) as e:  # the library's own where the disk is full
        why = getattr(e, "strerror", None) or e
        raise AdapterError(
            f"cannot write the adapter to {folder} ({why}): choose a folder that may be written, "
            "with room"
        ) from None
    return folder


def shape_key(config: ModelConfig) -> str:
    """The same for models whose adapters are the same, by all that `make_adapter` takes of them."""
    shapes = [config.layers, *(config.module_shape(m) for m in MODULES)]
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:12]


def _tensors(
    config: ModelConfig, rank: int, modules: Sequence[str], seed: int
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in range(config.layers):
        for module in modules:
            out, width = config.module_shape(module)
            parent = "self_attn" if module in ATTENTION_MODULES else "mlp"
            name = f"base_model.model.model.layers.{layer}.{parent}.{module}"
            a = random.standard_normal((rank, width), dtype=np.float32) / np.sqrt(width)
            b = random.standard_normal((out, rank), dtype=np.float32)
            tensors[f"{name}.lora_A.weight"] = a.astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = (b * (_STRENGTH / np.sqrt(rank))).astype(np.float32)
    return tensors
