"""The shape of a Llama-family model, as a value. Reads config.json; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import ModelError

ATTENTION_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_MODULES = ("gate_proj", "up_proj", "down_proj")
MODULES = ATTENTION_MODULES + MLP_MODULES


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """The `llama3` stretch of RoPE frequencies (Llama 3.1 and later)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of the decoder. `max_context` counts prompt and output tokens."""

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


def model_config(name: str) -> ModelConfig:
    """The shape of a model by name, without reading weights or downloading anything.

    Raises ModelError for a folder whose config.json is missing or unsupported.
    """
    if name == "smollm2-135m":
        return SMOLLM2_135M
    if name == "synthetic":
        return _SYNTHETIC
    return read_hf_config(Path(name))


def read_hf_config(folder: Path) -> ModelConfig:
    """Read `config.json` of a Hugging Face Llama folder. Raises ModelError naming what is odd."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ModelError(
            f"model {str(folder)!r}: cannot read {path.name} ({e.strerror}); name `smollm2-135m`, "
            "`synthetic` or a folder with a Hugging Face Llama model"
        ) from None
    except ValueError as e:
        raise ModelError(f"{path}: not JSON ({e})") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    _refuse_unsupported(path, raw)
    try:
        return _from_raw(path, raw)
    except KeyError as e:
        raise ModelError(f"{path}: {e.args[0]!r} is missing") from None
    except (TypeError, ValueError) as e:
        raise ModelError(f"{path}: a value has the wrong type ({e})") from None


def _refuse_unsupported(path: Path, raw: Mapping[str, Any]) -> None:
    found = raw.get("architectures")
    if found != ["LlamaForCausalLM"]:
        raise ModelError(
            f"{path}: architectures is {found!r}; only ['LlamaForCausalLM'] is supported"
        )
    for key, allowed in (
        ("hidden_act", "silu"),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("quantization_config", None),
        ("partial_rotary_factor", 1.0),
    ):
        value = raw.get(key, allowed)
        if value not in (allowed, None):
            raise ModelError(f"{path}: {key} is {value!r}; only {allowed!r} is supported")


def _from_raw(path: Path, raw: Mapping[str, Any]) -> ModelConfig:
    heads = int(raw["num_attention_heads"])
    hidden = int(raw["hidden_size"])
    kv_heads = int(raw.get("num_key_value_heads") or heads)
    head_dim = int(raw.get("head_dim") or hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise ModelError(
            f"{path}: {heads} heads over {kv_heads} KV heads of {head_dim} do not divide evenly"
        )
    # Newer files keep the base beside the scaling in `rope_parameters`, older ones apart.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    eos = raw.get("eos_token_id")
    eos_ids = tuple(eos) if isinstance(eos, list) else (() if eos is None else (int(eos),))
    return ModelConfig(
        vocab=int(raw["vocab_size"]),
        hidden=hidden,
        layers=int(raw["num_hidden_layers"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ff=int(raw["intermediate_size"]),
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        max_context=int(raw["max_position_embeddings"]),
        tied=bool(raw.get("tie_word_embeddings", False)),
        eos_ids=eos_ids,
        rope_scaling=_scaling(path, rope),
    )


def _scaling(path: Path, rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise ModelError(
            f"{path}: RoPE scaling {kind!r}; only 'default' and 'llama3' are supported"
        )
    return RopeScaling(
        float(rope["factor"]),
        float(rope["low_freq_factor"]),
        float(rope["high_freq_factor"]),
        int(rope["original_max_position_embeddings"]),
    )
