"""A GGUF file's metadata as a `ModelConfig`: architectures served, the rest refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import ModelError
from engine.model.config import ModelConfig, window_remark
from engine.model.gguf_header import GgufHeader, GgufTensor
from engine.model.gguf_metadata import CONTROL, Metadata, short
from engine.model.scaling import (
    FrequencyDivisors,
    LinearScaling,
    RopeScaling,
    YarnScaling,
    stretched_context,
    yarn_attention_factor,
)

ARCHITECTURES = ("llama", "qwen2", "qwen3")
ROPE_DIVISORS = "rope_freqs.weight"
_ORIGINAL = "{arch}.rope.scaling.original_context_length"

# `{architecture}.` keys that change the arithmetic, and the values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "attention.causal": (True,),
    "attention.scale": (),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "pooling_type": (0,),
    "use_parallel_residual": (False,),
    "rope.scaling.alpha": (0.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "rope.scaling.yarn_ext_factor": (1.0, -1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
}
# Ends of an answer that files name no key for, by how their tokens are written.
_ENDS = frozenset(
    ("<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>")
)


def read_config(where: str, header: GgufHeader, divisors: Sequence[float] | None) -> ModelConfig:
    """`divisors`: the content of the tensor ROPE_DIVISORS, where the file has it.

    Raises ModelError naming the key that is missing, odd or not served.
    """
    data = Metadata(where, header)
    _refuse_unserved(data)
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        if isinstance(data.get(f"{{arch}}.{key}"), list):
            raise ModelError(f"{where}: {key} is said layer by layer; equal layers are served")
    heads, hidden = data.count("{arch}.attention.head_count"), data.count("{arch}.embedding_length")
    kv_heads = data.count("{arch}.attention.head_count_kv", heads)
    head_dim = data.count("{arch}.attention.key_length", hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise ModelError(
            f"{where}: {heads} heads over {kv_heads} KV heads of {head_dim} do not divide evenly"
        )
    for key in ("attention.value_length", "rope.dimension_count"):
        if (found := data.count(f"{{arch}}.{key}", head_dim)) != head_dim:
            raise ModelError(
                f"{where}: {key} is {found}, a head has {head_dim} elements; only equal ones are "
                "served"
            )
    if divisors is not None and len(divisors) != head_dim // 2:
        raise ModelError(
            f"{where}: {ROPE_DIVISORS} has {len(divisors)} numbers, a head {head_dim // 2} pairs"
        )
    tensors = header.tensors
    vocab, tokens = _rows(where, tensors, "token_embd.weight"), data.list("tokenizer.ggml.tokens")
    if len(tokens) > vocab:
        raise ModelError(f"{where}: {len(tokens)} tokens, but an embedding for {vocab} of them")
    context, remarks = _context(data)
    return ModelConfig(
        vocab=vocab,
        hidden=hidden,
        layers=data.count("{arch}.block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ff=data.count("{arch}.feed_forward_length"),
        rope_theta=data.number("{arch}.rope.freq_base", 10_000.0),
        norm_eps=data.number("{arch}.attention.layer_norm_rms_epsilon"),
        max_context=context,
        tied="output.weight" not in tensors,
        eos_ids=_ends(data),
        rope_scaling=_scaling(data, divisors),
        biased=_biased(tensors),
        head_norms=data.architecture == "qwen3",
        remarks=remarks,
    )


def _context(data: Metadata) -> tuple[int, tuple[str, ...]]:
    """Positions served, and what is to be said of them."""
    context = data.count("{arch}.context_length")
    scaling = _scaling(data, None)
    context = stretched_context(scaling, context, data.get(_ORIGINAL) is not None)
    key = "{arch}.attention.sliding_window"
    window = data.count(key, context) if data.get(key) else context
    return (context, ()) if window >= context else (window, (window_remark(window, context),))


def _refuse_unserved(data: Metadata) -> None:
    where = data.where
    if (kind := data.get("general.type")) not in (None, "model"):
        raise ModelError(f"{where}: it holds {short(kind)}, not a model")
    if (parts := data.get("split.count")) not in (None, 0, 1):
        raise ModelError(
            f"{where}: one of {parts} split files; join them with `llama-gguf-split --merge`"
        )
    if data.architecture not in ARCHITECTURES:
        raise ModelError(
            f"{where}: architecture {data.architecture!r}; served are {', '.join(ARCHITECTURES)}"
        )
    for key, neutral in _NEUTRAL.items():
        value = data.get(f"{{arch}}.{key}")
        if value is not None and value not in neutral:
            only = f"only {neutral[0]!r} is served" if neutral else "a model without it is served"
            raise ModelError(f"{where}: {data.architecture}.{key} is {short(value)}; {only}")


def _rows(where: str, tensors: Mapping[str, GgufTensor], name: str) -> int:
    if name not in tensors:
        raise ModelError(f"{where}: tensor {name} is missing")
    return tensors[name].shape[0]


def _biased(tensors: Mapping[str, GgufTensor]) -> tuple[str, ...]:
    names = {
        "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
        "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
    }  # fmt: skip
    return tuple(m for m, name in names.items() if f"blk.0.{name}.bias" in tensors)


def _ends(data: Metadata) -> tuple[int, ...]:
    """Tokens an answer ends at: those the file names first, then those known by how they look."""
    tokens, kinds = data.list("tokenizer.ggml.tokens"), data.get("tokenizer.ggml.token_type") or []
    named = [data.token(key) for key in ("eos", "eot", "eom")]
    looks = [i for i, kind in enumerate(kinds) if kind == CONTROL and tokens[i] in _ENDS]
    return tuple(dict.fromkeys([i for i in named if i is not None] + looks))


def _scaling(data: Metadata, divisors: Sequence[float] | None) -> RopeScaling | None:
    kind = data.get("{arch}.rope.scaling.type") or "none"
    old = data.get("{arch}.rope.scale_linear")
    if kind == "none" and old not in (None, 0.0, 1.0):
        kind = "linear"
    if kind not in ("none", "linear", "yarn"):
        raise ModelError(
            f"{data.where}: RoPE scaling {short(kind)}; only 'none', 'linear' and 'yarn' are served"
        )
    if kind == "none":
        return None if divisors is None else FrequencyDivisors(tuple(divisors))
    if divisors is not None:
        raise ModelError(
            f"{data.where}: RoPE scaling {kind!r} beside the tensor {ROPE_DIVISORS}: one of both "
            "is served"
        )
    factor = data.number("{arch}.rope.scale_linear" if old else "{arch}.rope.scaling.factor")
    if kind == "linear":
        return LinearScaling(factor)
    said = data.number("{arch}.rope.scaling.attn_factor", 1.0)
    return YarnScaling(
        factor,
        data.count(_ORIGINAL, data.count("{arch}.context_length")),
        yarn_attention_factor(factor) * said,
        data.number("{arch}.rope.scaling.yarn_beta_fast", 32.0),
        data.number("{arch}.rope.scaling.yarn_beta_slow", 1.0),
    )
