"""The Llama decoder on a ragged batch: RMSNorm, RoPE, SwiGLU; residual stream in float32.

Knows weights and the order of things. The math between the linears, and where keys and values
live, is `StepOps`; which rows carry which adapter is `StepLora`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from engine.model.loaders import LoadedModel
from engine.model.tensor_names import (
    EMBEDDING,
    K_NORM,
    NORM,
    NORM_ATTENTION,
    NORM_MLP,
    Q_NORM,
    layer_prefix,
)
from kernels.backend import GROUPS, HeadNorms, StepLora, StepOps

# The linears that write to the residual stream: where a model is cut into ranks, each has a part of
# their inputs, and their outputs are partial sums.
_SUMMED = frozenset({"o", "down"})


class _Layer:
    """One layer's weights, fused by common input and packed."""

    def __init__(self, model: LoadedModel, layer: int) -> None:
        weights, prefix = model.weights, layer_prefix(layer)
        self.linears = {group: weights.linear(layer, group) for group in GROUPS}
        self.norm_attention = weights[f"{prefix}{NORM_ATTENTION}.weight"]
        self.norm_mlp = weights[f"{prefix}{NORM_MLP}.weight"]
        self.head_norms: HeadNorms | None = None
        if model.config.head_norms:
            self.head_norms = HeadNorms(
                weights[f"{prefix}{Q_NORM}.weight"], weights[f"{prefix}{K_NORM}.weight"]
            )


class Decoder:
    """All layers of a model, without the output head."""

    def __init__(
        self, model: LoadedModel, join: Callable[[torch.Tensor], None] | None = None
    ) -> None:
        """`join`: of one rank's part of a model, sums a tensor over all ranks, in place."""
        self.config = model.config
        self._join = join
        self._embedding = model.weights[EMBEDDING]
        self._norm = model.weights[NORM]
        self._layers = [_Layer(model, i) for i in range(model.config.layers)]

    def forward(
        self,
        tokens: torch.Tensor,
        ops: StepOps,
        lora: StepLora | None,
        last: torch.Tensor,
    ) -> torch.Tensor:
        """Final normed hidden states of the rows `last`: float32 [len(last), hidden].

        tokens: int64 [T].
        """
        c = self.config
        x = F.embedding(tokens, self._embedding).float()
        added: torch.Tensor | None = None  # what the layer before adds to the residual stream
        for i, layer in enumerate(self._layers):
            h = ops.normed(x, added, layer.norm_attention)
            qkv = self._linear(layer, i, "qkv", h, lora)
            attended = ops.attend(i, qkv, layer.head_norms)
            h = ops.normed(x, self._linear(layer, i, "o", attended, lora), layer.norm_mlp)
            gate_up = self._linear(layer, i, "gate_up", h, lora)
            added = self._linear(layer, i, "down", ops.gated(gate_up), lora)
        ending = x[last] if added is None else x[last] + added[last]
        return F.rms_norm(ending, (c.hidden,), self._norm, c.norm_eps)

    def _linear(
        self, layer: _Layer, index: int, group: str, x: torch.Tensor, lora: StepLora | None
    ) -> torch.Tensor:
        y = layer.linears[group](x)
        if lora is not None:
            lora.apply(index, group, x, y)
        if self._join is not None and group in _SUMMED:
            self._join(y)  # base and LoRA at once
        return y
