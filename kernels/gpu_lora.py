"""LoRA of a step by the Triton pair, over adapters where they lie in the arena. Copies no weights.

A *slot* holds the row offsets of one adapter's blocks, of all layers, on the device: it is written
when an adapter is first used in its present generation and read by every step after. A step builds
only its work lists, one a group of linears.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernels import sgmv
from kernels.backend import GROUPS, AdapterBlocks, Rows, StepLora
from kernels.blocks import INDEX_COLUMNS, ROW_ALIGN_BYTES, Table
from kernels.errors import KernelError
from kernels.work import BASE, Segment, Work, build_work, pick_tile


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """Where one generation of an adapter lies. index: group -> int32 [layers, slices, 3], its
    entries counted from the slot's first; rows: int64, an element offset each."""

    generation: int
    index: Mapping[str, np.ndarray]
    rows: np.ndarray


class SgmvLora:
    """The Triton backend (`LoraBackend`).

    shapes: module -> (out, in). arena: [pages, elements], of which all blocks are views. At most
    `slots` adapters a step, of at most `max_rank` each.
    """

    def __init__(
        self,
        layers: int,
        shapes: Mapping[str, tuple[int, int]],
        arena: torch.Tensor,
        slots: int = 64,
        max_rank: int = 64,
    ) -> None:
        self._layers = layers
        self.arena = arena.view(-1)
        self._slots = slots
        self._max_rank = max_rank
        modules = sum(len(m) for m in GROUPS.values())
        self._room = layers * modules * 2 * max_rank  # entries of a slot
        device = arena.device
        self._rows = torch.zeros(slots * self._room, dtype=torch.int64, device=device)
        self._index: dict[str, torch.Tensor] = {}
        self._ranks: dict[str, np.ndarray] = {}  # [layers, slots, slices]
        self._columns: dict[str, torch.Tensor] = {}
        self._widths: dict[str, tuple[int, ...]] = {}
        self._in: dict[str, int] = {}
        for group, names in GROUPS.items():
            widths = np.array([shapes[m][0] for m in names])
            self._widths[group] = tuple(int(w) for w in widths)
            self._in[group] = shapes[names[0]][1]
            columns = np.stack([np.cumsum(widths) - widths, widths], axis=1).astype(np.int32)
            self._columns[group] = torch.from_numpy(columns).to(device)
            size = (layers, slots, len(names))
            self._index[group] = torch.zeros(*size, INDEX_COLUMNS, dtype=torch.int32, device=device)
            self._ranks[group] = np.zeros(size, np.int32)
        self._placed: dict[str, _Placed] = {}
        self._held: dict[str, tuple[int, int]] = {}  # key -> (slot, generation), by last use
        self._partials = torch.empty(0, device=device)

    def adopt(self, adapter: AdapterBlocks) -> None:
        """Find its blocks' rows, so that no step pays for it. Raises KernelError for an adapter of
        too high a rank, or rows that are not 128-byte rows of the arena."""
        self._placed[adapter.key] = self._place(adapter)

    def forget(self, key: str) -> None:
        self._placed.pop(key, None)
        self._held.pop(key, None)

    def prepare(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> StepLora | None:
        """See `LoraBackend.prepare`. Raises KernelError for more adapters than slots."""
        keys = list(dict.fromkeys(r.adapter for r in rows if r.adapter is not None))
        if not keys:
            return None
        if len(keys) > self._slots:
            raise KernelError(f"{len(keys)} adapters in one step, there are {self._slots} slots")
        slot_of = {key: self._slot(adapters[key], keys) for key in keys}
        segments = [
            Segment(r.start, r.stop - r.start, BASE if r.adapter is None else slot_of[r.adapter])
            for r in rows
        ]
        tile, device = pick_tile(segments), self.arena.device
        work = {
            group: build_work(segments, ranks.max(axis=0), self._widths[group], tile, device=device)
            for group, ranks in self._ranks.items()
        }
        return _Step(self, work)

    def table(self, layer: int, group: str) -> Table:
        """What a launch reads of all slots."""
        return Table(
            index=self._index[group][layer],
            rows=self._rows,
            columns=self._columns[group],
            ranks=self._ranks[group][layer],
            in_width=self._in[group],
            out_widths=self._widths[group],
            dtype=self.arena.dtype,
        )

    def partials(self, shape: tuple[int, int, int, int]) -> torch.Tensor:
        """Room between shrink and expand, kept over launches."""
        needed = int(np.prod(shape))
        if len(self._partials) < needed:
            self._partials = torch.empty(needed + needed // 2, device=self.arena.device)
        return self._partials[:needed].view(shape)

    def _slot(self, adapter: AdapterBlocks, wanted: Sequence[str]) -> int:
        """The slot of the adapter's present generation, written if it is not there yet."""
        slot, generation = self._held.pop(adapter.key, (-1, -1))
        if slot < 0:
            taken = {s for s, _ in self._held.values()}
            free = (s for s in range(self._slots) if s not in taken)
            slot = next(free, -1)
        if slot < 0:  # the one unused for longest gives way, the step's own excepted
            oldest = next(k for k in self._held if k not in wanted)
            slot, _ = self._held.pop(oldest)
        if generation != adapter.generation:
            self._write(slot, adapter)
        self._held[adapter.key] = (slot, adapter.generation)
        return slot

    def _write(self, slot: int, adapter: AdapterBlocks) -> None:
        placed = self._placed.get(adapter.key)
        if placed is None or placed.generation != adapter.generation:
            placed = self._placed[adapter.key] = self._place(adapter)
        first = slot * self._room
        self._rows[first : first + len(placed.rows)] = torch.from_numpy(placed.rows)
        for group, index in placed.index.items():
            moved = index + np.array([0, first, first], np.int32)
            self._index[group][:, slot] = torch.from_numpy(moved)
            self._ranks[group][:, slot] = index[:, :, 0]

    def _place(self, adapter: AdapterBlocks) -> _Placed:
        if adapter.rank > self._max_rank:
            raise KernelError(
                f"adapter {adapter.key[:12]} has rank {adapter.rank}, the slots hold "
                f"{self._max_rank}: raise max_rank"
            )
        found: list[np.ndarray] = []
        entries = 0
        index = {
            g: np.zeros((self._layers, len(names), INDEX_COLUMNS), np.int32)
            for g, names in GROUPS.items()
        }
        for layer, (group, names) in itertools.product(range(self._layers), GROUPS.items()):
            for piece, module in enumerate(names):
                block = adapter.blocks.get((layer, module))
                if block is None or not block.rank:
                    continue
                index[group][layer, piece] = (block.rank, entries, entries + block.rank)
                found += [self._offsets(p, adapter.key) for p in (*block.a, *block.bt)]
                entries += 2 * block.rank
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
        return _Placed(adapter.generation, index, rows)

    def _offsets(self, piece: torch.Tensor, key: str) -> np.ndarray:
        size = self.arena.itemsize
        first = piece.data_ptr() - self.arena.data_ptr()
        last = first + ((piece.shape[0] - 1) * piece.stride(0) + piece.shape[1]) * size
        aligned = first % ROW_ALIGN_BYTES == 0 and piece.stride(0) * size % ROW_ALIGN_BYTES == 0
        if first < 0 or last > self.arena.nbytes or not aligned or piece.stride(1) != 1:
            raise KernelError(
                f"adapter {key[:12]}: rows at byte {first} of the arena, {piece.stride(0)} elements"
                f" apart, are not {ROW_ALIGN_BYTES}-byte rows of it"
            )
        offsets: np.ndarray = first // size + np.arange(piece.shape[0], dtype=np.int64) * int(
            piece.stride(0)
        )
        return offsets


class _Step:
    """`StepLora` of one step."""

    def __init__(self, owner: SgmvLora, work: Mapping[str, Work]) -> None:
        self._owner = owner
        self._work = work

    def apply(self, layer: int, group: str, x: torch.Tensor, y: torch.Tensor) -> None:
        work, owner = self._work[group], self._owner
        if not len(work.shrink):
            return
        table = owner.table(layer, group)
        t = owner.partials(sgmv.partials_shape(table, work, len(x)))
        sgmv.shrink(x, owner.arena, table, work, t)
        sgmv.expand(t, owner.arena, table, work, y)
