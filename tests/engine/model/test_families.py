"""Every family served computes what transformers computes, from folders and from GGUF files."""

from __future__ import annotations

import pytest
import torch
from tiny_models import FAMILIES, made, prompt, saved, worst

from engine.model.config import model_config
from engine.model.loaders import load_model

NEAR = 1e-4
ROPE = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn, all said": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 0.9,
        "truncate": False,
    },
    "yarn, factor of attention": {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64,
        "attention_factor": 1.3,
    },
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_computes_what_transformers_computes(family, tmp_path):
    reference = made(family)
    model = load_model(str(saved(reference, tmp_path / "m")), "float32")
    assert worst(model, reference, prompt()) < NEAR


@pytest.mark.parametrize("kind", ROPE)
def test_stretched_rope_is_exact_beyond_the_original_context(kind, tmp_path):
    rope = {**ROPE[kind], "rope_theta": 10_000.0}
    reference = made("Llama", rope_parameters=rope)
    model = load_model(str(saved(reference, tmp_path / "m")), "float32")
    assert worst(model, reference, prompt(240), 80) < NEAR


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("Llama", {"attention_bias": True, "mlp_bias": True}),
        ("Llama", {"tie_word_embeddings": True}),
        ("Llama", {"num_key_value_heads": 4, "head_dim": 32}),
        ("Qwen3", {"attention_bias": True, "head_dim": 32, "num_key_value_heads": 1}),
        ("Qwen2", {"tie_word_embeddings": True}),
    ],
    ids=str,
)
def test_biases_ties_and_head_sizes(family, options, tmp_path):
    reference = made(family, **options)
    model = load_model(str(saved(reference, tmp_path / "m")), "float32")
    assert model.config.tied == options.get("tie_word_embeddings", False)
    assert worst(model, reference, prompt()) < NEAR


def test_shards_are_one_model(tmp_path):
    reference = made("Qwen3")
    folder = saved(reference, tmp_path / "m", max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    model = load_model(str(folder), "float32")
    assert worst(model, reference, prompt()) < NEAR
    assert model.hash != load_model(str(saved(made("Qwen3", 2), tmp_path / "n")), "float32").hash


@pytest.mark.parametrize(("dtype", "near"), [("bfloat16", 0.3), ("float16", 0.05)])
def test_half_precision_stays_near(dtype, near, tmp_path):
    reference = made("Qwen2")
    model = load_model(str(saved(reference, tmp_path / "m")), dtype)
    assert model.dtype_name == dtype
    assert model.weights["model.layers.0.self_attn.q_proj.weight"].dtype == model.dtype
    assert model.weights["model.layers.0.self_attn.q_proj.bias"].dtype == torch.float32
    assert worst(model, reference, prompt(8), 8) < near


def test_a_window_as_long_as_it_is_served_hides_nothing(tmp_path):
    reference = made("Mistral", sliding_window=32)
    said: list[str] = []
    model = load_model(str(saved(reference, tmp_path / "m")), "float32", progress=said.append)
    assert model.config.max_context == 32 == model_config(str(tmp_path / "m")).max_context
    assert any("the context is 32 tokens, not the model's 256" in s for s in said)
    assert worst(model, reference, prompt(32)) < NEAR
