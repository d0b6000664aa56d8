"""LoRA by the native CPU kernels: reads A and Bᵀ where they lie in the arena. Copies no weights.

An adapter's *table* says where its blocks are; it is made once a copy. A step's rows are listed by
adapter, so that weights are read once for all rows of one; a segment of many tokens is a product
of tiles where the CPU has them. Then each call is one C call a layer and group. The structs are
those of csrc/lora.h, as int64 arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass

import torch

from kernels.backend import GROUPS, AdapterBlocks, Block, LoraBackend, Rows, StepLora
from kernels.cpu import DTYPES, Absent, Isa, Native, native
from kernels.errors import KernelError
from kernels.torch_ops import GroupedLora

# From so many tokens on, packing an adapter for the tiles costs less than it saves. A segment's own
# length decides, never its neighbours': a row's bits do not depend on who shares its step.
TALL_ROWS = 32
_TILE_DEPTH = 32  # bf16 elements of a tile's row
_TILE_COLUMNS = 16
_TILE_CHUNK = 512  # columns of y whose Bᵀ is interleaved at once
_PAIR = 5  # int64 of a TsPair: A's and Bt's address and row stride, rank
_MOST_MODULES = max(map(len, GROUPS.values()))

Shapes = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Where one copy of an adapter lies. `pairs`: a TsPair a layer and module; `split`: the row
    addresses of blocks over several pages; `blocks` keeps the memory itself alive."""

    generation: int
    rank: int
    pairs: array[int]
    split: tuple[array[int], ...]
    blocks: AdapterBlocks


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """A TsGroup, with what its operands must look like."""

    struct: array[int]
    address: int
    width: int
    out: int


def best_lora(layers: int, shapes: Shapes, dtype: torch.dtype) -> tuple[LoraBackend, str]:
    """The fastest backend here, and a sentence about it for whoever starts the engine."""
    found = native()
    if isinstance(found, Absent):
        why = found.reason
    elif dtype not in DTYPES:
        why = f"the native kernels do not compute in {_name(dtype)}"
    elif dtype == torch.float16 and found.isa == Isa.PLAIN:
        why = "this CPU has no F16C: the native kernels do not compute in float16 here"
    else:
        backend = CpuLora(found, layers, shapes, dtype)
        return backend, f"LoRA: native kernels, {found.isa.name.lower()}, {_name(dtype)}"
    return GroupedLora(layers, shapes, dtype), f"LoRA: plain torch, which is slower: {why}"


