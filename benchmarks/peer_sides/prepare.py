"""The same model, adapters and prompts in every contender's form. Files only; measures nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file

from engine.model.config import ModelConfig
from engine.model.fetch import SMOLLM2, gguf_path
from engine.model.loaders import LoadedModel
from engine.model.made_adapters import make_adapter

# Llama's linears in llama.cpp's words.
_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def model_folder(model: LoadedModel, name: str, scratch: Path) -> Path:
    """A Hugging Face folder of the model: its own, else written to `scratch`."""
    if Path(name).is_dir():
        return Path(name)
    c, folder = model.config, scratch / "model"
    folder.mkdir()
    options = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": c.vocab,
        "hidden_size": c.hidden,
        "intermediate_size": c.ff,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope_theta,
        "max_position_embeddings": c.max_context,
        "tie_word_embeddings": c.tied,
        "bos_token_id": 1,
        "eos_token_id": c.eos_ids[0] if c.eos_ids else None,
        "torch_dtype": model.dtype_name,
    }
    (folder / "config.json").write_text(json.dumps(options, indent=2))
    weights = {n: w.to(model.dtype).contiguous() for n, w in model.weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def adapters(config: ModelConfig, count: int, rank: int, scratch: Path) -> list[Path]:
    """Synthetic PEFT folders on all seven linears."""
    return [make_adapter(scratch / f"adapter-{i}", config, rank, seed=i) for i in range(count)]


def gguf_model(name: str) -> Path | None:
    """llama.cpp's file of the model; None where there is none to be had."""
    path = gguf_path() if name == SMOLLM2 else Path(name)
    return path if path.suffix == ".gguf" and path.is_file() else None


def gguf_adapter(folder: Path, config: ModelConfig) -> Path:
    """A PEFT folder as llama.cpp reads it, beside it."""
    from gguf import GGUFWriter

    options = json.loads((folder / "adapter_config.json").read_text())
    path = folder.with_suffix(".gguf")
    writer = GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(options["lora_alpha"]))
    for name, tensor in sorted(load_file(folder / "adapter_model.safetensors").items()):
        layer, module, side = _place(name)
        array = tensor.float().numpy()
        if side == "b" and module in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = config.heads if module == "self_attn.q_proj" else config.kv_heads
            array = _permuted(array, heads)
        writer.add_tensor(f"blk.{layer}.{_GGUF_NAMES[module]}.weight.lora_{side}", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _place(name: str) -> tuple[int, str, str]:
    """layer, module and side of ...layers.3.self_attn.q_proj.lora_A.weight"""
    words = name.split(".")
    at = words.index("layers")
    return int(words[at + 1]), ".".join(words[at + 2 : at + 4]), words[at + 4][-1].lower()


def _permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp rotates neighbours, Hugging Face halves: rows of each head are interleaved."""
    out, width = rows.shape
    pairs = rows.reshape(heads, 2, out // heads // 2, width)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(out, width))
