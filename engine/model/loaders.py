"""Loads a base model by name into memory: SmolLM2 (cached), a synthetic one, a Hugging Face folder,
an `hf:` model, a GGUF file. Decides what is read from where; reads nothing itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.errors import ModelError
from engine.model.cache import is_whole, locked, sha256_of, write_sealed
from engine.model.chat_template import SYNTHETIC_TEMPLATE, made
from engine.model.config import (
    MODULES,
    ModelConfig,
    model_config,
    model_path,
    synthetic_config,
)
from engine.model.fetch import (
    GGUF_SHA256,
    SMOLLM2,
    DownloadPlan,
    gguf_path,
    plan_download,
)
from engine.model.gguf import GgufFile
from engine.model.hf_config import read_hf_config
from engine.model.hf_folder import read_folder, read_whole
from engine.model.hub import is_hub_name, model_folder
from engine.model.tensor_names import EMBEDDING, expected_shapes, layer_weight_names
from engine.model.text import Tokenizer, folder_tokenizer, load_tokenizer, synthetic_json
from engine.model.weights import Weights

__all__ = [
    "DownloadPlan",
    "LoadedModel",
    "layer_weight_names",
    "load_model",
    "model_config",
    "pick_dtype",
    "plan_download",
    "synthetic_config",
    "synthetic_model",
]

Progress = Callable[[str], None]

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A base model in memory. `weights` carry Hugging Face's names, all of `dtype` except vectors
    (norms, biases), which stay float32. `hash` identifies the content (sha256 hex)."""

    name: str
    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    hash: str
    synthetic: bool
    dtype: torch.dtype

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def pick_dtype(dtype: str = "auto") -> torch.dtype:
    """`auto` is bfloat16 where the CPU multiplies it in hardware, float32 elsewhere."""
    if dtype == "auto":
        fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    try:
        return _DTYPES[dtype]
    except KeyError:
        raise ModelError(f"dtype {dtype!r}: expected auto, bfloat16, float16 or float32") from None


def load_model(
    name: str = SMOLLM2,
    dtype: str = "auto",
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """Load `smollm2-135m`, `synthetic`, `hf:org/name[@revision]`, the GGUF file or the Hugging Face
    folder at path `name`.

    `progress` is told, in sentences, what takes time and what is odd. Raises ModelError when the
    model cannot be had or is not served.
    """
    say = progress or (lambda _: None)
    kind = pick_dtype(dtype)
    if kind == torch.float16 and pick_dtype() == torch.bfloat16:
        say(
            "dtype float16: this CPU multiplies bfloat16 in hardware and float16 not, so "
            "dtype bfloat16 would be faster"
        )
    if name == SMOLLM2:
        return _smollm2(kind, cache_dir, say)
    if name == "synthetic":
        return synthetic_model(synthetic_config(), kind)
    if is_hub_name(name):
        return _folder(name, model_folder(name, say), kind, say)
    path = model_path(name)
    if path.suffix == ".gguf":
        return _gguf(path, kind, say)
    return _folder(os.path.basename(os.path.realpath(path)), path, kind, say)


def synthetic_model(
    config: ModelConfig, dtype: torch.dtype = torch.float32, seed: int = 0
) -> LoadedModel:
    """A seeded random decoder that generates nonsense at the right shapes: labelled synthetic."""
    generator = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(config)
    weights = Weights(config, dtype)

    def put_normal(name: str, scale: float) -> None:
        weights.put(name, torch.randn(*shapes[name], generator=generator) * scale)

    put_normal(EMBEDDING, 1.0)
    if not config.tied:
        put_normal("lm_head.weight", config.hidden**-0.5)
    for layer in range(config.layers):
        names = layer_weight_names(layer)
        for module in MODULES:
            put_normal(names[module], config.module_shape(module)[1] ** -0.5)
    for name, shape in shapes.items():
        if name not in weights:
            weights.put(name, torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape))
    digest = hashlib.sha256(f"synthetic {config} {seed}".encode()).hexdigest()
    return LoadedModel(
        name=f"synthetic-{config.layers}x{config.hidden}",
        config=config,
        weights=weights,
        tokenizer=Tokenizer(synthetic_json(config.vocab), config.eos_ids, made(SYNTHETIC_TEMPLATE)),
        hash=digest,
        synthetic=True,
        dtype=dtype,
    )


def _smollm2(dtype: torch.dtype, cache_dir: Path | None, say: Progress) -> LoadedModel:
    tokenizer = load_tokenizer(SMOLLM2, cache_dir, say)  # fetches and checks the file
    path = gguf_path(cache_dir)
    config = model_config(SMOLLM2)
    name = str(dtype).removeprefix("torch.")
    ready = path.with_name(f"weights-{name}.safetensors")
    with locked(path.parent, lambda: say("another process is preparing the weights; waiting")):
        weights = _read_ready(ready, config, dtype)
        if weights is None:
            from safetensors import SafetensorError  # see `hf_folder`

            say(f"unpacking SmolLM2-135M to {name}, once")
            weights = _unpack(GgufFile(path), config, dtype)
            try:
                write_sealed(ready, lambda temporary: _save(weights, temporary))
            except (OSError, SafetensorError) as e:
                say(f"the unpacked weights could not be kept in {path.parent}: {e}")
    return LoadedModel(SMOLLM2, config, weights, tokenizer, GGUF_SHA256, False, dtype)


def _save(weights: Mapping[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    # Clones, for the file format has no views.
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


def _read_ready(path: Path, config: ModelConfig, dtype: torch.dtype) -> Weights | None:
    if not is_whole(path):
        return None
    try:
        weights = read_whole(path, config, dtype)
    except (ModelError, KeyError):
        return None
    return weights if len(weights) == len(expected_shapes(config)) else None


def _unpack(file: GgufFile, config: ModelConfig, dtype: torch.dtype) -> Weights:
    if (found := file.config()) != config:
        raise ModelError(f"{file.path}: its shape is {found}, expected {config}")
    weights = Weights(config, dtype)
    for name, array in file.tensors(config):
        weights.put(name, torch.from_numpy(array))
    return weights


def _gguf(path: Path, dtype: torch.dtype, say: Progress) -> LoadedModel:
    file = GgufFile(path)
    config = _told(file.config(), str(path), say)
    tokenizer = Tokenizer(file.tokenizer_json(), config.eos_ids, file.template())
    say(f"dequantising {path.name} to {str(dtype).removeprefix('torch.')}")
    weights = _unpack(file, config, dtype)
    return LoadedModel(path.stem, config, weights, tokenizer, sha256_of(path), False, dtype)


def _folder(name: str, folder: Path, dtype: torch.dtype, say: Progress) -> LoadedModel:
    config = _told(read_hf_config(folder), name, say)
    tokenizer = folder_tokenizer(folder, config)
    config, weights, digest = read_folder(folder, config, dtype, say)
    return LoadedModel(name, config, weights, tokenizer, digest, False, dtype)


def _told(config: ModelConfig, name: str, say: Progress) -> ModelConfig:
    for remark in config.remarks:
        say(f"model {name}: {remark}")
    if not config.eos_ids:
        say(f"model {name}: it names no end token, so every answer runs to its max_tokens")
    return config
