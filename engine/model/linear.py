"""A linear, its weight laid out for the CPU it runs on. Nothing else."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.cpu_linear import TileLinear, can_pack

_PACKED_FOR_ROWS = 32


class Linear:
    """y = x·Wᵀ (+ b). In bfloat16 the weight is packed once, for the CPU's tiles where the native
    kernels have them, else for oneDNN, about a third faster at the 32 rows of a decode step; where
    neither can, it stays plain."""

    __slots__ = ("_packed", "_tiles", "_weight", "bias")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """weight: [out, in]; bias: [out], cast to the weight's dtype."""
        self.bias = None if bias is None else bias.to(weight.dtype)
        self._tiles = TileLinear(weight, self.bias) if can_pack(weight) else None
        self._packed = _pack(weight) if self._tiles is None else None
        # The packed copy replaces the plain one: the model is not held twice.
        self._weight = weight if self._tiles is None and self._packed is None else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, in] -> [T, out], in the weight's dtype."""
        if self._tiles is not None:
            return self._tiles(x)
        if self._packed is not None:
            y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._packed, self.bias, "none", [], ""
            )
            return y
        assert self._weight is not None
        return F.linear(x, self._weight, self.bias)

    def weight(self) -> torch.Tensor:
        """The plain weight [out, in]: itself, or unpacked into a copy."""
        if self._tiles is not None:
            return self._tiles.weight()
        if self._packed is not None:
            plain: torch.Tensor = self._packed.to_dense()
            return plain
        assert self._weight is not None
        return self._weight


def _pack(weight: torch.Tensor) -> torch.Tensor | None:
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return None
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return None
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
    return packed
