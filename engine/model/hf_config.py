"""Reads a Hugging Face `config.json`: the families served, the rest refused by name. No weights.

Nothing is approximated: a key that changes the arithmetic in a way the decoder does not compute is
an error that names it. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.model.config import ATTENTION_MODULES, MLP_MODULES, ModelConfig, window_remark
from engine.model.scaling import positive, read_scaling, stretched_context

_QKV = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class _Family:
    """What an architecture's name implies and its config.json does not say."""

    always_biased: tuple[str, ...] = ()
    attention_bias: bool = False  # whether the key of this name is obeyed
    mlp_bias: bool = False
    head_norms: bool = False
    head_dim: int | None = None  # where the key is absent; None: hidden / heads
    window: str | None = None  # the key that turns `sliding_window` on; "": no key, always
    kv_heads_said: bool = True  # an absent num_key_value_heads is an error, not `heads`


_FAMILIES = {
    "LlamaForCausalLM": _Family(attention_bias=True, mlp_bias=True, kv_heads_said=False),
    "MistralForCausalLM": _Family(window=""),
    "Qwen2ForCausalLM": _Family(always_biased=_QKV, window="use_sliding_window"),
    "Qwen3ForCausalLM": _Family(
        attention_bias=True, head_norms=True, head_dim=128, window="use_sliding_window"
    ),
}
SERVED = ", ".join(_FAMILIES)

# Keys of relatives and of derivatives whose arithmetic differs, and the values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "quantization_config": (),
    "compression_config": (),
    "partial_rotary_factor": (1, 1.0),
    "rotary_pct": (1, 1.0),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "logit_cap": (),
    "attention_sinks": (False, 0),
    "embedding_multiplier": (1, 1.0),
    "attention_multiplier": (),
    "residual_multiplier": (1, 1.0),
    "logits_scaling": (1, 1.0),
    "logit_scale": (1, 1.0),
    "scale_emb": (1, 1.0),
    "scale_depth": (),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "n_routed_experts": (0,),
    "no_rope_layers": ((),),
    "no_rope_layer_interval": (0,),
    "attention_chunk_size": (),
    "use_qk_norm": (False,),
    "is_encoder_decoder": (False,),
    "parallel_attn": (False,),
}
# A layer of these kinds computes what the decoder does (within its window, where it has one).
_LAYER_TYPES = {"full_attention", "sliding_attention"}


def read_hf_config(folder: Path) -> ModelConfig:
    """Read `config.json` of a Hugging Face folder, and the end tokens of `generation_config.json`.

    `tied` is what config.json says; the weights decide where it says nothing of use (see
    `hf_folder`). Raises ModelError naming what is odd.
    """
    path = folder / "config.json"
    raw = _read_object(
        path,
        f"model {str(folder)!r}: cannot read {path.name} ({{}}); name `smollm2-135m`, `synthetic`, "
        "an `hf:org/name`, a .gguf file or a Hugging Face folder of " + SERVED,
    )
    assert raw is not None
    try:
        return _from_raw(path, raw, _refuse_unserved(path, raw), _generation_eos(folder))
    except KeyError as e:
        raise ModelError(
            f"{path}: {e.args[0]!r} is missing: fetch the model's folder again, whole"
        ) from None
    except (TypeError, ValueError, AttributeError, OverflowError) as e:
        raise ModelError(f"{path}: a value has the wrong type ({e})") from None


def _read_object(path: Path, unreadable: str | None = None) -> dict[str, Any] | None:
    """A JSON object; None for a file that cannot be read, unless `unreadable` words that."""
    try:
        if path.is_fifo():
            raise ModelError(f"{path}: a pipe, not a file: name the model's own folder")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        if unreadable is None:
            return None
        raise ModelError(unreadable.format(e.strerror)) from None
    except (ValueError, RecursionError) as e:
        raise ModelError(f"{path}: not JSON ({e}): fetch it again") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    return raw


def _generation_eos(folder: Path) -> Any:
    """What generation stops at, as transformers has it: it outranks config.json's."""
    raw = _read_object(folder / "generation_config.json")
    return None if raw is None else raw.get("eos_token_id")


def _refuse_unserved(path: Path, raw: Mapping[str, Any]) -> _Family:
    found = raw.get("architectures")
    name = found[0] if isinstance(found, list) and len(found) == 1 else None
    family = _FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise ModelError(f"{path}: architectures is {found!r}; served are {SERVED}")
    for key, neutral in _NEUTRAL.items():
        value = raw.get(key)
        value = tuple(value) if isinstance(value, list) else value
        if value is not None and value not in neutral:
            only = f"only {neutral[0]!r} is served" if neutral else "a model without it is served"
            raise ModelError(f"{path}: {key} is {raw[key]!r}; {only}")
    for key, obeyed in (("attention_bias", family.attention_bias), ("mlp_bias", family.mlp_bias)):
        if _flag(path, raw, key) and not obeyed:
            raise ModelError(f"{path}: {key} is {raw[key]!r}, which a {name} has no place for")
    code = raw.get("auto_map")
    if isinstance(code, dict) and "AutoModelForCausalLM" in code:
        raise ModelError(
            f"{path}: auto_map names code of its own ({code['AutoModelForCausalLM']}), which is "
            "never run; a folder whose arithmetic is transformers' own is served"
        )
    kinds = raw.get("layer_types") or ()
    if odd := sorted({str(k) for k in kinds} - _LAYER_TYPES):
        raise ModelError(
            f"{path}: layer_types has {odd[0]!r}; only {' and '.join(sorted(_LAYER_TYPES))} are "
            "served"
        )
    return family


