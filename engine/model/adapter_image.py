"""Packs an adapter's tensors into its image with numpy, and tells its content hash.

The plain way: one pass over what is read, every check with its own sentence. What packs faster
(`engine.model.adapter_again`) leaves to this whatever is not as it should be. Owns no layout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.errors import AdapterError
from engine.memory.packing import Layout
from engine.model.peft_tensors import Pair
from engine.model.safetensors_file import TensorFile

if TYPE_CHECKING:  # a look at a folder needs no torch, and starts in a tenth of the time
    import torch


class RowBytes(Protocol):
    """What is asked of a block here."""

    @property
    def row_bytes(self) -> int: ...


Idle = list[tuple[int, str]]  # (layer, module) of linears that do nothing


class ContentHash:
    """The identity of an adapter: its tensors in float32 and their scales, in the pairs' order,
    whatever type they are stored in and the folder is called."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, pair: Pair, a: np.ndarray, b: np.ndarray) -> None:
        """A pair's sides: float32, of the shapes that the file says."""
        shapes = f"{list(a.shape)} {list(b.shape)}"
        self._digest.update(f"{pair.layer} {pair.module} {shapes} {pair.scale!r}\n".encode())
        self._digest.update(np.ascontiguousarray(a).data)
        self._digest.update(np.ascontiguousarray(b).data)

    def key(self) -> str:
        return self._digest.hexdigest()


def pack(
    file: TensorFile,
    pairs: Sequence[Pair],
    blocks: Sequence[RowBytes],
    layout: Layout,
    dtype: torch.dtype,
    page_bytes: int,
) -> tuple[np.ndarray, str, Idle]:
    """The image (uint8 [pages, page_bytes]), the content hash, and what is idle.

    blocks: A and Bt of each pair, placed by `layout`. Raises AdapterError for what is not finite,
    in the file or in `dtype`, and for a file that is shorter than it was.
    """
    image = np.zeros((layout.pages, page_bytes), dtype=np.uint8)
    spans: dict[int, list[int]] = {}
    for at, span in enumerate(layout.spans):
        spans.setdefault(span.block, []).append(at)
    content = ContentHash()
    idle: Idle = []
    for i, p in enumerate(pairs):
        a, b = file.read(p.a), file.read(p.b)
        if is_idle(a, b, p.scale):
            idle.append((p.layer, p.module))
        content.add(p, a, b)
        with np.errstate(over="ignore", invalid="ignore"):  # `_cast` finds what overflows
            scaled = b.T * np.float32(p.scale)
        for side, matrix in enumerate((a, scaled)):
            block = 2 * i + side
            cast = _cast(matrix, dtype)
            if cast is None:
                raise AdapterError(
                    f"layer {p.layer} {p.module} lora_{'AB'[side]} overflows "
                    f"{type_name(dtype)}"
                    f"{f' once scaled by {p.scale:g}' if side else ''}"
                )
            raw = cast.view(np.uint8)
            row_bytes = blocks[block].row_bytes
            for span in (layout.spans[at] for at in spans[block]):
                end = span.offset + span.rows * row_bytes
                target = image[span.page, span.offset : end].reshape(span.rows, row_bytes)
                target[:, : raw.shape[1]] = raw[span.first_row : span.first_row + span.rows]
    return image, content.key(), idle


def is_idle(a: np.ndarray, b: np.ndarray, scale: float) -> bool:
    """Whether the product is zero because one side is."""
    return scale == 0 or not a.any() or not b.any()


def type_name(dtype: torch.dtype) -> str:
    """`float32`, `float16` or `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _cast(matrix: np.ndarray, dtype: torch.dtype) -> np.ndarray | None:
    """Contiguous rows in `dtype` (bfloat16 as its bits); None when a value leaves its range."""
    kind = type_name(dtype)
    full = np.ascontiguousarray(matrix, dtype=np.float32)
    if not np.isfinite(full).all():
        return None
    if kind == "float32":
        return full
    if kind == "float16":
        with np.errstate(over="ignore"):
            half = full.astype(np.float16)
        return half if np.isfinite(half).all() else None
    bits = full.view(np.uint32)
    # Round to nearest, ties to even, as torch does.
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return None if ((rounded & 0x7F80) == 0x7F80).any() else rounded
