"""Small random Llama models, made by transformers, and adapters, made by PEFT."""

from __future__ import annotations

import pytest
import torch
from oracle import HfModel

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
