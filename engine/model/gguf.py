"""A GGUF file: shape, tokenizer and dequantised weights, under Hugging Face's names. No torch."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelError
from engine.model.chat_template import NoTemplate, Template, made
from engine.model.config import ModelConfig
from engine.model.gguf_config import ROPE_DIVISORS, read_config
from engine.model.gguf_header import GgufTensor, read_header
from engine.model.gguf_metadata import Metadata
from engine.model.gguf_tokenizer import special_tokens, tokenizer_json
from engine.model.tensor_names import check_tensors

_GLOBAL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufFile:
    """A GGUF file of a served architecture. Raises ModelError when it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._where = str(path)
        self._header = read_header(path)
        self._data = Metadata(self._where, self._header)

    def config(self) -> ModelConfig:
        """Raises ModelError for what is not served."""
        divisors = None
        if (tensor := self._header.tensors.get(ROPE_DIVISORS)) is not None:
            with self._mapped() as data:
                divisors = self._array(data, tensor).ravel().tolist()
        return read_config(self._where, self._header, divisors)

    def tokenizer_json(self) -> str:
        """The tokenizer as `tokenizers` serialises it."""
        return tokenizer_json(self._data)

    def chat_template(self) -> str:
        """The template's source; "" where the file has none."""
        return str(self._data.get("tokenizer.chat_template") or "")

    def template(self) -> Template:
        """The template, ready for messages."""
        if not (source := self.chat_template()):
            return NoTemplate("this model's file has no chat template: use POST /v1/completions")
        return made(source, special_tokens(self._data))

    def tensors(self, config: ModelConfig) -> Iterator[tuple[str, np.ndarray]]:
        """(Hugging Face name, float32 array) of every weight, one at a time.

        Raises ModelError for a tensor that is missing or one too many, of another shape, or of an
        unknown kind.
        """
        named = {_hugging_face_name(t.name): t for t in self._header.tensors.values()}
        named.pop("", None)
        shapes = {n: t.shape for n, t in named.items()}
        extra = check_tensors(self._where, config, shapes, "the file's metadata")
        if extra:  # these architectures have no more tensors than are computed with
            raise ModelError(
                f"{self._where}: tensor {named[extra[0]].name} is there, which a "
                f"{self._data.architecture!r} model has no use for here: it is not left out"
            )
        with self._mapped() as data:
            for name, tensor in named.items():
                array = self._array(data, tensor)
                if self._data.architecture == "llama":
                    array = _unpermuted(name, array, config)
                yield name, np.array(array, dtype=np.float32, order="C")

    @contextmanager
    def _mapped(self) -> Iterator[mmap.mmap]:
        with (
            self.path.open("rb") as f,
            mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            yield data

    def _array(self, data: mmap.mmap, tensor: GgufTensor) -> np.ndarray:
        import gguf

        try:
            kind = gguf.GGMLQuantizationType(tensor.kind)
            per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise ModelError(
                f"{self._where}: {tensor.name} is of ggml type {tensor.kind}, which is not known"
            ) from None
        elements = int(np.prod(tensor.shape, dtype=np.int64))
        if tensor.shape[-1] % per_block:
            raise ModelError(f"{self._where}: {tensor.name} has rows of no whole {kind.name} block")
        stop = tensor.at + elements // per_block * block_bytes
        if stop > self._header.file_bytes:
            raise ModelError(
                f"{self._where}: cut short: {tensor.name} ends at byte {stop}, the file at "
                f"{self._header.file_bytes}; fetch it again"
            )
        raw = np.frombuffer(data[tensor.at : stop], dtype=np.uint8)
        rows = raw.reshape(*tensor.shape[:-1], -1)
        plain: Mapping[str, Any] = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
        if kind.name in plain:
            return rows.view(plain[kind.name])
        try:
            found: np.ndarray = gguf.dequantize(rows, kind)
        except NotImplementedError:
            raise ModelError(
                f"{self._where}: {tensor.name} is {kind.name}, which cannot be dequantised here; "
                "Q4_K_M, Q8_0, BF16 and most others can"
            ) from None
        return found


def _hugging_face_name(name: str) -> str:
    """ "" for RoPE's divisors, which are part of the config."""
    if name == ROPE_DIVISORS:
        return ""
    stem, _, suffix = name.rpartition(".")
    if stem in _GLOBAL_NAMES:
        return f"{_GLOBAL_NAMES[stem]}.{suffix}"
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[1].isdecimal():
        return f"model.layers.{parts[1]}.{_LAYER_NAMES.get(parts[2], parts[2])}.{suffix}"
    return name


def _unpermuted(name: str, array: np.ndarray, config: ModelConfig) -> np.ndarray:
    """Undo the interleaving of rotary halves that llama's q and k have in GGUF: rows go back to
    (first half, second half)."""
    heads = {".q_proj.": config.heads, ".k_proj.": config.kv_heads}
    count = next((n for part, n in heads.items() if part in name), None)
    if count is None:
        return array
    rows = array.shape[0]
    parts = array.reshape(count, rows // count // 2, 2, *array.shape[1:])
    return parts.swapaxes(1, 2).reshape(array.shape)
