"""Which rows and columns each CTA of a step computes: the work list. Knows no weights and no GPU.

Rows are sorted by adapter and cut into chunks of `block_m`; an *item* is one chunk x one column
tile of one slice. So the number of CTAs grows with tokens / block_m + adapters and with each
adapter's own rank, never with adapters x tokens or with the largest rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from kernels.errors import KernelError
from kernels.gpu_room import FixedRoom

BASE = -1  # the slot of rows without an adapter
ITEM_COLUMNS = 5  # first position in `order`, rows, slot, slice, column tile


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows first_row .. first_row+rows of x that share one adapter slot; BASE = none."""

    first_row: int
    rows: int
    slot: int


@dataclass(frozen=True, slots=True)
class Tile:
    """What one CTA computes: `m` rows; `r` ranks and `split_k` inputs, `k` a step, in shrink;
    `n` columns in expand. All but `split_k` are powers of two; `split_k` is a multiple of `k`.

    The split depends on the input's width only, never on the batch, so that the order of a row's
    sum does not change with its neighbours as long as the tile stays.
    """

    m: int
    r: int
    k: int
    n: int
    split_k: int
    warps: int
    stages: int

    def splits(self, in_width: int) -> int:
        return max(1, -(-in_width // self.split_k))


# Decode: one or a few rows an adapter, K is long: many CTAs along K fill the device.
DECODE = Tile(m=16, r=16, k=128, n=128, split_k=1024, warps=4, stages=3)
# Prefill: hundreds of rows an adapter fill it; K is not split, x is read once a slice.
PREFILL = Tile(m=64, r=16, k=64, n=128, split_k=1 << 20, warps=4, stages=3)


@dataclass(frozen=True, slots=True)
class Work:
    """A step's work for one group of slices; good for every layer, on the kernels' device.

    `order` int32 [positions]: rows of x, adapter by adapter. `shrink`, `expand` int32 [items, 5].
    Items of zero rows are allowed and do nothing: that is how a launch of fixed size is padded.
    `ranks` [slots, slices] is what the list was cut for: a layer may have less, never more.
    """

    tile: Tile
    order: torch.Tensor
    shrink: torch.Tensor
    expand: torch.Tensor
    x_rows: int  # x must have at least so many
    ranks: np.ndarray


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most work a preallocated `Buffers` can hold: rows, and items of each op."""

    rows: int
    shrink: int
    expand: int

    @classmethod
    def of(
        cls, rows: int, adapters: int, max_rank: int, out_widths: Sequence[int], tile: Tile
    ) -> Capacity:
        """Enough for any step of up to `rows` rows and `adapters` active adapters."""
        chunks = min(rows, adapters + rows // tile.m)
        return cls(
            rows,
            chunks * len(out_widths) * -(-max_rank // tile.r),
            chunks * sum(-(-w // tile.n) for w in out_widths),
        )


class Buffers:
    """Room for the lists of one or more groups of slices, allocated once: host and device, one
    copy a step. The groups share `order`, for their rows are the same.

    A work built into it is launched over the whole capacity, with zero-row items as tail, so that
    a captured CUDA graph replays later steps without dropping segments.
    """

    def __init__(self, capacities: Sequence[Capacity], device: torch.device | str = "cpu") -> None:
        self.capacities = tuple(capacities)
        lists = [n for c in capacities for n in (c.shrink, c.expand)]
        rest = [np.zeros(max(c.rows for c in capacities), np.int32)]
        rest += [np.zeros((n, ITEM_COLUMNS), np.int32) for n in lists]
        self._room = FixedRoom(rest, device)

    def lacks(self, works: Sequence[Work]) -> str | None:
        """What there is too much of in a step's works, one a group; None where they fit."""
        for work, capacity in zip(works, self.capacities, strict=True):
            for what, needed, held in (
                ("rows", len(work.order), capacity.rows),
                ("shrink items", len(work.shrink), capacity.shrink),
                ("expand items", len(work.expand), capacity.expand),
            ):
                if needed > held:
                    return f"the step has {needed} {what}, the buffers hold {held}"
        return None

    def hold(self, works: Sequence[Work]) -> list[Work]:
        """Copy a step's works in, one a group; return them as views of this room. Raises
        KernelError if they are larger."""
        if (too_much := self.lacks(works)) is not None:
            raise KernelError(too_much)
        lists = [part.numpy() for w in works for part in (w.shrink, w.expand)]
        self._room.fill([works[0].order.numpy(), *lists])
        return [
            replace(
                work,
                order=self._room.views[0],
                shrink=self._room.views[1 + 2 * i],
                expand=self._room.views[2 + 2 * i],
            )
            for i, work in enumerate(works)
        ]


def pick_tile(segments: Sequence[Segment]) -> Tile:
    """PREFILL where an adapter's rows would fill its chunks on average, else DECODE."""
    rows: dict[int, int] = {}
    for s in segments:
        if s.slot != BASE:
            rows[s.slot] = rows.get(s.slot, 0) + s.rows
    return PREFILL if rows and sum(rows.values()) >= PREFILL.m * len(rows) else DECODE


def build_work(
    segments: Sequence[Segment],
    ranks: np.ndarray,
    out_widths: Sequence[int],
    tile: Tile = DECODE,
    into: Buffers | None = None,
    device: torch.device | str = "cpu",
) -> Work:
    """The work list of one step for one group of slices.

    `ranks` int [slots, slices]: true ranks, or where layers differ the largest of them; a slice of
    rank 0 gets no items. `into` reuses preallocated buffers (its device then counts). Raises
    KernelError for an unknown slot, overlapping segments, or more work than the buffers hold.
    """
    [work] = build_works(segments, [(ranks, out_widths)], tile)
    if into is not None:
        return into.hold([work])[0]
    return replace(
        work,
        order=work.order.to(device),
        shrink=work.shrink.to(device),
        expand=work.expand.to(device),
    )


def build_works(
    segments: Sequence[Segment],
    groups: Sequence[tuple[np.ndarray, Sequence[int]]],
    tile: Tile = DECODE,
) -> list[Work]:
    """The work lists of one step, one a group (ranks, out_widths) of slices, in host memory; they
    share `order`. As `build_work`."""
    parts = [(np.asarray(r, np.int64), np.asarray(w, np.int64)) for r, w in groups]
    for ranks, widths in parts:
        if ranks.ndim != 2 or ranks.shape[1] != len(widths):
            raise KernelError(f"ranks are {ranks.shape}, expected (slots, {len(widths)} slices)")
    first, rows, slot = _columns(segments, min(len(ranks) for ranks, _ in parts))
    places, chunks = _chunks(first, rows, slot, tile.m)
    order = torch.from_numpy(places.astype(np.int32))
    x_rows = int((first + rows).max(initial=0))
    works = []
    for ranks, widths in parts:
        rank = ranks[chunks[:, 2]]
        expand_tiles = np.where(rank > 0, -(-widths // tile.n), 0)
        works.append(
            Work(
                tile=tile,
                order=order,
                shrink=torch.from_numpy(_items(chunks, -(-rank // tile.r))),
                expand=torch.from_numpy(_items(chunks, expand_tiles)),
                x_rows=x_rows,
                ranks=ranks,
            )
        )
    return works


def _columns(segments: Sequence[Segment], slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first row, rows, slot) of the segments that have an adapter, sorted by slot, then row."""
    for s in segments:
        if s.first_row < 0 or s.rows < 0 or not BASE <= s.slot < slots:
            raise KernelError(
                f"{s} does not fit: slots go from {BASE} (base) to {slots - 1}, rows from 0"
            )
    flat = np.array(
        [(s.first_row, s.rows, s.slot) for s in segments if s.slot != BASE and s.rows], np.int64
    ).reshape(-1, 3)
    by_row = flat[np.argsort(flat[:, 0], kind="stable")]
    ends = by_row[:-1, 0] + by_row[:-1, 1]
    clash = np.flatnonzero(ends > by_row[1:, 0])
    if clash.size:
        # Two CTAs would add to the same row of y at once, and one sum would be lost.
        raise KernelError(f"two segments share row {int(by_row[clash[0] + 1, 0])}: each row once")
    by_slot = by_row[np.argsort(by_row[:, 2], kind="stable")]
    return by_slot[:, 0], by_slot[:, 1], by_slot[:, 2]


def _chunks(
    first: np.ndarray, rows: np.ndarray, slot: np.ndarray, block_m: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows in slot order, and the chunks of that order as [chunks, 3]: position, rows, slot."""
    before = np.cumsum(rows) - rows
    order = np.arange(int(rows.sum())) + np.repeat(first - before, rows)
    active, starts = np.unique(slot, return_index=True)
    held = np.add.reduceat(rows, starts) if len(active) else np.empty(0, np.int64)
    pieces = -(-held // block_m)
    piece = _counting(pieces)
    position = np.repeat(before[starts], pieces) + piece * block_m
    count = np.minimum(np.repeat(held, pieces) - piece * block_m, block_m)
    return order, np.stack([position, count, np.repeat(active, pieces)], axis=1)


def _items(chunks: np.ndarray, tiles: np.ndarray) -> np.ndarray:
    """int32 [items, 5]: every chunk x the tiles[chunk, slice] column tiles of every slice."""
    flat = tiles.reshape(-1)
    chunk = np.repeat(np.arange(len(chunks)), tiles.sum(axis=1))
    piece = np.repeat(np.tile(np.arange(tiles.shape[1]), len(chunks)), flat)
    return np.column_stack([chunks[chunk], piece, _counting(flat)]).astype(np.int32)


def _counting(lengths: np.ndarray) -> np.ndarray:
    """0..lengths[0], 0..lengths[1], ... as one array."""
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    counted: np.ndarray = np.arange(int(lengths.sum())) - starts
    return counted
