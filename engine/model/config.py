"""The shape of a decoder of the Llama family, as a value. Imports no torch, opens no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.model.scaling import RopeScaling

ATTENTION_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_MODULES = ("gate_proj", "up_proj", "down_proj")
MODULES = ATTENTION_MODULES + MLP_MODULES


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of the decoder. `max_context` counts prompt and output tokens.

    biased: the linears that add a bias. head_norms: q and k are normed per head before RoPE
    (Qwen3). remarks: what a person should be told of this model, in sentences.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    rope_theta: float
    norm_eps: float
    max_context: int
    tied: bool
    eos_ids: tuple[int, ...] = ()
    rope_scaling: RopeScaling | None = None
    biased: tuple[str, ...] = ()
    head_norms: bool = False
    remarks: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    def module_shape(self, module: str) -> tuple[int, int]:
        """(out, in) of a linear of every layer. Raises KeyError for a name not in MODULES."""
        return {
            "q_proj": (self.q_width, self.hidden),
            "k_proj": (self.kv_width, self.hidden),
            "v_proj": (self.kv_width, self.hidden),
            "o_proj": (self.hidden, self.q_width),
            "gate_proj": (self.ff, self.hidden),
            "up_proj": (self.ff, self.hidden),
            "down_proj": (self.hidden, self.ff),
        }[module]


def window_remark(window: int, context: int) -> str:
    """Why a model is served with less context than it has, tokens each."""
    return (
        f"attention slides over {window} tokens: up to there it equals full attention, so the "
        f"context is {window} tokens, not the model's {context}"
    )


SMOLLM2_135M = ModelConfig(
    vocab=49_152,
    hidden=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ff=1536,
    rope_theta=100_000.0,
    norm_eps=1e-5,
    max_context=8192,
    tied=True,
    eos_ids=(2, 0),  # <|im_end|>, <|endoftext|>
)

_SYNTHETIC = ModelConfig(
    vocab=512,
    hidden=128,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=32,
    ff=256,
    rope_theta=10_000.0,
    norm_eps=1e-5,
    max_context=4096,
    tied=False,
    eos_ids=(0,),
)


def synthetic_config(**overrides: Any) -> ModelConfig:
    """The synthetic model's shape, with any field replaced."""
    return replace(_SYNTHETIC, **overrides)


def model_path(name: str) -> Path:
    """Raises ModelError for a name that is no path: an empty one would be the current folder."""
    if not name.strip() or "\0" in name:
        raise ModelError(
            f"model {name!r}: name `smollm2-135m`, `synthetic`, an `hf:org/name`, a .gguf file or "
            "a Hugging Face folder"
        )
    return Path(name)


def model_config(name: str, progress: Callable[[str], None] | None = None) -> ModelConfig:
    """The shape of a model by name (see `loaders.load_model`), without reading weights: config.json
    of a folder or of an `hf:` model (fetched when it is not cached), the header of a GGUF file.

    Raises ModelError for one that is not there or not served.
    """
    if name == "smollm2-135m":
        return SMOLLM2_135M
    if name == "synthetic":
        return _SYNTHETIC
    from engine.model.hf_config import read_hf_config
    from engine.model.hub import config_folder, is_hub_name

    if is_hub_name(name):
        return read_hf_config(config_folder(name, progress))
    path = model_path(name)
    if path.suffix == ".gguf":
        from engine.model.gguf import GgufFile

        return GgufFile(path).config()
    return read_hf_config(path)
