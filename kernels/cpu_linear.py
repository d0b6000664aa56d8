"""bfloat16 linears on the CPU's tiles: packs a weight, multiplies by it. Knows no model.

Beside oneDNN's packed weights, what is multiplied here is read in one stream, at the memory's pace.
"""

from __future__ import annotations

from array import array
from ctypes import c_void_p

import torch

from kernels.cpu import Absent, Isa, native

# A tile's rows of K and columns of outputs; kernels/csrc/linear_amx.cpp has the packed order.
_DEEP, _WIDE = 32, 16


class TileLinear:
    """y = x·Wᵀ (+ b) of a packed weight."""

    __slots__ = ("_bias", "_bias_at", "_call", "_packed", "_packed_at", "shape")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """weight: bfloat16 [out, in], as `can_pack` allows; bias: bfloat16 [out]."""
        self.shape = (weight.shape[0], weight.shape[1])
        self._packed = _packed(weight)
        self._bias = None if bias is None else bias.contiguous()
        found = native()
        assert not isinstance(found, Absent)  # `can_pack` has asked
        self._call = found.functions.ts_linear
        self._call.argtypes, self._call.restype = [c_void_p], None
        self._packed_at = self._packed.data_ptr()
        self._bias_at = 0 if self._bias is None else self._bias.data_ptr()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x bfloat16 [T, in] -> [T, out]. Raises ValueError for anything else."""
        rows, width = x.shape
        out, into = self.shape
        if width != into or x.dtype != torch.bfloat16 or not x.is_contiguous():
            raise ValueError(
                f"a linear of {into} inputs was given {x.dtype} {tuple(x.shape)}, strides "
                f"{x.stride()}: it takes contiguous bfloat16 rows of {into}"
            )
        y = torch.empty(rows, out, dtype=torch.bfloat16)
        at, bias, threads = self._packed_at, self._bias_at, torch.get_num_threads()
        job = array("q", (x.data_ptr(), y.data_ptr(), at, bias, rows, into, out, threads))
        self._call(job.buffer_info()[0])
        return y

    def weight(self) -> torch.Tensor:
        """A copy of the weight as it was given, [out, in]."""
        out, into = self.shape
        even = out // (2 * _WIDE) * 2 * _WIDE
        parts = [
            part.view(-1, into // _DEEP, tiles, _DEEP // 2, _WIDE, 2)
            .permute(0, 2, 4, 1, 3, 5)
            .reshape(-1, into)
            for part, tiles in (
                (self._packed[: even * into], 2),
                (self._packed[even * into :], 1),
            )
            if len(part)
        ]
        return torch.cat(parts)


def can_pack(weight: torch.Tensor) -> bool:
    """Whether this machine has tiles, and the weight fits them."""
    found = native()
    return (
        not isinstance(found, Absent)
        and found.isa == Isa.AMX
        and weight.dtype == torch.bfloat16
        and weight.device.type == "cpu"
        and weight.shape[0] % _WIDE == 0
        and weight.shape[1] % _DEEP == 0
    )


def _packed(weight: torch.Tensor) -> torch.Tensor:
    """[out, in] -> flat, in the order of the tiles: 32 outputs at a time, then 16 that are left."""
    out, into = weight.shape
    even = out // (2 * _WIDE) * 2 * _WIDE
    parts = [
        part.reshape(-1, tiles, _WIDE, into // _DEEP, _DEEP // 2, 2)
        .permute(0, 3, 1, 4, 2, 5)
        .reshape(-1)
        for part, tiles in ((weight[:even], 2), (weight[even:], 1))
        if len(part)
    ]
    # A copy in any case: the caller lets the weight go.
    return parts[0].clone() if len(parts) == 1 else torch.cat(parts)
