"""Writes tiny GGUF files of transformers models, as llama.cpp's own converter lays them out."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from tiny_models import VOCAB

from engine.model.text import synthetic_json

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}  # fmt: skip


class TinyGguf:
    """A writer with a model's metadata set; add or override keys, then `write`."""

    def __init__(self, path: Path, arch: str, model) -> None:
        self.path, self.arch, self.model = path, arch, model
        self.writer = w = gguf.GGUFWriter(path, arch)
        c = model.config
        w.add_block_count(c.num_hidden_layers)
        w.add_context_length(c.max_position_embeddings)
        w.add_embedding_length(c.hidden_size)
        w.add_feed_forward_length(c.intermediate_size)
        w.add_head_count(c.num_attention_heads)
        w.add_head_count_kv(c.num_key_value_heads)
        w.add_key_length(self.head_dim)
        w.add_value_length(self.head_dim)
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
        w.add_rope_freq_base(c.rope_parameters["rope_theta"])

    @property
    def head_dim(self) -> int:
        c = self.model.config
        return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads

    def byte_vocabulary(self, cut: str = "gpt-2", special=(0,)) -> TinyGguf:
        """The synthetic tokenizer, as a byte-level vocabulary."""
        import json

        made = json.loads(synthetic_json(VOCAB))["model"]
        tokens = sorted(made["vocab"], key=made["vocab"].get)
        kinds = [3 if i in special else 1 for i in range(len(tokens))]
        self.vocabulary("gpt2", cut, tokens, kinds)
        merges = [m if isinstance(m, str) else " ".join(m) for m in made["merges"]]
        self.writer.add_token_merges(merges)
        self.writer.add_eos_token_id(0)
        return self

    def vocabulary(self, kind: str, cut: str, tokens, kinds, scores=None) -> None:
        self.writer.add_tokenizer_model(kind)
        self.writer.add_tokenizer_pre(cut)
        self.writer.add_token_list(tokens)
        self.writer.add_token_types(kinds)
        if scores is not None:
            self.writer.add_token_scores(scores)

    def write(self, kind: str = "F32", leave_out: str = "", divisors=None) -> Path:
        """`kind`: ggml's type of the matrices."""
        for name, tensor in self.model.state_dict().items():
            if name == leave_out or (name == "lm_head.weight" and self._tied):
                continue
            array = tensor.numpy().astype(np.float32)
            stored, array = self._stored(name, array)
            if array.ndim == 2 and kind != "F32":
                quant = gguf.GGMLQuantizationType[kind]
                self.writer.add_tensor(stored, gguf.quantize(array, quant), raw_dtype=quant)
            else:
                self.writer.add_tensor(stored, np.ascontiguousarray(array))
        if divisors is not None:
            self.writer.add_tensor("rope_freqs.weight", np.array(divisors, dtype=np.float32))
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path

    @property
    def _tied(self) -> bool:
        return self.model.config.tie_word_embeddings

    def _stored(self, name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
        stem, suffix = name.rsplit(".", 1)
        top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
        if stem in top:
            return f"{top[stem]}.{suffix}", array
        _, _, layer, room, *rest = stem.split(".")
        short = NAMES[".".join([room, *rest])]
        c = self.model.config
        heads = {"attn_q": c.num_attention_heads, "attn_k": c.num_key_value_heads}.get(short)
        if self.arch == "llama" and heads is not None:
            half = array.shape[0] // heads // 2
            parts = array.reshape(heads, 2, half, *array.shape[1:])
            array = parts.swapaxes(1, 2).reshape(array.shape)
        return f"blk.{layer}.{short}.{suffix}", array
