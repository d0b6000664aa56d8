"""Reads SmolLM2's GGUF file: shape, tokenizer and dequantised weights, as numpy. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelError
from engine.model.config import ModelConfig

_CONTROL = 3  # GGUF's token type of special tokens
_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufFile:
    """An open GGUF file. Raises ModelError when it is not one, or not of the llama architecture."""

    def __init__(self, path: Path) -> None:
        import gguf

        self.path = path
        try:
            self._reader = gguf.GGUFReader(path)
        except (OSError, ValueError, IndexError) as e:
            raise ModelError(f"{path}: not a GGUF file ({e})") from None
        if (found := self._value("general.architecture")) != "llama":
            raise ModelError(f"{path}: architecture {found!r}; only 'llama' is supported")

    def _value(self, key: str) -> Any:
        field = self._reader.fields.get(key)
        if field is None:
            raise ModelError(f"{self.path}: {key} is missing")
        return field.contents()

    def config(self) -> ModelConfig:
        heads = int(self._value("llama.attention.head_count"))
        hidden = int(self._value("llama.embedding_length"))
        names = {t.name for t in self._reader.tensors}
        eos = int(self._value("tokenizer.ggml.eos_token_id"))
        unknown = int(self._value("tokenizer.ggml.unknown_token_id"))
        return ModelConfig(
            vocab=int(self._value("llama.vocab_size")),
            hidden=hidden,
            layers=int(self._value("llama.block_count")),
            heads=heads,
            kv_heads=int(self._value("llama.attention.head_count_kv")),
            head_dim=hidden // heads,
            ff=int(self._value("llama.feed_forward_length")),
            rope_theta=float(self._value("llama.rope.freq_base")),
            # Stored as float32: 9.999999747378752e-06 means 1e-5.
            norm_eps=float(f"{self._value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
            max_context=int(self._value("llama.context_length")),
            tied="output.weight" not in names,
            eos_ids=(eos, unknown),  # SmolLM2's unknown token is <|endoftext|>, an end as well
        )

    def tokenizer_json(self) -> str:
        """The tokenizer as `tokenizers` serialises it: BPE, digits apart, byte level."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        tokens = self._value("tokenizer.ggml.tokens")
        merges = [tuple(m.split(" ", 1)) for m in self._value("tokenizer.ggml.merges")]
        vocab = {token: i for i, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        kinds = self._value("tokenizer.ggml.token_type")
        tokenizer.add_special_tokens(
            [
                AddedToken(token, special=True, normalized=False)
                for token, kind in zip(tokens, kinds, strict=True)
                if kind == _CONTROL
            ]
        )
        text = tokenizer.to_str()
        json.loads(text)
        return str(text)

    def chat_template(self) -> str:
        return str(self._value("tokenizer.chat_template"))

    def tensors(self, config: ModelConfig) -> Iterator[tuple[str, np.ndarray]]:
        """(Hugging Face name, float32 array) of every weight, one at a time."""
        import gguf

        for t in self._reader.tensors:
            array = gguf.dequantize(t.data, t.tensor_type)
            if ".attn_q." in t.name:
                array = _unpermute(array, config.heads)
            elif ".attn_k." in t.name:
                array = _unpermute(array, config.kv_heads)
            yield _hugging_face_name(t.name), np.array(array, dtype=np.float32, order="C")


def _hugging_face_name(name: str) -> str:
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{suffix}"


def _unpermute(array: np.ndarray, heads: int) -> np.ndarray:
    """Undo GGUF's interleaving of rotary halves: rows go back to (first half, second half)."""
    out, width = array.shape
    return array.reshape(heads, out // heads // 2, 2, width).swapaxes(1, 2).reshape(out, width)