def _from_raw(
    path: Path, raw: Mapping[str, Any], family: _Family, generation_eos: Any
) -> ModelConfig:
    heads, hidden = _size(path, raw, "num_attention_heads"), _size(path, raw, "hidden_size")
    kv_heads = heads
    if family.kv_heads_said or raw.get("num_key_value_heads") is not None:
        kv_heads = _size(path, raw, "num_key_value_heads", heads)
    usual = family.head_dim or hidden // heads
    head_dim = _size(path, {"head_dim": None, **raw}, "head_dim", usual)
    if heads % kv_heads or head_dim % 2:
        raise ModelError(
            f"{path}: {heads} heads over {kv_heads} KV heads of {head_dim} do not divide evenly"
        )
    # Newer files keep the base beside the scaling in `rope_parameters`, older ones apart.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if nested := [key for key, value in rope.items() if isinstance(value, dict)]:
        raise ModelError(f"{path}: RoPE differs by kind of layer ({', '.join(nested)}): not served")
    if (part := rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError(f"{path}: partial_rotary_factor is {part!r}; only 1.0 is served")
    max_context = _size(path, raw, "max_position_embeddings")
    original = raw.get("original_max_position_embeddings")
    if original is not None:  # beside the scaling instead of in it, it wins
        rope = {**rope, "original_max_position_embeddings": original}
    scaling = read_scaling(str(path), rope, max_context)
    named = rope.get("original_max_position_embeddings") is not None
    context, remarks = _windowed(path, raw, family, stretched_context(scaling, max_context, named))
    eos = raw.get("eos_token_id") if generation_eos is None else generation_eos
    biased = family.always_biased
    if _flag(path, raw, "attention_bias"):
        biased = ATTENTION_MODULES
    if _flag(path, raw, "mlp_bias"):
        biased += MLP_MODULES
    return ModelConfig(
        vocab=_size(path, raw, "vocab_size"),
        hidden=hidden,
        layers=_size(path, raw, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ff=_size(path, raw, "intermediate_size"),
        rope_theta=positive(str(path), "rope_theta", _first(rope, raw, "rope_theta", 10_000.0)),
        norm_eps=positive(str(path), "rms_norm_eps", raw.get("rms_norm_eps", 1e-6)),
        max_context=context,
        tied=_flag(path, raw, "tie_word_embeddings"),
        eos_ids=_ends(path, eos),
        rope_scaling=scaling,
        biased=biased,
        head_norms=family.head_norms,
        remarks=remarks,
    )


def _size(path: Path, raw: Mapping[str, Any], key: str, null: int | None = None) -> int:
    """A whole number from 1; `null` where null is written. Raises KeyError for a missing one."""
    value = raw[key]
    if value is None and null is not None:
        return null
    if type(value) is not int or not 1 <= value < 1 << 31:
        raise ModelError(f"{path}: {key} is {value!r}; expected a whole number from 1")
    return value


def _flag(path: Path, raw: Mapping[str, Any], key: str) -> bool:
    """Absent and null are false. The text "false" is no false: it would turn on what it denies."""
    value = raw.get(key)
    if value is None:
        return False
    if type(value) not in (bool, int) or value not in (0, 1):
        raise ModelError(f"{path}: {key} is {value!r}; expected true or false")
    return bool(value)


def _first(rope: Mapping[str, Any], raw: Mapping[str, Any], key: str, usual: float) -> Any:
    """Of the newer place, else of the older; a 0 there is an answer, and a wrong one."""
    found = rope.get(key) if rope.get(key) is not None else raw.get(key)
    return usual if found is None else found


def _ends(path: Path, eos: Any) -> tuple[int, ...]:
    """The end tokens. With one misread no answer ends, so no text is taken for a number."""
    ids = eos if isinstance(eos, list) else () if eos is None else (eos,)
    for token in ids:
        if type(token) is not int:
            raise ModelError(f"{path}: eos_token_id is {eos!r}; expected a token's id, or several")
    return tuple(ids)


def _windowed(
    path: Path, raw: Mapping[str, Any], family: _Family, context: int
) -> tuple[int, tuple[str, ...]]:
    """Up to its length a sliding window hides nothing: so far, and no further, the model is served
    exactly."""
    if family.window is None or (family.window and not _flag(path, raw, family.window)):
        return context, ()
    if not raw.get("sliding_window"):
        return context, ()
    window = _size(path, raw, "sliding_window")
    return (context, ()) if window >= context else (window, (window_remark(window, context),))