class CpuLora:
    """The native backend (`LoraBackend`). shapes: module -> (out, in), all of `GROUPS`."""

    def __init__(self, found: Native, layers: int, shapes: Shapes, dtype: torch.dtype) -> None:
        """Raises KernelError for a dtype that this instruction set does not compute in."""
        if dtype not in DTYPES or (dtype == torch.float16 and found.isa == Isa.PLAIN):
            raise KernelError(
                f"native LoRA in {_name(dtype)} with {found.isa.name.lower()}: use float32 or "
                "bfloat16, or the torch backend"
            )
        self._isa = found.isa
        self._dtype = dtype
        self._layers = layers
        self._shapes = dict(shapes)
        self._modules = {m: i for i, m in enumerate(m for g in GROUPS.values() for m in g)}
        self._groups = {name: self._group(name) for name in GROUPS}
        self._tiles = (
            found.isa == Isa.AMX
            and dtype == torch.bfloat16
            and all(o % _TILE_COLUMNS == 0 and i % _TILE_DEPTH == 0 for o, i in shapes.values())
        )
        self._tables: dict[str, _Table] = {}
        self._t = torch.empty(0)
        self._packed = torch.empty(0, dtype=torch.uint8)
        self._call = found.functions.ts_lora
        self._call.argtypes = [c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64]
        self._call.restype = None

    def adopt(self, adapter: AdapterBlocks) -> None:
        self._tables[adapter.key] = self._table(adapter)

    def forget(self, key: str) -> None:
        self._tables.pop(key, None)

    def prepare(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> StepLora | None:
        """See `LoraBackend.prepare`. Raises KernelError when a block does not fit the model."""
        short: dict[str, list[int]] = {}
        tall: list[tuple[str, list[int]]] = []
        for r in rows:
            if r.adapter is None:
                continue
            own = range(r.start, r.stop)
            if self._tiles and len(own) >= TALL_ROWS:
                tall.append((r.adapter, list(own)))
            else:
                short.setdefault(r.adapter, []).extend(own)
        if not short and not tall:
            return None
        listed = array("q")
        entries = array("q")
        tables: list[_Table] = []
        floats = 0
        for key, numbers, is_tall in (
            *((k, n, False) for k, n in short.items()),
            *((k, n, True) for k, n in tall),
        ):
            table = self._of(adapters[key])
            width = -(-table.rank // _TILE_DEPTH) * _TILE_DEPTH if is_tall else table.rank
            entries.extend(
                (_address(table.pairs), len(listed), len(numbers), floats, width, int(is_tall))
            )
            listed.extend(numbers)
            floats += _MOST_MODULES * len(numbers) * width
            tables.append(table)
        threads = torch.get_num_threads()
        packed, each = self._scratch(floats, max(t.rank for t in tables), threads, bool(tall))
        struct = array("q", (self._isa, DTYPES[self._dtype], threads, len(self._modules)))
        struct.extend((_address(entries), len(tables), _address(listed)))
        struct.extend((self._t.data_ptr(), packed, each))
        kept = (entries, listed, tables, self._t, self._packed)
        return _Step(self, struct, rows[-1].stop, kept)

    def _of(self, adapter: AdapterBlocks) -> _Table:
        table = self._tables.get(adapter.key)
        if table is None or table.generation != adapter.generation:
            table = self._tables[adapter.key] = self._table(adapter)
        return table

    def _table(self, adapter: AdapterBlocks) -> _Table:
        pairs = array("q", bytes(8 * _PAIR * self._layers * len(self._modules)))
        split: list[array[int]] = []
        rank = 0
        for (layer, module), block in adapter.blocks.items():
            if module not in self._modules or not 0 <= layer < self._layers:
                raise KernelError(
                    f"adapter {adapter.key[:12]}: layer {layer} {module} is not of this model of "
                    f"{self._layers} layers"
                )
            out, width = self._shapes[module]
            at = _PAIR * (layer * len(self._modules) + self._modules[module])
            pairs[at], pairs[at + 1] = self._side(adapter, block, block.a, width, split)
            pairs[at + 2], pairs[at + 3] = self._side(adapter, block, block.bt, out, split)
            pairs[at + 4] = block.rank
            rank = max(rank, block.rank)
        return _Table(adapter.generation, rank, pairs, tuple(split), adapter)

    def _side(
        self,
        adapter: AdapterBlocks,
        block: Block,
        pieces: Sequence[torch.Tensor],
        width: int,
        split: list[array[int]],
    ) -> tuple[int, int]:
        """Address and row stride in bytes; or the address of the rows' addresses, and 0."""
        rows = 0
        for p in pieces:
            if p.dtype != self._dtype or p.shape[1] != width or p.stride(1) != 1:
                raise KernelError(
                    f"adapter {adapter.key[:12]}: a block of {list(p.shape)} in {_name(p.dtype)}, "
                    f"stride {p.stride()}; needed are rows of {width} in {_name(self._dtype)}, "
                    "each contiguous"
                )
            rows += p.shape[0]
        if rows != block.rank:
            raise KernelError(f"adapter {adapter.key[:12]}: rank {block.rank} but {rows} rows")
        size = self._dtype.itemsize
        if len(pieces) == 1 and pieces[0].stride(0) > 0:
            return pieces[0].data_ptr(), pieces[0].stride(0) * size
        addresses = array("q")
        for p in pieces:
            first, stride = p.data_ptr(), p.stride(0) * size
            addresses.extend(first + i * stride for i in range(p.shape[0]))
        split.append(addresses)
        return _address(addresses), 0

    def _group(self, name: str) -> _Group:
        modules = GROUPS[name]
        width = self._shapes[modules[0]][1]
        struct = array("q", (width, len(modules)))
        first = 0
        for m in modules:
            out, own = self._shapes[m]
            if own != width:
                raise KernelError(f"{m} reads {own} elements, {modules[0]} beside it {width}")
            struct.extend((self._modules[m], first, out))
            first += out
        return _Group(struct, _address(struct), width, first)

    def _scratch(self, floats: int, rank: int, threads: int, tiles: bool) -> tuple[int, int]:
        """Room for t, and for packed operands: the latter's address and bytes a thread. Kept from
        step to step, larger when a step needs more."""
        if self._t.numel() < floats:
            self._t = torch.empty(floats, dtype=torch.float32)
        if not tiles:
            return 0, 0
        widest = max(width for _, width in self._shapes.values())
        deepest = -(-rank // _TILE_DEPTH) * _TILE_DEPTH
        each = max(_TILE_COLUMNS * widest, _TILE_CHUNK * deepest) * self._dtype.itemsize
        if self._packed.numel() < threads * each:
            self._packed = torch.empty(threads * each, dtype=torch.uint8)
        return self._packed.data_ptr(), each

    def add(
        self, step: int, stop: int, layer: int, group: str, x: torch.Tensor, y: torch.Tensor
    ) -> None:
        """Add the LoRA of the step whose struct is at `step` and whose rows end at `stop`.

        Raises KernelError for operands that C would read or write past.
        """
        g = self._groups[group]
        x_rows, width = x.shape
        y_rows, out = y.shape
        x_stride, x_dense = x.stride()
        y_stride, y_dense = y.stride()
        if (
            width != g.width or out != g.out or min(x_rows, y_rows) < stop
            or x_dense != 1 or y_dense != 1 or x.dtype != self._dtype or y.dtype != self._dtype
            or not 0 <= layer < self._layers
        ):  # fmt: skip
            raise KernelError(
                f"layer {layer} {group}: x {list(x.shape)} {_name(x.dtype)} and y {list(y.shape)} "
                f"{_name(y.dtype)}; needed are at least {stop} contiguous rows of {g.width} and "
                f"{g.out} in {_name(self._dtype)}, and a layer below {self._layers}"
            )
        size = self._dtype.itemsize
        self._call(
            step, g.address, layer, x.data_ptr(), x_stride * size, y.data_ptr(), y_stride * size
        )


class _Step:
    """One step: its struct, and whatever the struct points at."""

    __slots__ = ("_address", "_backend", "_kept", "_stop")

    def __init__(
        self, backend: CpuLora, struct: array[int], stop: int, kept: tuple[object, ...]
    ) -> None:
        self._backend = backend
        self._address = _address(struct)
        self._stop = stop
        self._kept = (struct, *kept)

    def apply(self, layer: int, group: str, x: torch.Tensor, y: torch.Tensor) -> None:
        self._backend.add(self._address, self._stop, layer, group, x, y)


def _address(values: array[int]) -> int:
    return values.buffer_info()[0]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
