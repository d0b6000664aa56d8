"""Small random Llama models, made by transformers, and adapters, made by PEFT; and SmolLM2."""

from __future__ import annotations

import pytest
import torch
from oracle import HfModel
from oracle_judge import Judge

from engine.errors import ModelError
from engine.model.loaders import load_model

torch.set_num_threads(1)  # the suite runs on several workers: one core each


@pytest.fixture(scope="session")
def tied(tmp_path_factory):
    return HfModel(
        tmp_path_factory.mktemp("tied"),
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, rope_theta=10_000.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def untied(tmp_path_factory):
    return HfModel(
        tmp_path_factory.mktemp("untied"),
        hidden_size=96, intermediate_size=160, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=32, tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 50_000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    )  # fmt: skip


@pytest.fixture(scope="session")
def smollm2():
    try:
        return load_model("smollm2-135m", "float32")
    except ModelError as e:
        pytest.skip(f"SmolLM2-135M cannot be had here: {e}")


@pytest.fixture(scope="session")
def smollm2_hf(smollm2):
    """Makes the transformers model of SmolLM2's shape, weights random."""
    from transformers import LlamaConfig, LlamaForCausalLM

    c = smollm2.config
    config = LlamaConfig(
        vocab_size=c.vocab, hidden_size=c.hidden, intermediate_size=c.ff,
        num_hidden_layers=c.layers, num_attention_heads=c.heads, num_key_value_heads=c.kv_heads,
        rope_theta=c.rope_theta, rms_norm_eps=c.norm_eps, max_position_embeddings=c.max_context,
        tie_word_embeddings=True,
    )  # fmt: skip
    return lambda: LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def smollm2_judge(smollm2, smollm2_hf):
    model = smollm2_hf()
    missing = model.load_state_dict(dict(smollm2.weights), strict=False)
    assert missing.missing_keys in ([], ["lm_head.weight"])
    return Judge(model)
