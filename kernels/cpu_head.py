"""The output head by the native CPU kernels: logits in float32 of a weight in 16 bits.

The weight is read as it lies, once for all rows; nothing is kept of it. The struct is that of
csrc/head.h, as an int64 array.
"""

from __future__ import annotations

from array import array
from ctypes import c_int, c_int64, c_void_p
from typing import Any

import torch

from kernels.cpu import DTYPES, Absent, Isa, Native, native

_ALIGNED = 64


class NativeHead:
    """out[r] = hidden[r] . weight^T, sums in float32. One thread calls; the buffer is its own.

    `finds_best`: this CPU has a faster way to each row's largest logit than all logits."""

    def __init__(self, found: Native, weight: torch.Tensor) -> None:
        """weight: [vocab, width], bfloat16 or float16, contiguous, on the CPU."""
        self._weight = weight
        self._isa = found.isa
        self._scratch = torch.empty(0, dtype=torch.uint8)
        f = found.functions
        self._bytes = _declared(f.ts_head_scratch, c_int64, c_int64, c_int64)
        self._call = _declared(f.ts_head, None, c_void_p)
        self._best_bytes = _declared(f.ts_head_best_scratch, c_int64, c_int64, c_int64)
        self._best = _declared(f.ts_head_best, c_int, c_void_p, c_void_p, c_void_p)
        self.finds_best = True
        self.finds_best = self.best(torch.zeros(1, weight.shape[1])) is not None

    def __call__(self, hidden: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """hidden: float32 [rows, width]; out: float32 [rows, vocab], each row contiguous."""
        self._check(hidden)
        vocab = len(self._weight)
        if out.shape != (len(hidden), vocab) or out.dtype != torch.float32 or out.stride(1) != 1:
            raise ValueError(f"out {list(out.shape)} of {out.dtype}: not rows of {vocab} floats")
        if len(hidden):
            hidden = hidden.contiguous()
            struct = self._struct(hidden, torch.get_num_threads(), 0, out.data_ptr(), out.stride(0))
            self._call(struct.buffer_info()[0])
        return out

    def best(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Each row's largest logit and its id, of equal ones the smallest; NaN for a row that has
        one. None where not `finds_best`. hidden: as above."""
        self._check(hidden)
        rows = len(hidden)
        values, ids = torch.empty(rows), torch.empty(rows, dtype=torch.int64)
        if rows:
            hidden = hidden.contiguous()
            threads = torch.get_num_threads()  # once: the scratch is cut for so many
            struct = self._struct(hidden, threads, self._best_bytes(rows, threads), 0, 0)
            if not self._best(struct.buffer_info()[0], values.data_ptr(), ids.data_ptr()):
                return None
        return values, ids

    def _check(self, hidden: torch.Tensor) -> None:
        width = self._weight.shape[1]
        if hidden.dim() != 2 or hidden.shape[1] != width or hidden.dtype != torch.float32:
            raise ValueError(f"hidden {list(hidden.shape)} of {hidden.dtype}: not [rows, {width}]")

    def _struct(
        self, hidden: torch.Tensor, threads: int, more_bytes: int, out: int, stride: int
    ) -> array[int]:
        """A TsHead; the scratch it names is this object's, until the next call."""
        rows, width = hidden.shape
        needed = self._bytes(rows, width) + more_bytes + _ALIGNED
        if len(self._scratch) < needed:
            self._scratch = torch.empty(needed, dtype=torch.uint8)
        weight = self._weight
        return array(
            "q",
            (
                *(self._isa, DTYPES[weight.dtype], threads),
                *(hidden.data_ptr(), rows, width),
                *(weight.data_ptr(), len(weight)),
                *(out, stride),
                -(-self._scratch.data_ptr() // _ALIGNED) * _ALIGNED,
            ),
        )


def _declared(function: Any, result: Any, *arguments: Any) -> Any:
    function.argtypes, function.restype = arguments, result
    return function


def native_head(weight: torch.Tensor, found: Native | Absent | None = None) -> NativeHead | None:
    """The native head of a weight in 16 bits; None where there is none for it."""
    found = native() if found is None else found
    if isinstance(found, Absent):
        return None
    is_served = weight.dtype == torch.bfloat16 or (
        weight.dtype == torch.float16 and found.isa >= Isa.AVX2
    )
    fits = weight.device.type == "cpu" and weight.dim() == 2 and weight.is_contiguous()
    return NativeHead(found, weight) if is_served and fits else None
