"""Paged attention with Triton: lists a step's work, checks operands, launches. Owns no memory.

An *item* is one tile of queries over one run of keys of one sequence. A decode row's context is
cut in splits of fixed length, each an item with its own partial sums, added up in order afterwards;
a prompt chunk is cut in tiles of queries over all keys that they see. So the number of CTAs grows
with the work, never with the longest sequence times all. Triton is imported at the first launch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch

from kernels.backend import PagedRows
from kernels.errors import KernelError
from kernels.gpu_room import StepRoom
from kernels.jit import DTYPES, triton_module
from kernels.tuned import AttentionTile, OpsTiles

ITEM_COLUMNS = 6  # first row, queries, position of the first, first entry of pages, keys from .. to
SPAN_COLUMNS = 3  # row, first item, items
LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, the KV heads they share in equal groups, and a head's width.

    Raises KernelError for heads that do not divide or a width that has no halves.
    """

    q: int
    kv: int
    dim: int

    def __post_init__(self) -> None:
        if self.kv < 1 or self.q % self.kv or self.dim < 2 or self.dim % 2:
            raise KernelError(
                f"{self.q} query heads over {self.kv} KV heads of {self.dim}: the first must be a "
                "multiple of the second, and a head's width even"
            )

    @property
    def group(self) -> int:
        return self.q // self.kv

    @property
    def q_width(self) -> int:
        return self.q * self.dim

    @property
    def qkv_width(self) -> int:
        return (self.q + 2 * self.kv) * self.dim


@dataclass(frozen=True, slots=True)
class PagedWork:
    """A step's attention work, good for every layer; int32, on the kernels' device.

    decode, prefill: [items, 6]. spans: [decode rows, 3], the items of each decode row. pages: all
    sequences' tables. rows: [rows, 2], each row's position and the page it is stored in. An item of
    no queries and a span of no items do nothing. `row_count`: rows that q must have; `most_pages`:
    one more than the largest page named.
    """

    decode: torch.Tensor
    prefill: torch.Tensor
    spans: torch.Tensor
    pages: torch.Tensor
    rows: torch.Tensor
    row_count: int
    most_pages: int
    most_positions: int
    decode_tile: AttentionTile
    prefill_tile: AttentionTile

    @property
    def splits(self) -> bool:
        """Whether any decode row has more than one item, so that partial sums are needed."""
        return len(self.decode) > len(self.spans)

    def partials_shape(self, heads: Heads) -> tuple[int, int, int]:
        """Of the fp32 room for partial sums, D + 2 values a head: [items, heads, dim + 2]."""
        return (len(self.decode) if self.splits else 0), heads.q, heads.dim + 2


@dataclass(frozen=True, slots=True, eq=False)
class PagedLists:
    """The lists of a `PagedWork`, in host memory: those of the same names, and what goes with
    them."""

    decode: np.ndarray
    prefill: np.ndarray
    spans: np.ndarray
    pages: np.ndarray
    rows: np.ndarray
    most_pages: int
    most_positions: int
    decode_tile: AttentionTile
    prefill_tile: AttentionTile

    @property
    def parts(self) -> list[np.ndarray]:
        return [self.decode, self.prefill, self.spans, self.pages, self.rows]

    def on_device(self, views: Sequence[torch.Tensor], row_count: int) -> PagedWork:
        """The work, over lists of these parts on the device."""
        decode, prefill, spans, pages, rows = views
        return PagedWork(
            decode=decode,
            prefill=prefill,
            spans=spans,
            pages=pages,
            rows=rows,
            row_count=row_count,
            most_pages=self.most_pages,
            most_positions=self.most_positions,
            decode_tile=self.decode_tile,
            prefill_tile=self.prefill_tile,
        )


def build_paged(
    rows: PagedRows, page_tokens: int, heads: Heads, tiles: OpsTiles, room: StepRoom
) -> PagedWork:
    """List a step's items; `room` holds them until its next use. Raises KernelError as
    `list_paged`."""
    lists = list_paged(rows, page_tokens, heads, tiles)
    return lists.on_device(room.hold(lists.parts), rows.first_row[-1])


