"""Where an adapter's blocks lie in the arena, as one table a launch can read. Owns no weights.

A *block* is one layer x module x {A, B^T}: `rank` rows, each contiguous and starting on a 128-byte
boundary, so one int64 element offset a row finds it wherever its pages are. A *slice* is one of
the modules that share an input (q, k, v); a *slot* is an adapter active in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernels.errors import KernelError

ROW_ALIGN_BYTES = 128
INDEX_COLUMNS = 3  # rank, first row of A, first row of B^T


@dataclass(frozen=True, slots=True)
class Span:
    """`rows` rows of a block from element `offset` of the arena on, `stride` elements apart."""

    rows: int
    offset: int
    stride: int


@dataclass(frozen=True, slots=True)
class Block:
    """One matrix [rank, width] in the arena; more than one span where pages split it."""

    spans: tuple[Span, ...]
    width: int

    @property
    def rank(self) -> int:
        return sum(s.rows for s in self.spans)

    def row_offsets(self) -> np.ndarray:
        """int64 [rank]: the element offset of each row."""
        parts = [s.offset + s.stride * np.arange(s.rows, dtype=np.int64) for s in self.spans]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Pair:
    """A module's adapter: A [rank, in] and B^T [rank, out], the scale merged into B^T."""

    a: Block
    bt: Block

    @property
    def rank(self) -> int:
        return self.a.rank


# The operands of a launch: pairs[slot][slice]; None where the adapter leaves the module alone.
Pairs = Sequence[Sequence[Pair | None]]


@dataclass(frozen=True, slots=True)
class Table:
    """What the kernels read of the blocks of one layer's slices, on the arena's device.

    `index` int32 [slots, slices, 3]: true rank, first entry of A in `rows`, first of B^T.
    `rows` int64 [entries]: element offset of each block row. `columns` int32 [slices, 2]: where a
    slice's output starts in a row of y, and its width. `ranks` is the host's copy of the ranks.
    """

    index: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    ranks: np.ndarray
    in_width: int
    out_widths: tuple[int, ...]
    dtype: torch.dtype

    @property
    def slots(self) -> int:
        return int(self.ranks.shape[0])

    @property
    def slices(self) -> int:
        return len(self.out_widths)

    @property
    def max_rank(self) -> int:
        return int(self.ranks.max(initial=0))


def build_table(
    pairs: Pairs,
    in_width: int,
    out_widths: Sequence[int],
    dtype: torch.dtype,
    arena_elements: int,
    device: torch.device | str = "cpu",
) -> Table:
    """Lay out pairs[slot][slice] for a launch over `out_widths` slices of `in_width` inputs.

    `arena_elements` bounds the offsets. Raises KernelError naming slot, slice and value where a
    block has another shape, a row leaves the arena, or a row is not on a 128-byte boundary.
    """
    align = ROW_ALIGN_BYTES // dtype.itemsize
    slices = len(out_widths)
    index = np.zeros((len(pairs), slices, INDEX_COLUMNS), np.int32)
    rows: list[np.ndarray] = []
    entries = 0
    for slot, modules in enumerate(pairs):
        if len(modules) != slices:
            raise KernelError(
                f"slot {slot} has {len(modules)} slices, the launch {slices}: give None for a "
                "module the adapter leaves alone"
            )
        for s, pair in enumerate(modules):
            if pair is None:
                continue
            where = f"slot {slot}, slice {s}"
            _check_shapes(where, pair, in_width, out_widths[s])
            index[slot, s] = (pair.rank, entries, entries + pair.rank)
            for name, block in (("A", pair.a), ("B^T", pair.bt)):
                offsets = block.row_offsets()
                _check_offsets(f"{where}, {name}", offsets, block.width, align, arena_elements)
                rows.append(offsets)
            entries += 2 * pair.rank
    widths = np.asarray(out_widths, np.int64)
    columns = np.stack([np.cumsum(widths) - widths, widths], axis=1).astype(np.int32)
    flat = np.concatenate(rows) if entries else np.zeros(1, np.int64)
    return Table(
        index=torch.from_numpy(index).to(device),
        rows=torch.from_numpy(flat).to(device),
        columns=torch.from_numpy(columns).to(device),
        ranks=index[:, :, 0].copy(),
        in_width=in_width,
        out_widths=tuple(out_widths),
        dtype=dtype,
    )


def _check_shapes(where: str, pair: Pair, in_width: int, out_width: int) -> None:
    if pair.bt.rank != pair.a.rank:
        raise KernelError(f"{where}: A has rank {pair.a.rank} but B^T {pair.bt.rank}")
    for name, block, width in (("A", pair.a, in_width), ("B^T", pair.bt, out_width)):
        if block.width != width:
            raise KernelError(f"{where}: {name} is {block.width} wide, the launch {width}")


def _check_offsets(
    where: str, offsets: np.ndarray, width: int, align: int, arena_elements: int
) -> None:
    if not offsets.size:
        return
    low, high = int(offsets.min()), int(offsets.max()) + width
    if low < 0 or high > arena_elements:
        raise KernelError(
            f"{where}: rows reach from element {low} to {high}, the arena holds {arena_elements}"
        )
    if (offsets % align).any():
        raise KernelError(
            f"{where}: a row starts at element {int(offsets[offsets % align != 0][0])}, which is "
            f"not a multiple of {align}: pad rows to {ROW_ALIGN_BYTES} bytes"
        )
