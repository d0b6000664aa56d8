"""The Llama decoder on a ragged batch: RMSNorm, RoPE, SwiGLU; residual stream in float32.

Knows weights and math. Where keys and values live, and which rows carry which adapter, is told
through `Attend` and `StepLora`.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F

from engine.model.config import ModelConfig
from engine.model.linear import Linear
from engine.model.loaders import LoadedModel, layer_weight_names
from kernels.backend import GROUPS, StepLora


class Attend(Protocol):
    def attend(self, layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """Store kv [T, 2 x kv width], attend with q [T, q width]; both after RoPE, in the
        weights' dtype. Returns [T, q width]."""
        ...


class _Layer:
    """One layer's weights, fused by common input and packed."""

    def __init__(self, model: LoadedModel, layer: int) -> None:
        names = layer_weight_names(layer)
        self.linears = {
            group: Linear(torch.cat([model.weights[names[m]] for m in modules]))
            for group, modules in GROUPS.items()
        }
        prefix = f"model.layers.{layer}"
        self.norm_attention = model.weights[f"{prefix}.input_layernorm.weight"]
        self.norm_mlp = model.weights[f"{prefix}.post_attention_layernorm.weight"]


class Decoder:
    """All layers of a model, without the output head."""

    def __init__(self, model: LoadedModel) -> None:
        self.config = model.config
        self._dtype = model.dtype
        self._embedding = model.weights["model.embed_tokens.weight"]
        self._norm = model.weights["model.norm.weight"]
        self._layers = [_Layer(model, i) for i in range(model.config.layers)]
        self._cos, self._sin = rope_tables(model.config)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        attention: Attend,
        lora: StepLora | None,
        last: torch.Tensor,
    ) -> torch.Tensor:
        """Final normed hidden states of the rows `last`: float32 [len(last), hidden].

        tokens, positions: int64 [T].
        """
        c = self.config
        x = F.embedding(tokens, self._embedding).float()
        cos, sin = self._cos[positions][:, None, :], self._sin[positions][:, None, :]
        for i, layer in enumerate(self._layers):
            h = self._normed(x, layer.norm_attention)
            qkv = self._linear(layer, i, "qkv", h, lora)
            rotate(qkv[:, : c.q_width + c.kv_width].view(len(x), -1, c.head_dim), cos, sin)
            attended = attention.attend(i, qkv[:, : c.q_width], qkv[:, c.q_width :])
            x += self._linear(layer, i, "o", attended, lora)
            h = self._normed(x, layer.norm_mlp)
            up = self._linear(layer, i, "gate_up", h, lora)
            activated = F.silu(up[:, : c.ff]).mul_(up[:, c.ff :])
            x += self._linear(layer, i, "down", activated, lora)
        return F.rms_norm(x[last], (c.hidden,), self._norm, c.norm_eps)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        c = self.config
        return F.rms_norm(x, (c.hidden,), weight, c.norm_eps).to(self._dtype)

    @staticmethod
    def _linear(
        layer: _Layer, index: int, group: str, x: torch.Tensor, lora: StepLora | None
    ) -> torch.Tensor:
        y = layer.linears[group](x)
        if lora is not None:
            lora.apply(index, group, x, y)
        return y


def rope_tables(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and signed sin of every position: float32 [max_context, head_dim] each.

    The sign of the rotation of halves, (−second, first), is folded into sin.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequency = 1.0 / (config.rope_theta**half)
    if (s := config.rope_scaling) is not None:
        # Llama 3.1: long waves are stretched, short ones kept, those between interpolated.
        wave = 2 * math.pi / frequency
        share = (s.original_context / wave - s.low_freq_factor) / (
            s.high_freq_factor - s.low_freq_factor
        )
        share = share.clamp(0.0, 1.0)
        frequency = (1 - share) * frequency / s.factor + share * frequency
    angle = torch.arange(config.max_context, dtype=torch.float32)[:, None] * frequency[None, :]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """RoPE in place. heads [T, heads, head_dim]; cos, sin float32 [T, 1, head_dim]."""
    swapped = heads.roll(heads.shape[-1] // 2, -1)
    heads.copy_((heads * cos).addcmul_(swapped, sin))
