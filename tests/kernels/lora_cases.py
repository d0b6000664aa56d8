"""Adapters in a poisoned arena, steps over them, and what the reference says of the step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.memory.packing import padded_row_bytes
from kernels import blocks, reference
from kernels.backend import GROUPS, AdapterBlocks, Block, Rows
from kernels.cpu import Isa, Native, native
from kernels.cpu_lora import TALL_ROWS, CpuLora
from kernels.work import BASE, Segment

LAYERS = 2
RANKS = (1, 3, 4, 8, 12, 16, 24, 32, 33, 48, 64)
Shapes = Mapping[str, tuple[int, int]]
# (out, in): whole tiles and vectors; and widths that end within one.
EVEN: Shapes = {
    "q_proj": (96, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 96),
    "gate_proj": (160, 64), "up_proj": (160, 64), "down_proj": (64, 160),
}  # fmt: skip
ODD: Shapes = {
    "q_proj": (37, 50), "k_proj": (13, 50), "v_proj": (13, 50), "o_proj": (50, 37),
    "gate_proj": (151, 50), "up_proj": (151, 50), "down_proj": (50, 151),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Adapters of one arena, as backends are told of them and as the reference is."""

    dtype: torch.dtype
    shapes: Shapes
    arena: torch.Tensor
    adapters: dict[str, AdapterBlocks]
    pairs: dict[str, dict[tuple[int, str], blocks.Pair]]


def make_world(
    dtype: torch.dtype,
    shapes: Shapes,
    ranks: Mapping[str, Callable[[int, str], int]],
    seed: int = 0,
    cuts: Callable[[int], Sequence[int]] = lambda rank: (),
) -> World:
    """`ranks`: adapter -> (layer, module) -> rank, 0 where it has none; `cuts`: a block's rank ->
    the rows it is split at. Whatever is no weight is NaN: gaps, and the padding of rows."""
    rng = random.Random(seed)
    pieces: list[tuple[str, int, str, str, int, int]] = []
    for key, rank_of in ranks.items():
        for layer in range(LAYERS):
            for module, widths in shapes.items():
                rank = rank_of(layer, module)
                for side, width in zip(("Bt", "A"), widths, strict=True):
                    bounds = (0, *cuts(rank), rank)
                    for first, stop in itertools.pairwise(bounds):
                        if rank and first < stop:
                            pieces.append((key, layer, module, side, stop - first, width))
    order = list(range(len(pieces)))
    rng.shuffle(order)
    offsets, at = [0] * len(pieces), 0
    for i in order:
        *_, rows, width = pieces[i]
        at += 128 // dtype.itemsize * rng.randint(0, 2)
        offsets[i] = at
        at += rows * padded_row_bytes(width, dtype.itemsize) // dtype.itemsize
    arena = torch.full((at + 64,), float("nan"), dtype=dtype)
    g = torch.Generator().manual_seed(seed)
    spans: dict[tuple[str, int, str, str], list[blocks.Span]] = {}
    views: dict[tuple[str, int, str, str], list[torch.Tensor]] = {}
    for (*name, rows, width), offset in zip(pieces, offsets, strict=True):
        key, layer, module, side = name
        stride = padded_row_bytes(width, dtype.itemsize) // dtype.itemsize
        view = arena[offset : offset + rows * stride].view(rows, stride)[:, :width]
        view.copy_(torch.randn(rows, width, generator=g) / (width**0.5 if side == "A" else 2))
        spans.setdefault((key, layer, module, side), []).append(blocks.Span(rows, offset, stride))
        views.setdefault((key, layer, module, side), []).append(view)
    adapters, pairs = {}, {}
    for key, rank_of in ranks.items():
        own: dict[tuple[int, str], Block] = {}
        told: dict[tuple[int, str], blocks.Pair] = {}
        for layer in range(LAYERS):
            for module, (out, width) in shapes.items():
                if rank := rank_of(layer, module):
                    a, bt = ((key, layer, module, side) for side in ("A", "Bt"))
                    own[layer, module] = Block(rank, tuple(views[a]), tuple(views[bt]))
                    told[layer, module] = blocks.Pair(
                        blocks.Block(tuple(spans[a]), width), blocks.Block(tuple(spans[bt]), out)
                    )
        largest = max(b.rank for b in own.values())
        adapters[key], pairs[key] = AdapterBlocks(key, 1, largest, own), told
    return World(dtype, shapes, arena, adapters, pairs)


