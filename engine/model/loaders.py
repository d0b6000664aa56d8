"""Loads a base model by name: SmolLM2 (cached), a synthetic one, or a Hugging Face Llama folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from engine.errors import ModelError
from engine.model.cache import is_whole, locked, write_sealed
from engine.model.config import ModelConfig, model_config, read_hf_config, synthetic_config
from engine.model.fetch import (
    GGUF_SHA256,
    SMOLLM2,
    DownloadPlan,
    gguf_path,
    plan_download,
)
from engine.model.text import Tokenizer, load_tokenizer, synthetic_json

__all__ = [
    "DownloadPlan",
    "LoadedModel",
    "load_model",
    "model_config",
    "pick_dtype",
    "plan_download",
    "synthetic_config",
    "synthetic_model",
]

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A base model in memory. `weights` carry Hugging Face's Llama names, all of `dtype` except
    the norms, which stay float32. `hash` identifies the content (sha256 hex)."""

    name: str
    config: ModelConfig
    weights: Mapping[str, torch.Tensor]
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
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
    except KeyError:
        raise ModelError(f"dtype {dtype!r}: expected auto, bfloat16 or float32") from None


def load_model(
    name: str = SMOLLM2,
    dtype: str = "auto",
    cache_dir: Path | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """Load `smollm2-135m`, `synthetic`, or the Hugging Face Llama folder at path `name`.

    `progress` is told, in sentences, what takes time. Raises ModelError when the model cannot be
    had or is not supported.
    """
    kind = pick_dtype(dtype)
    if name == SMOLLM2:
        return _smollm2(kind, cache_dir, progress or (lambda _: None))
    if name == "synthetic":
        return synthetic_model(synthetic_config(), kind)
    return _folder(Path(name), kind)


def synthetic_model(
    config: ModelConfig, dtype: torch.dtype = torch.float32, seed: int = 0
) -> LoadedModel:
    """A seeded random Llama that generates nonsense at the right shapes: labelled synthetic."""
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, width: int, scale: float) -> torch.Tensor:
        return torch.randn(rows, width, generator=generator) * scale

    weights = {"model.norm.weight": torch.ones(config.hidden)}
    weights["model.embed_tokens.weight"] = normal(config.vocab, config.hidden, 1.0)
    if not config.tied:
        weights["lm_head.weight"] = normal(config.vocab, config.hidden, config.hidden**-0.5)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{norm}.weight"] = torch.ones(config.hidden)
        for module, full in layer_weight_names(layer).items():
            out, width = config.module_shape(module)
            weights[full] = normal(out, width, width**-0.5)
    digest = hashlib.sha256(f"synthetic {config} {seed}".encode()).hexdigest()
    return LoadedModel(
        name=f"synthetic-{config.layers}x{config.hidden}",
        config=config,
        weights=_cast(weights, dtype),
        tokenizer=Tokenizer(synthetic_json(config.vocab), config.eos_ids),
        hash=digest,
        synthetic=True,
        dtype=dtype,
    )


def layer_weight_names(layer: int) -> dict[str, str]:
    """Module -> name of its weight in layer `layer`."""
    prefix = f"model.layers.{layer}"
    names = {m: f"{prefix}.self_attn.{m}.weight" for m in ("q_proj", "k_proj", "v_proj", "o_proj")}
    return names | {m: f"{prefix}.mlp.{m}.weight" for m in ("gate_proj", "up_proj", "down_proj")}


def _cast(weights: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {n: w.to(torch.float32 if w.dim() == 1 else dtype) for n, w in weights.items()}


def _smollm2(dtype: torch.dtype, cache_dir: Path | None, say: Progress) -> LoadedModel:
    tokenizer = load_tokenizer(SMOLLM2, cache_dir, say)  # fetches and checks the file
    path = gguf_path(cache_dir)
    config = model_config(SMOLLM2)
    name = str(dtype).removeprefix("torch.")
    ready = path.with_name(f"weights-{name}.safetensors")
    with locked(path.parent, lambda: say("another process is preparing the weights; waiting")):
        weights = _read_ready(ready)
        if weights is None:
            say(f"unpacking SmolLM2-135M to {name}, once")
            weights = _unpack(path, config, dtype)
            try:
                write_sealed(ready, lambda temporary: save_file(weights, temporary))
            except (OSError, SafetensorError) as e:
                say(f"the unpacked weights could not be kept in {path.parent}: {e}")
    return LoadedModel(SMOLLM2, config, weights, tokenizer, GGUF_SHA256, False, dtype)


def _read_ready(path: Path) -> dict[str, torch.Tensor] | None:
    if not is_whole(path):
        return None
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError):
        return None


def _unpack(path: Path, config: ModelConfig, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    from engine.model.gguf import GgufFile

    opened = GgufFile(path)
    if opened.config() != config:
        raise ModelError(f"{path}: its shape is {opened.config()}, expected {config}")
    arrays = opened.tensors(config)
    return _cast({name: torch.from_numpy(array) for name, array in arrays}, dtype)


def _folder(folder: Path, dtype: torch.dtype) -> LoadedModel:
    config = read_hf_config(folder)
    tokenizer = load_tokenizer(str(folder))
    digest = hashlib.sha256(repr(config).encode())
    weights: dict[str, torch.Tensor] = {}
    for path in _weight_files(folder):
        try:
            weights.update(load_file(path))
        except (OSError, SafetensorError) as e:
            raise ModelError(f"{path}: cannot be read ({e})") from None
        with path.open("rb") as f:
            digest.update(hashlib.file_digest(f, "sha256").digest())
    _check_shapes(folder, config, weights)
    name = folder.resolve().name
    return LoadedModel(
        name, config, _cast(weights, dtype), tokenizer, digest.hexdigest(), False, dtype
    )


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ModelError(f"{index}: not an index of weight files ({e})") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index}: {name!r} is not a file of this folder")
    return [folder / n for n in names]


def _check_shapes(folder: Path, config: ModelConfig, weights: dict[str, torch.Tensor]) -> None:
    expected = {
        "model.embed_tokens.weight": (config.vocab, config.hidden),
        "model.norm.weight": (config.hidden,),
    }
    if not config.tied:
        expected["lm_head.weight"] = (config.vocab, config.hidden)
    for layer in range(config.layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            expected[f"model.layers.{layer}.{norm}.weight"] = (config.hidden,)
        for module, full in layer_weight_names(layer).items():
            expected[full] = config.module_shape(module)
    for name, shape in expected.items():
        found = weights.get(name)
        if found is None:
            raise ModelError(f"model {str(folder)!r}: tensor {name} is missing")
        if tuple(found.shape) != shape:
            raise ModelError(
                f"model {str(folder)!r}: {name} has shape {tuple(found.shape)}, "
                f"config.json says {shape}"
            )
        if not found.is_floating_point():
            raise ModelError(f"model {str(folder)!r}: {name} is {found.dtype}, expected floats")
    for name in [n for n in weights if n not in expected]:
        del weights[name]
