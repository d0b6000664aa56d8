"""Cuts a packed adapter into ranks' shares, and packs each for its rank's pages. Reads folders as
one process does, copies nothing to a device. numpy, on the caller's thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import ConfigError
from engine.memory.packing import Layout, padded_row_bytes
from engine.model.adapter_reader import AdapterReader
from engine.model.config import ModelConfig
from engine.model.lora import AdapterWeights, BlockSpec, naming, place_blocks
from engine.parallel.cut import BY_INPUT

if TYPE_CHECKING:
    import torch

_SHAPES = 64  # of adapters whose layout is kept: the adapters of one base model have few


@dataclass(frozen=True, slots=True, eq=False)
class CutAdapter:
    """An adapter in host memory, one share a rank (`HostAdapter`).

    `pages` is the number that each rank needs: blocks of all shares have the same sizes, so they
    lie in the same way, and one list of page ids serves all. `device_bytes` counts all ranks'.
    `key`, `rank`, `synthetic`, `warnings`: of the whole (`AdapterWeights`).
    """

    key: str
    rank: int
    synthetic: bool
    warnings: tuple[str, ...]
    shares: tuple[AdapterWeights, ...]

    @property
    def device_bytes(self) -> int:
        return sum(s.device_bytes for s in self.shares)

    @property
    def pages(self) -> int:
        return self.shares[0].pages


class CutReader:
    """Reads folders of one base model and cuts each into `of` shares. Any thread may call."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, page_bytes: int, of: int) -> None:
        """`config`: of the whole model; `page_bytes`: of a pool's page, all ranks' parts of it
        together."""
        self._read = AdapterReader(config, dtype, page_bytes)
        self._page_bytes = page_bytes
        self._of = of

    def __call__(self, folder: Path) -> CutAdapter:
        """Raises AdapterError, naming the folder and the cause, where it is refused."""
        whole = self._read(folder)
        with naming(folder):
            return cut_adapter(whole, self._of, self._page_bytes // self._of)


def cut_adapter(whole: AdapterWeights, of: int, page_bytes: int) -> CutAdapter:
    """Shares of `of` ranks, packed for pages of `page_bytes` on each; the key stays the whole's.

    Raises AdapterError when a row is larger than such a page.
    """
    itemsize = whole.dtype.itemsize
    specs, layout = _laid_out(whole.blocks, of, itemsize, page_bytes)
    images = np.zeros((of, layout.pages, page_bytes), dtype=np.uint8)
    rows = _rows(whole)
    for span in layout.spans:
        spec, n = specs[span.block], span.rows
        size = spec.width * itemsize
        lies = images[:, span.page, span.offset : span.offset + n * spec.row_bytes]
        target = lies.reshape(of, n, spec.row_bytes)[:, :, :size]
        some = rows[span.block][span.first_row : span.first_row + n]
        if spec.width < whole.blocks[span.block].width:
            target[:] = some[:, : of * size].reshape(n, of, size).swapaxes(0, 1)
        else:
            target[:] = some[:, :size]
    size = sum(s.rank * s.row_bytes for s in specs)
    shares = tuple(
        replace(whole, device_bytes=size, blocks=specs, layout=layout, image=image)
        for image in images
    )
    return CutAdapter(whole.key, whole.rank, whole.synthetic, whole.warnings, shares)


@lru_cache(maxsize=_SHAPES)
def _laid_out(
    blocks: tuple[BlockSpec, ...], of: int, itemsize: int, page_bytes: int
) -> tuple[tuple[BlockSpec, ...], Layout]:
    """A share's blocks, of the same sizes for every rank, and where they lie in its pages."""
    specs = tuple(_share(s, of, itemsize) for s in blocks)
    return specs, place_blocks(specs, page_bytes)


def _share(spec: BlockSpec, of: int, itemsize: int) -> BlockSpec:
    if spec.side != ("A" if spec.module in BY_INPUT else "Bt"):
        return spec
    if spec.width % of:
        raise ConfigError(f"{spec.module}: {spec.width} columns are not cut into {of}")
    width = spec.width // of
    return replace(spec, width=width, row_bytes=padded_row_bytes(width, itemsize))


def _rows(whole: AdapterWeights) -> Sequence[np.ndarray]:
    """Each block's rows as they lie in the image: uint8 [rank, row_bytes]."""
    rows = [np.empty((s.rank, s.row_bytes), dtype=np.uint8) for s in whole.blocks]
    for span in whole.layout.spans:
        size = whole.blocks[span.block].row_bytes
        lies = whole.image[span.page, span.offset : span.offset + span.rows * size]
        rows[span.block][span.first_row : span.first_row + span.rows] = lies.reshape(-1, size)
    return rows