def tile(*spec: tuple[str | None, int]) -> list[Rows]:
    """Rows of a step: adapter and number of tokens, in order."""
    rows, at = [], 0
    for adapter, size in spec:
        rows.append(Rows(adapter, at, at + size))
        at += size
    return rows


def operands(
    world: World, group: str, rows: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of a group, the rows of y's memory NaN beyond its columns."""
    g = torch.Generator().manual_seed(seed)
    modules = GROUPS[group]
    width, out = world.shapes[modules[0]][1], sum(world.shapes[m][0] for m in modules)
    x = torch.randn(rows, width, generator=g).to(world.dtype)
    memory = torch.full((rows, out + 8), float("nan"), dtype=world.dtype)
    y = memory[:, :out]
    y.copy_(torch.randn(rows, out, generator=g))
    return x, y


def expected(
    world: World, rows: Sequence[Rows], layer: int, group: str, x: torch.Tensor, y: torch.Tensor,
    tall: bool,
) -> torch.Tensor:  # fmt: skip
    """y with the reference's LoRA added; with `tall`, t of long segments is rounded between."""
    keys = list(world.pairs)
    slots = [[world.pairs[k].get((layer, m)) for m in GROUPS[group]] for k in keys]
    # A slot nobody names, which has every module: the reference takes columns' widths from it.
    ruler = [
        blocks.Pair(
            blocks.Block((blocks.Span(1, 0, 0),), world.shapes[m][1]),
            blocks.Block((blocks.Span(1, 0, 0),), world.shapes[m][0]),
        )
        for m in GROUPS[group]
    ]
    slots.append(ruler)
    segments = [
        Segment(r.start, r.stop - r.start, keys.index(r.adapter) if r.adapter else BASE)
        for r in rows
    ]
    t = torch.zeros(len(ruler), len(x), max(a.rank for a in world.adapters.values()))
    reference.shrink(x, world.arena, slots, segments, t)
    for s in segments:
        if tall and s.rows >= TALL_ROWS:
            part = t[:, s.first_row : s.first_row + s.rows]
            part.copy_(part.to(world.dtype))
    want = y.clone()
    reference.expand(t, world.arena, slots, segments, want)
    return want


def backend(world: World, isa: Isa) -> CpuLora:
    found = native()
    assert isinstance(found, Native)
    return CpuLora(Native(found.functions, isa), LAYERS, world.shapes, world.dtype)


def check(world: World, lora: CpuLora, isa: Isa, rows: Sequence[Rows], seed: int = 0) -> None:
    """Every layer and group equals the reference, and nothing else is written."""
    step = lora.prepare(rows, world.adapters)
    even = all(o % 16 == 0 and i % 32 == 0 for o, i in world.shapes.values())
    tall = isa == Isa.AMX and world.dtype == torch.bfloat16 and even
    total = rows[-1].stop + 3  # rows beyond: base prefill
    for layer in range(LAYERS):
        for group in GROUPS:
            x, y = operands(world, group, total, seed)
            want = expected(world, rows, layer, group, x, y, tall)
            kept = y.clone()
            if step is not None:
                step.apply(layer, group, x, y)
            close(y, want, tall)
            base = [i for r in rows if r.adapter is None for i in range(r.start, r.stop)]
            base += range(rows[-1].stop, total)
            assert torch.equal(y[base], kept[base])
            beyond = y.as_strided((total, 8), (y.stride(0), 1), y.storage_offset() + y.shape[1])
            assert beyond.isnan().all()


def close(got: torch.Tensor, want: torch.Tensor, tall: bool) -> None:
    """Within the sum's own rounding, plus one unit in the last place where it fell the other way;
    where t was rounded, plus what one such unit of t comes to."""
    last_place = {torch.float32: 2e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
    assert torch.isfinite(got).all()
    room = 2e-5 + last_place[got.dtype] * want.double().abs()
    if tall:
        room += 2.0**-6
    worst = ((got.double() - want.double()).abs() / room).max().item()
    assert worst <= 1, f"{worst:.2f} times the room"
