"""One arena of fixed byte pages for KV and adapters, on the CPU or a device. Owns the memory;
decides nothing about it.

A KV page holds `page_tokens` tokens of all layers, laid out [layers, page_tokens, 2 (K, V),
kv_heads x head_dim]: a sequence's gathered pages are then one strided run of keys, and one of
values, without another copy. All offsets are int64: pages of large models pass 2**31 elements.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np
import torch

from engine.errors import ConfigError
from engine.memory.packing import ROW_ALIGN_BYTES
from engine.model.config import ModelConfig


def kv_page_bytes(config: ModelConfig, page_tokens: int, dtype: torch.dtype) -> int:
    """Bytes of a page: page_tokens x layers x (K, V) x kv_heads x head_dim x itemsize."""
    return page_tokens * config.layers * 2 * config.kv_width * dtype.itemsize


class Arena:
    """`pages` pages of KV and adapter bytes, uninitialised: readers never look past what was
    written.

    `spare`: one page more, behind them, that belongs to nobody: rows that are padding write there.
    Raises ConfigError when a page is not a multiple of the 128 B that adapter rows align to, or
    the memory cannot be had.
    """

    def __init__(
        self,
        config: ModelConfig,
        pages: int,
        page_tokens: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
        spare: bool = False,
    ) -> None:
        if pages < 1 or page_tokens < 1:
            raise ConfigError(f"an arena of {pages} pages of {page_tokens} tokens: at least 1 each")
        self.pages = pages
        self.page_tokens = page_tokens
        self.layers = config.layers
        self.width = config.kv_width
        self.dtype = dtype
        self.page_bytes = kv_page_bytes(config, page_tokens, dtype)
        if self.page_bytes % ROW_ALIGN_BYTES:
            raise ConfigError(
                f"pages of {page_tokens} tokens are {self.page_bytes} bytes, no multiple of "
                f"{ROW_ALIGN_BYTES}: choose page_tokens so that they are (16 usually does)"
            )
        try:
            self.bytes = torch.empty(
                pages + spare, self.page_bytes, dtype=torch.uint8, device=device
            )
        except RuntimeError:
            raise ConfigError(
                f"no memory for {pages} pages of {self.page_bytes} bytes "
                f"({pages * self.page_bytes / 2**30:.1f} GiB): lower limits.pool_bytes"
            ) from None
        is_host = self.bytes.device.type == "cpu"
        if is_host:
            _ask_for_huge_pages(self.bytes)
        self.elements = self.bytes.view(dtype)  # [pages, elements of a page]
        self._slots = self.elements.view(-1, 2 * self.width)  # one row a (page, layer, slot)
        self._layers = self.elements.view(-1, config.layers, 2 * page_tokens * self.width)
        # Single-threaded copies for the loader thread: a second OpenMP team would spin on the
        # cores of the step.
        self._raw = self.bytes.numpy() if is_host else None

    def slot_rows(self, pages: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Row numbers of (page, slot) pairs for `write`: int64 [layers, tokens].

        pages, slots: int64 [tokens].
        """
        layer = torch.arange(self.layers) * self.page_tokens
        return layer[:, None] + (pages * (self.layers * self.page_tokens) + slots)[None, :]

    def write(self, rows: torch.Tensor, kv: torch.Tensor) -> None:
        """Write a layer's K, V. rows: int64 [tokens] (`slot_rows`); kv [tokens, 2 x width]."""
        self._slots.index_copy_(0, rows, kv)

    def gather(self, layer: int, pages: torch.Tensor) -> torch.Tensor:
        """A copy of pages' KV of a layer: [pages x page_tokens, 2 (K, V), width]; pages int64."""
        return self._layers[:, layer].index_select(0, pages).view(-1, 2, self.width)

    def clear(self, pages: torch.Tensor) -> None:
        """Zero whole pages; int64 [n]."""
        self.elements.index_fill_(0, pages, 0)

    def load(self, page: int, data: np.ndarray) -> None:
        """Copy bytes (uint8 [n]) to the start of a page of host memory. Safe beside a step that
        uses others."""
        assert self._raw is not None
        self._raw[page, : data.shape[0]] = data

    def load_all(self, pages: Sequence[int], image: torch.Tensor) -> None:
        """Copy rows of bytes (uint8 [n, page_bytes]) to these pages, on the lane of the caller: it
        returns before they are there where `image` is page-locked and the arena on a device. One
        copy for each run of neighbours."""
        first = 0
        for i in range(1, len(pages) + 1):
            if i == len(pages) or pages[i] != pages[i - 1] + 1:
                run = self.bytes[pages[first] : pages[first] + i - first]
                run.copy_(image[first:i], non_blocking=True)
                first = i

    def block(self, page: int, offset: int, rows: int, row_bytes: int, width: int) -> torch.Tensor:
        """View [rows, width] of rows that start at byte `offset` of a page, `row_bytes` apart."""
        start, stride = offset // self.dtype.itemsize, row_bytes // self.dtype.itemsize
        # One view instead of four: a load makes hundreds, and holds up the step while it does.
        first = page * self.elements.stride(0) + start
        return self.elements.as_strided((rows, width), (stride, 1), first)


def _ask_for_huge_pages(memory: torch.Tensor) -> None:
    """Attention jumps from page to page of the arena: with the system's 4 KiB pages about a tenth
    of its time goes into address translation. Advice only: a system without them says no."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None:
        return
    start = -(-memory.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (memory.data_ptr() + memory.numel() - start) // mmap.PAGESIZE * mmap.PAGESIZE
    if length > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)
