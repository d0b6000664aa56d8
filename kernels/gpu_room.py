"""Memory for a step's lists of int32: host (page-locked for a GPU) and device, made once.

Knows no kernel and no meaning of a list. A step's lists reach the device by one copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from kernels.errors import KernelError

_ALIGN = 4  # int32 values: every list starts on a 16-byte boundary, as a kernel was compiled for


def values_of(parts: Sequence[tuple[int, ...]]) -> int:
    """int32 values that lists of these shapes take, each on its boundary."""
    return sum(-(-math.prod(shape) // _ALIGN) * _ALIGN for shape in parts)


class StepRoom:
    """Lists packed one behind the other, as many as a step has: for launches made anew each step.

    `values`: made at once. A step that needs more makes it larger, once.
    """

    def __init__(self, device: torch.device, values: int = 0) -> None:
        self._device = device
        self._make(values)

    @property
    def values(self) -> int:
        return len(self._made)

    def hold(self, parts: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The parts on the device, by one copy; what it held before is gone."""
        needed = values_of([p.shape for p in parts])
        if needed > len(self._made):
            self._make(needed + needed // 2)
        flat, first, views = self._flat, 0, []
        for part in parts:
            flat[first : first + part.size] = part.reshape(-1)
            views.append(self._made[first : first + part.size].view(part.shape))
            first += -(-part.size // _ALIGN) * _ALIGN
        # Not non_blocking: the host side is written again next step while a copy could be pending.
        self._made[:needed].copy_(self._host[:needed])
        return views

    def _make(self, values: int) -> None:
        self._host, self._made = _both(values, self._device)
        self._flat = self._host.numpy()


class FixedRoom:
    """Lists at places that never move, for a captured graph, which knows nothing but addresses.

    `rest`: what each list holds where a step fills less of it, the whole list long. `views`: the
    lists on the device.
    """

    def __init__(self, rest: Sequence[np.ndarray], device: torch.device | str = "cpu") -> None:
        self._rest = [np.ascontiguousarray(r, np.int32) for r in rest]
        shapes = [r.shape for r in self._rest]
        self._host, self._made = _both(values_of(shapes), torch.device(device))
        self._places = _views(self._host, shapes)
        self._filled = [len(r) for r in self._rest]
        self.views = _views(self._made, shapes)
        self.fill([r[:0] for r in self._rest])

    def fill(self, parts: Sequence[np.ndarray]) -> None:
        """Each list's first rows = its part; the rest as it was made. One copy. Raises KernelError
        for a part that is longer than its list."""
        for i, (part, rest) in enumerate(zip(parts, self._rest, strict=True)):
            if len(part) > len(rest):
                raise KernelError(f"list {i} has {len(part)} entries, its room holds {len(rest)}")
        for i, (part, rest) in enumerate(zip(parts, self._rest, strict=True)):
            place, end = self._places[i].numpy(), len(part)
            place[:end] = part
            place[end : self._filled[i]] = rest[end : self._filled[i]]
            self._filled[i] = end
        self._made.copy_(self._host)  # waits, as above


def _both(values: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    host = torch.zeros(values, dtype=torch.int32, pin_memory=device.type == "cuda")
    return host, torch.zeros(values, dtype=torch.int32, device=device)


def _views(flat: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    first, views = 0, []
    for shape in shapes:
        size = math.prod(shape)
        views.append(flat[first : first + size].view(shape))
        first += -(-size // _ALIGN) * _ALIGN
    return views