def list_paged(rows: PagedRows, page_tokens: int, heads: Heads, tiles: OpsTiles) -> PagedLists:
    """A step's items. Raises KernelError for pages that do not cover a sequence, or a tile lower
    than a group."""
    first_row, start, first_page, pages = (
        np.asarray(a, np.int64) for a in (rows.first_row, rows.start, rows.first_page, rows.pages)
    )
    counts = np.diff(first_row)
    context = start + counts
    short = np.flatnonzero(np.diff(first_page) * page_tokens < context)
    if short.size:
        i = int(short[0])
        raise KernelError(
            f"sequence {i} has {int(first_page[i + 1] - first_page[i])} pages of {page_tokens} "
            f"tokens for {int(context[i])} tokens"
        )
    if pages.size and int(pages.min()) < 0:
        raise KernelError(f"page {int(pages.min())}: pages count from 0")
    sequence = np.repeat(np.arange(len(counts)), counts)
    position = start[sequence] + np.arange(len(sequence)) - first_row[sequence]
    own_page = pages[first_page[sequence] + position // page_tokens]

    single = int(np.argmax(counts != 1)) if (counts != 1).any() else len(counts)
    decode_tile = tall_enough(tiles.decode, heads.group)
    split = decode_tile.split
    pieces = -(-context[:single] // split)
    which = np.repeat(np.arange(single), pieces)
    low = (np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * split
    decode = _items(
        first_row[which],
        np.ones(len(which), np.int64),
        start[which],
        first_page[which],
        low,
        np.minimum(low + split, context[which]),
    )
    spans = np.stack([first_row[:single], np.cumsum(pieces) - pieces, pieces], axis=1)

    prefill_tile = tall_enough(tiles.prefill, heads.group)
    high = prefill_tile.rows // heads.group
    pieces = -(-counts[single:] // high)
    which = single + np.repeat(np.arange(len(counts) - single), pieces)
    skip = (np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * high
    taken = np.minimum(high, counts[which] - skip)
    at = start[which] + skip
    prefill = _items(
        first_row[which] + skip, taken, at, first_page[which], np.zeros_like(at), at + taken
    )
    # The longest first: a long tile that starts last would leave the device waiting for it.
    prefill = prefill[np.argsort(-prefill[:, 5], kind="stable")]

    return PagedLists(
        decode=decode,
        prefill=prefill,
        spans=spans,
        pages=pages,
        rows=np.stack([position, own_page], axis=1),
        most_pages=int(pages.max(initial=-1)) + 1,
        most_positions=int(context.max(initial=0)),
        decode_tile=decode_tile,
        prefill_tile=prefill_tile,
    )


def attend(
    qkv: torch.Tensor,
    arena: torch.Tensor,
    layer: int,
    page_tokens: int,
    heads: Heads,
    work: PagedWork,
    partials: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Each row's attention over its sequence's keys up to its own position.

    Semantics: out[i, h] = softmax(q[i, h] · Kᵀ / √dim) · V, over keys 0 .. p(i) of KV head
    h // group, p(i) the row's position; keys and values are read in the arena's pages, where those
    of the step are already. Sums are fp32, weights are rounded to the arena's dtype for their
    product with V, the answer once.

    qkv [rows, q width and more], rotated; arena [pages, elements of a page], laid out
    [layers, page_tokens, 2 (K, V), kv heads, dim]; partials fp32, flat, at least the product of
    `work.partials_shape`; out [rows, q width]. Raises KernelError where they do not fit together.
    """
    check_arena(arena, qkv, layer, page_tokens, heads, work)
    if out.shape != (len(qkv), heads.q_width) or not out.is_contiguous() or out.dtype != qkv.dtype:
        raise KernelError(
            f"out is {out.dtype} {tuple(out.shape)}: expected contiguous {qkv.dtype} "
            f"{(len(qkv), heads.q_width)}"
        )
    needed = math.prod(work.partials_shape(heads))
    if partials.dtype != torch.float32 or partials.dim() != 1 or len(partials) < needed:
        raise KernelError(
            f"partials are {partials.dtype} {tuple(partials.shape)}: expected at least {needed} "
            "float32 values, flat"
        )
    if len(work.decode):
        _launch(qkv, arena, layer, page_tokens, heads, work, partials, out, decode=True)
    if len(work.prefill):
        _launch(qkv, arena, layer, page_tokens, heads, work, partials, out, decode=False)


def _launch(
    qkv: torch.Tensor,
    arena: torch.Tensor,
    layer: int,
    page_tokens: int,
    heads: Heads,
    work: PagedWork,
    partials: torch.Tensor,
    out: torch.Tensor,
    *,
    decode: bool,
) -> None:
    jit, interpreted = _kernels()
    tile = work.decode_tile if decode else work.prefill_tile
    items = work.decode if decode else work.prefill
    partial = decode and work.splits
    sums = stats = out
    if partial:
        values = len(items) * heads.q * heads.dim
        sums, stats = partials[:values], partials[values : values + 2 * len(items) * heads.q]
    wide = power_of_two(heads.dim)
    jit.attend_kernel[(len(items), heads.kv)](
        qkv,
        arena,
        sums,
        stats,
        items,
        work.pages,
        layer,
        arena.shape[1],
        qkv.stride(0),
        LOG2_E * heads.dim**-0.5,
        HEADS=heads.q,
        KV_HEADS=heads.kv,
        D=heads.dim,
        BD=wide,
        PAGE_TOKENS=page_tokens,
        BM=tile.rows,
        BN=tile.keys,
        PARTIAL=partial,
        UPCAST=interpreted,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if partial:
        high = min(power_of_two(heads.q), 16)
        jit.combine_kernel[(len(work.spans), -(-heads.q // high))](
            sums,
            stats,
            out,
            work.spans,
            HEADS=heads.q,
            D=heads.dim,
            BD=wide,
            BH=high,
            num_warps=4,
        )


def check_arena(
    arena: torch.Tensor,
    qkv: torch.Tensor,
    layer: int,
    page_tokens: int,
    heads: Heads,
    work: PagedWork,
) -> None:
    """Raises KernelError where a step's qkv, its list and the arena do not fit together."""
    if qkv.dim() != 2 or qkv.stride(1) != 1 or qkv.shape[1] < heads.q_width:
        raise KernelError(
            f"qkv is {tuple(qkv.shape)} with strides {qkv.stride()}: expected [rows, "
            f"{heads.qkv_width}] with contiguous rows"
        )
    if len(qkv) != work.row_count:
        raise KernelError(f"qkv has {len(qkv)} rows, the work list {work.row_count}")
    if arena.dtype not in DTYPES or arena.dtype != qkv.dtype:
        raise KernelError(f"the arena is {arena.dtype}, qkv {qkv.dtype}: cast qkv first")
    if arena.dim() != 2 or not arena.is_contiguous():
        raise KernelError(
            f"the arena is {tuple(arena.shape)}: expected contiguous [pages, elements]"
        )
    layer_elements = page_tokens * 2 * heads.kv * heads.dim
    if not 0 <= layer < arena.shape[1] // layer_elements:
        raise KernelError(
            f"layer {layer} of pages of {arena.shape[1]} elements, {layer_elements} a layer"
        )
    if work.most_pages > len(arena):
        raise KernelError(f"page {work.most_pages - 1} of an arena of {len(arena)}")


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below `n`, and 16 at least: what a dot can take."""
    return max(16, 1 << (n - 1).bit_length())


def tall_enough(tile: AttentionTile, group: int) -> AttentionTile:
    """The tile, with rows for all query heads of a KV head."""
    if tile.rows >= group:
        return tile
    return AttentionTile(power_of_two(group), tile.keys, tile.split, tile.warps, tile.stages)


def _items(*columns: np.ndarray) -> np.ndarray:
    made: np.ndarray = np.stack(columns, axis=1)
    return made


@functools.cache
def _kernels() -> tuple[ModuleType, bool]:
    """The Triton kernels, and whether the interpreter runs them."""
    return triton_module("attention_jit", "attend_kernel")
