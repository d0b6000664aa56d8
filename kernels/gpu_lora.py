"""LoRA of a step by the Triton pair, over adapters where they lie in the arena. Copies no weights.

A *slot* holds the row offsets of one adapter's blocks, of all layers, on the device: it is written
when an adapter is first used in its present generation and read by every step after. A step builds
only its work lists, into memory that is made once; where its rows, slots and generations are those
of the step before, it builds nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from kernels import sgmv
from kernels.backend import GROUPS, AdapterBlocks, Rows, StepLora
from kernels.blocks import INDEX_COLUMNS, ROW_ALIGN_BYTES, Table
from kernels.errors import KernelError
from kernels.gpu_room import StepRoom, values_of
from kernels.work import (
    BASE,
    DECODE,
    ITEM_COLUMNS,
    PREFILL,
    Buffers,
    Capacity,
    Segment,
    Tile,
    Work,
    build_works,
    pick_tile,
)


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
    `slots` adapters a step, of at most `max_rank` each. `max_rows`: of a step; all memory that its
    lists and sums need is made at once then, else as steps come that need it.
    """

    def __init__(
        self,
        layers: int,
        shapes: Mapping[str, tuple[int, int]],
        arena: torch.Tensor,
        slots: int = 64,
        max_rank: int = 64,
        max_rows: int = 0,
    ) -> None:
        self._layers = layers
        self.arena = arena.view(-1)
        # In fours, so that every layer's part of the index starts on a 16-byte boundary: a kernel
        # is compiled for that, or not.
        self._slots = -(-slots // 4) * 4
        self.max_rank = max_rank
        modules = sum(len(m) for m in GROUPS.values())
        self._room = layers * modules * 2 * max_rank  # entries of a slot
        device = arena.device
        self._rows = torch.zeros(self._slots * self._room, dtype=torch.int64, device=device)
        self._index: dict[str, torch.Tensor] = {}
        self._ranks: dict[str, np.ndarray] = {}  # [layers, slots, slices]
        self._widths: dict[str, tuple[int, ...]] = {}
        self._in: dict[str, int] = {}
        self._tables: dict[str, list[Table]] = {}
        for group, names in GROUPS.items():
            widths = np.array([shapes[m][0] for m in names])
            self._widths[group] = tuple(int(w) for w in widths)
            self._in[group] = shapes[names[0]][1]
            columns = np.stack([np.cumsum(widths) - widths, widths], axis=1).astype(np.int32)
            size = (layers, self._slots, len(names))
            self._index[group] = torch.zeros(*size, INDEX_COLUMNS, dtype=torch.int32, device=device)
            self._ranks[group] = np.zeros(size, np.int32)
            self._tables[group] = self._made_tables(group, torch.from_numpy(columns).to(device))
        self._placed: dict[str, _Placed] = {}
        self._held: dict[str, tuple[int, int]] = {}  # key -> (slot, generation), by last use
        self._lists = StepRoom(device, self._most_values(max_rows))
        self._partials = torch.empty(self.most_sums(max_rows), device=device)
        self._last: tuple[object, _Step] | None = None

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
        segments, generations = self.segments(rows, adapters)
        if not generations:
            return None
        # With the generations: a slot that was written anew may have other ranks.
        same = (tuple(segments), generations)
        if self._last is None or self._last[0] != same:
            works = self.works(segments, pick_tile(segments))
            self._last = (same, _Step(self, self._on_device(works)))
        return self._last[1]

    def fixed(self, rows: int, adapters: int, rank: int) -> FixedLora:
        """Lists that never move, for steps of up to so many rows of up to so many adapters, with
        room for this rank each."""
        return FixedLora(self, rows, adapters, min(rank, self.max_rank))

    def warm(self) -> None:
        """Launch both kernels in every form that a step may ask for, over no rows. None of them
        depends on an adapter."""
        for tile in (DECODE, PREFILL):
            works = [
                replace(w, shrink=item, expand=item)
                for w in self.works([], tile)
                for item in [torch.zeros(1, ITEM_COLUMNS, dtype=torch.int32)]
            ]
            step = _Step(self, self._on_device(works))
            for group in GROUPS:
                x = self.arena.new_zeros(1, self._in[group])
                step.apply(0, group, x, self.arena.new_zeros(1, sum(self._widths[group])))
        self._last = None  # its lists are gone

    def segments(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> tuple[list[Segment], tuple[tuple[int, int], ...]]:
        """The rows with the slots of their adapters, each in its present generation; and the
        (slot, generation) of all that are used."""
        keys = list(dict.fromkeys(r.adapter for r in rows if r.adapter is not None))
        if len(keys) > self._slots:
            raise KernelError(f"{len(keys)} adapters in one step, there are {self._slots} slots")
        slot_of = {key: self._slot(adapters[key], keys) for key in keys}
        return [
            Segment(r.start, r.stop - r.start, BASE if r.adapter is None else slot_of[r.adapter])
            for r in rows
        ], tuple((slot, adapters[key].generation) for key, slot in slot_of.items())

    def works(self, segments: Sequence[Segment], tile: Tile) -> list[Work]:
        """A step's lists, a group each, in host memory."""
        groups = [(r.max(axis=0), self._widths[g]) for g, r in self._ranks.items()]
        return build_works(segments, groups, tile)

    def capacities(self, rows: int, adapters: int, rank: int, tile: Tile) -> list[Capacity]:
        """The most that a step of so many rows and adapters of this rank can need, a group
        each."""
        return [Capacity.of(rows, adapters, rank, widths, tile) for widths in self._widths.values()]

    def widest(self) -> list[np.ndarray]:
        """Ranks [slots, slices] that no adapter passes, a group each."""
        return [
            np.full((self._slots, len(w)), self.max_rank, np.int64) for w in self._widths.values()
        ]

    def table(self, layer: int, group: str) -> Table:
        """What a launch reads of all slots."""
        return self._tables[group][layer]

    def sums(
        self, group: str, tile: Tile, rows: int, kept: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Room between shrink and expand, kept over launches: float32 [splits, slices, rows,
        ranks], of `kept` where that is given. Its strides depend on the rows alone, not on who is
        on the device: a captured graph has them in it."""
        shape = self._sums_shape(group, tile, rows)
        needed = math.prod(shape)
        room = self.room_of(needed) if kept is None else kept
        return room[:needed].view(shape)

    def room_of(self, values: int) -> torch.Tensor:
        """At least so many float32 values, the same as before where it had so many."""
        if len(self._partials) < values:
            self._partials = torch.empty(values + values // 2, device=self.arena.device)
        return self._partials

    def most_sums(self, rows: int) -> int:
        """float32 values between shrink and expand of any step of so many rows."""
        return max(
            math.prod(self._sums_shape(g, tile, rows)) for g in GROUPS for tile in (DECODE, PREFILL)
        )

    def _sums_shape(self, group: str, tile: Tile, rows: int) -> tuple[int, int, int, int]:
        ranks = -(-max(1, self.max_rank) // tile.r) * tile.r
        return tile.splits(self._in[group]), len(self._widths[group]), rows, ranks

    def _most_values(self, rows: int) -> int:
        """int32 values of the lists of any step of so many rows."""
        if not rows:
            return 0
        most = []
        for tile in (DECODE, PREFILL):
            held = self.capacities(rows, self._slots, self.max_rank, tile)
            items = [(n, ITEM_COLUMNS) for c in held for n in (c.shrink, c.expand)]
            most.append(values_of([(rows,), *items]))
        return max(most)

    def _made_tables(self, group: str, columns: torch.Tensor) -> list[Table]:
        return [
            Table(
                index=self._index[group][layer],
                rows=self._rows,
                columns=columns,
                ranks=self._ranks[group][layer],
                in_width=self._in[group],
                out_widths=self._widths[group],
                dtype=self.arena.dtype,
            )
            for layer in range(self._layers)
        ]

    def _on_device(self, works: Sequence[Work]) -> list[Work]:
        lists = [part.numpy() for w in works for part in (w.shrink, w.expand)]
        order, *views = self._lists.hold([works[0].order.numpy(), *lists])
        return [
            replace(w, order=order, shrink=views[2 * i], expand=views[2 * i + 1])
            for i, w in enumerate(works)
        ]

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
        if adapter.rank > self.max_rank:
            raise KernelError(
                f"adapter {adapter.key[:12]} has rank {adapter.rank}, the slots hold "
                f"{self.max_rank}: raise max_rank"
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
    """`StepLora` of one step, or of all that a captured graph will replay. `works`: a group
    each."""

    def __init__(
        self, owner: SgmvLora, works: Sequence[Work], kept: torch.Tensor | None = None
    ) -> None:
        """`kept`: room for sums, of this step alone; else the owner's as it is then."""
        self._owner = owner
        self._works = dict(zip(GROUPS, works, strict=True))
        self._kept = kept

    def apply(self, layer: int, group: str, x: torch.Tensor, y: torch.Tensor) -> None:
        work, owner = self._works[group], self._owner
        if not len(work.shrink):
            return
        table = owner.table(layer, group)
        t = owner.sums(group, work.tile, len(x), self._kept)
        sgmv.shrink(x, owner.arena, table, work, t)
        sgmv.expand(t, owner.arena, table, work, y)


class FixedLora:
    """Lists of decode rows at fixed places, filled anew for each step (`SgmvLora.fixed`).

    `step` is launched over all of their room whatever a step fills: the rest are items of no rows.
    """

    def __init__(self, owner: SgmvLora, rows: int, adapters: int, rank: int) -> None:
        self._owner = owner
        capacities = owner.capacities(rows, adapters, rank, DECODE)
        self._buffers = Buffers(capacities, owner.arena.device)
        empty = self._buffers.hold(owner.works([], DECODE))
        # Cut for any rank: later steps' adapters may have more than today's.
        works = [replace(w, ranks=r) for w, r in zip(empty, owner.widest(), strict=True)]
        # Held here: a graph knows the room by its address, and the owner may come to need more.
        self.step: StepLora = _Step(owner, works, owner.room_of(owner.most_sums(rows)))
        self._filled: object = ()

    def try_fill(self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]) -> bool:
        """The lists are this step's from now on; False: it has more work than they hold."""
        segments, generations = self._owner.segments(rows, adapters)
        same = (tuple(segments), generations)
        if same == self._filled:
            return True
        works = self._owner.works(segments, DECODE)
        if self._buffers.lacks(works) is not None:
            return False
        self._filled = ()  # until the copy has been made
        self._buffers.hold(works)
        self._filled = same
        return True
