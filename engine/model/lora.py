"""Reads a PEFT LoRA folder, checks it against the base model, and packs it for the arena.

Nothing of a folder is executed: safetensors and JSON only, and only those two files are opened.
All that names and shapes can tell is checked before any data is read. The arithmetic is one
thread's: it runs beside the step, whose cores torch's own thread pool would take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import AdapterError
from engine.memory.packing import Layout, lay_out, padded_row_bytes
from engine.model.adapter_again import Recipe, read_natively, stamps_of
from engine.model.adapter_folder import WEIGHTS_FILE, shown
from engine.model.adapter_image import Idle, is_idle, pack, type_name
from engine.model.config import ModelConfig
from engine.model.made_adapters import make_adapter
from engine.model.peft_config import read_config
from engine.model.peft_tensors import Pair, oddities, plan_pairs
from engine.model.safetensors_file import open_tensors

if TYPE_CHECKING:  # a look at a folder needs no torch, and starts in a tenth of the time
    import torch

__all__ = [
    "AdapterWeights",
    "BlockSpec",
    "is_idle",
    "make_adapter",
    "read_adapter",
    "read_new",
    "type_name",
]

_SHAPES = 64  # of adapters whose layout is kept: the adapters of one base model have few


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
    return read_new(folder, config, dtype, page_bytes)[0]


def read_new(
    folder: Path,
    config: ModelConfig,
    dtype: torch.dtype,
    page_bytes: int,
    wall_s: Callable[[], float] = time.time,
) -> tuple[AdapterWeights, Recipe | None]:
    """As `read_adapter`, with the way to read the same again (`engine.model.adapter_again`); None
    where there is no native library, or the files are so new that a change might not show.
    `wall_s`: Unix time."""
    with naming(folder):
        stamps = stamps_of(folder)
        options = read_config(folder)
        with open_tensors(folder, WEIGHTS_FILE) as file:
            pairs = plan_pairs(file.tensors, options, config)
            odd = [*options.warnings, *oddities(pairs, options, config.layers)]
            blocks, layout = _laid_out(block_specs(pairs, dtype.itemsize), page_bytes)

            def told(image: np.ndarray, key: str, idle: Idle) -> AdapterWeights:
                return AdapterWeights(
                    key=key,
                    rank=max(s.rank for s in blocks),
                    device_bytes=sum(s.rank * s.row_bytes for s in blocks),
                    blocks=blocks,
                    layout=layout,
                    image=image,
                    dtype=dtype,
                    synthetic=options.synthetic,
                    warnings=(*odd, *nothing_done(idle, len(pairs))),
                )

            if stamps is not None and stamps.settled(wall_s()):
                read = read_natively(file, pairs, blocks, layout, dtype, page_bytes)
                if read is not None and stamps_of(folder) == stamps:
                    weights = told(read.image, read.key, read.idle)
                    bare = replace(weights, image=np.empty((0, page_bytes), np.uint8))
                    return weights, Recipe(stamps, read.job, read.checksum, bare)
            return told(*pack(file, pairs, blocks, layout, dtype, page_bytes)), None


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


@lru_cache(maxsize=_SHAPES)
def _laid_out(
    specs: tuple[BlockSpec, ...], page_bytes: int
) -> tuple[tuple[BlockSpec, ...], Layout]:
    """Blocks and where they lie, the same objects for adapters of the same shape: hundreds each."""
    return specs, place_blocks(specs, page_bytes)


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
