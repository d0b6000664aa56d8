"""Reads a PEFT LoRA folder, checks it against the base model, and packs it for the arena.

Nothing of a folder is executed: safetensors and JSON only, and only those two files are opened.
All that names and shapes can tell is checked before any data is read. The arithmetic is numpy's, on
one thread: it runs beside the step, whose cores torch's own thread pool would take.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import AdapterError
from engine.memory.packing import Layout, lay_out, padded_row_bytes
from engine.model.adapter_folder import WEIGHTS_FILE, shown
from engine.model.config import ModelConfig
from engine.model.made_adapters import make_adapter
from engine.model.peft_config import read_config
from engine.model.peft_tensors import Pair, oddities, plan_pairs
from engine.model.safetensors_file import TensorFile, open_tensors

if TYPE_CHECKING:  # a look at a folder needs no torch, and starts in a tenth of the time
    import torch

__all__ = ["AdapterWeights", "BlockSpec", "make_adapter", "read_adapter"]


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """What a block of the layout is: side "A" is [rank, in], "Bt" is [rank, out]."""

    layer: int
    module: str
    side: str
    rank: int
    width: int
    row_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class AdapterWeights:
    """An adapter in host memory, packed as it will lie on the device (`HostAdapter`).

    `image` is uint8 [pages, page_bytes], blocks placed by `layout`, scale merged into Bt.
    `device_bytes` counts true-rank rows. `key` is the content hash: the same tensors and scales
    have the same key whatever the folder is called. `warnings`: what is odd about it, a sentence
    each, without the folder.
    """

    key: str
    rank: int
    device_bytes: int
    blocks: tuple[BlockSpec, ...]
    layout: Layout
    image: np.ndarray
    dtype: torch.dtype
    synthetic: bool
    warnings: tuple[str, ...] = ()

    @property
    def pages(self) -> int:
        return self.layout.pages


def read_adapter(
    folder: Path, config: ModelConfig, dtype: torch.dtype, page_bytes: int
) -> AdapterWeights:
    """Read, check and pack a PEFT LoRA folder.

    Raises AdapterError naming the folder and the cause. The base model's `config` decides shapes;
    `dtype` is the arena's (float32, float16 or bfloat16); `page_bytes` its page.
    """
    with naming(folder):
        options = read_config(folder)
        with open_tensors(folder, WEIGHTS_FILE) as file:
            pairs = plan_pairs(file.tensors, options, config)
            odd = [*options.warnings, *oddities(pairs, options, config.layers)]
            return _pack(file, pairs, odd, dtype, page_bytes, options.synthetic)


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Every AdapterError from within names the folder."""
    try:
        yield
    except AdapterError as e:
        raise AdapterError(f"adapter {shown(str(folder), 300)}: {e}") from None


def block_specs(pairs: Sequence[Pair], itemsize: int) -> tuple[BlockSpec, ...]:
    """The blocks of the pairs, in the order in which they are laid out."""
    specs = []
    for p in pairs:
        out, width = p.out_width
        for side, elements in (("A", width), ("Bt", out)):
            row_bytes = padded_row_bytes(elements, itemsize)
            specs.append(BlockSpec(p.layer, p.module, side, p.rank, elements, row_bytes))
    return tuple(specs)


def place_blocks(specs: Sequence[BlockSpec], page_bytes: int) -> Layout:
    """Where they lie in pages. Raises AdapterError when a row is larger than a page."""
    try:
        return lay_out([(s.rank, s.row_bytes) for s in specs], page_bytes)
    except ValueError as e:
        raise AdapterError(str(e)) from None


def nothing_done(idle: Sequence[tuple[int, str]], of: int) -> list[str]:
    """A warning for the linears whose A or B is all zeros."""
    if len(idle) == of:
        return [
            f"A or B of all {of} linears is zero: the adapter has no effect, its answers are the "
            "base model's (was it saved before it was trained?)"
        ]
    if idle:
        layer, module = idle[0]
        return [
            f"A or B of {len(idle)} of {of} linears is zero and changes nothing there; the first "
            f"is layer {layer} {module}"
        ]
    return []


def is_idle(a: np.ndarray, b: np.ndarray, scale: float) -> bool:
    """Whether the product is zero because one side is."""
    return scale == 0 or not a.any() or not b.any()


def type_name(dtype: torch.dtype) -> str:
    """`float32`, `float16` or `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _pack(
    file: TensorFile,
    pairs: Sequence[Pair],
    odd: list[str],
    dtype: torch.dtype,
    page_bytes: int,
    synthetic: bool,
) -> AdapterWeights:
    specs = block_specs(pairs, dtype.itemsize)
    layout = place_blocks(specs, page_bytes)
    image = np.zeros((layout.pages, page_bytes), dtype=np.uint8)
    spans: dict[int, list[int]] = {}
    for at, span in enumerate(layout.spans):
        spans.setdefault(span.block, []).append(at)
    digest = hashlib.sha256()
    idle = []
    for i, p in enumerate(pairs):
        a, b = file.read(p.a), file.read(p.b)
        if is_idle(a, b, p.scale):
            idle.append((p.layer, p.module))
        shapes = f"{list(a.shape)} {list(b.shape)}"
        digest.update(f"{p.layer} {p.module} {shapes} {p.scale!r}\n".encode())
        digest.update(np.ascontiguousarray(a).data)
        digest.update(np.ascontiguousarray(b).data)
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
            row_bytes = specs[block].row_bytes
            for span in (layout.spans[at] for at in spans[block]):
                end = span.offset + span.rows * row_bytes
                target = image[span.page, span.offset : end].reshape(span.rows, row_bytes)
                target[:, : raw.shape[1]] = raw[span.first_row : span.first_row + span.rows]
    return AdapterWeights(
        key=digest.hexdigest(),
        rank=max(s.rank for s in specs),
        device_bytes=sum(s.rank * s.row_bytes for s in specs),
        blocks=specs,
        layout=layout,
        image=image,
        dtype=dtype,
        synthetic=synthetic,
        warnings=(*odd, *nothing_done(idle, len(pairs))),
    )


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
