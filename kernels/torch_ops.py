"""Grouped LoRA in plain torch: a few matrix products a module for all adapters of a step.

Each adapter in use is *staged*: its blocks are stacked over layers and over the modules of a
group, so that one product serves q, k and v. The rows of few tokens are computed together on the
operands of exactly the active adapters (staged ones laid side by side); the product x·Aᵀ is cut
to each row's own columns before the second product. On a CPU, where operands come from memory and
each call costs tens of microseconds, this beats both a loop over adapters and operands of all that
are resident. Long segments, where the columns of others would cost more than calls, go alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernels.backend import GROUPS, AdapterBlocks, Rows, StepLora

# A segment goes alone when rows x (columns of others) exceeds this: about where the wasted
# products cost as much as the 11 calls a layer that going alone takes (two AVX-512 cores).
ALONE_AT = 4096
# Operands with so much more columns than needed are used on rather than laid out anew.
SLACK = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    """Operands of one adapter, or of several side by side.

    a: group -> [layers, modules, columns, in]; bt: module -> [layers, columns, out]. Columns of
    a module an adapter lacks are zero.
    """

    columns: int
    a: Mapping[str, torch.Tensor]
    bt: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class _Staged:
    """One generation of an adapter, stacked for a set of modules."""

    generation: int
    modules: frozenset[str]
    stack: _Stack


class GroupedLora:
    """The plain-torch backend (`LoraBackend`).

    shapes: module -> (out, in). Operands hold at most `max_columns` columns beyond which adapters
    go alone; staged copies hold at most `max_staged` columns over all adapters (and at least the
    step's own): layers x Σ(in + out) elements a column.
    """

    def __init__(
        self,
        layers: int,
        shapes: Mapping[str, tuple[int, int]],
        dtype: torch.dtype,
        max_columns: int = 256,
        max_staged: int = 512,
    ) -> None:
        self._layers = layers
        self._shapes = dict(shapes)
        self._dtype = dtype
        self._max_columns = max_columns
        self._max_staged = max_staged
        self._modules: frozenset[str] = frozenset()  # of any adapter seen
        self._staged: dict[str, _Staged] = {}  # in order of last use
        self._side_by_side: dict[str, tuple[int, int]] = {}  # key -> (generation, first column)
        self._operands: _Stack | None = None

    @property
    def columns_held(self) -> int:
        """Width of the operands now."""
        return self._operands.columns if self._operands else 0

    @property
    def columns_staged(self) -> int:
        return sum(s.stack.columns for s in self._staged.values())

    def adopt(self, adapter: AdapterBlocks) -> None:
        """Nothing: what is staged is staged by the steps' own thread."""

    def forget(self, key: str) -> None:
        self._staged.pop(key, None)

    def prepare(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> StepLora | None:
        """`rows` tile rows 0 .. n of the step in order; see `LoraBackend.prepare`."""
        keys = list(dict.fromkeys(r.adapter for r in rows if r.adapter is not None))
        if not keys:
            return None
        self._modules = self._modules.union(m for k in keys for _, m in adapters[k].blocks)
        staged = {k: self._stage(adapters[k]).stack for k in keys}
        self._trim(keys)
        together, alone = self._split(rows, adapters)
        wanted = list(dict.fromkeys(r.adapter for r in together if r.adapter is not None))
        operands, stop = None, 0
        if wanted:
            operands = self._lay_out([adapters[k] for k in wanted], staged)
            stop = together[-1].stop
        return _Step(
            self,
            operands,
            stop,
            self._masks(together, operands, adapters, stop),
            tuple((staged[k], start, end) for k, start, end in alone),
        )

    def _split(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> tuple[list[Rows], list[tuple[str, int, int]]]:
        """The leading rows to compute together, and the segments that go alone."""
        short = {r.adapter for r in rows if r.adapter is not None and r.stop - r.start == 1}
        together: list[Rows] = []
        alone: list[tuple[str, int, int]] = []
        last = 0
        room, fitting = self._max_columns, set[str]()
        for r in rows:
            key = r.adapter
            if key is not None:
                size, rank = r.stop - r.start, adapters[key].rank
                others = sum(adapters[k].rank for k in short | fitting if k != key)
                fits = key in fitting or rank <= room
                if not fits or (size > 1 and size * others > ALONE_AT):
                    alone.append((key, r.start, r.stop))
                    r = Rows(None, r.start, r.stop)
                else:
                    if key not in fitting:
                        fitting.add(key)
                        room -= rank
                    last = len(together) + 1
            together.append(r)
        return together[:last], alone

    def _stage(self, adapter: AdapterBlocks) -> _Staged:
        """The adapter's stacked blocks, made at its first use and kept while it is used."""
        kept = self._staged.pop(adapter.key, None)
        fresh = kept is not None and kept.generation == adapter.generation
        if kept is None or not fresh or kept.modules != self._modules:
            kept = _Staged(adapter.generation, self._modules, self._stacked(adapter))
        self._staged[adapter.key] = kept
        return kept

    def _stacked(self, adapter: AdapterBlocks) -> _Stack:
        a: dict[str, torch.Tensor] = {}
        bt: dict[str, torch.Tensor] = {}
        rank = adapter.rank
        for group in GROUPS:
            modules = self.modules(group)
            if not modules:
                continue
            width = self._shapes[modules[0]][1]
            # Zeros, not garbage: a column nobody fills is multiplied by zero, and 0 x NaN is NaN.
            a[group] = torch.zeros(self._layers, len(modules), rank, width, dtype=self._dtype)
            for index, module in enumerate(modules):
                out = self._shapes[module][0]
                bt[module] = torch.zeros(self._layers, rank, out, dtype=self._dtype)
                for layer in range(self._layers):
                    block = adapter.blocks.get((layer, module))
                    if block is not None:
                        _fill(a[group][layer, index], block.a)
                        _fill(bt[module][layer], block.bt)
        return _Stack(rank, a, bt)

    def _trim(self, keys: Sequence[str]) -> None:
        """Drop the least recently used staged copies beyond the bound, the step's own excepted."""
        over = self.columns_staged - self._max_staged
        for key in list(self._staged):
            if over <= 0 or key in keys:
                return
            over -= self._staged.pop(key).stack.columns

    def _lay_out(self, wanted: Sequence[AdapterBlocks], staged: Mapping[str, _Stack]) -> _Stack:
        """Operands that contain `wanted` in their present generations, and little else."""
        need = sum(a.rank for a in wanted)
        held = self._operands
        if (
            held is not None
            and held.columns <= max(need + 8, SLACK * need)
            and held.bt.keys() == self._modules
            and all(
                a.key in self._side_by_side and self._side_by_side[a.key][0] == a.generation
                for a in wanted
            )
        ):
            return held
        stacks = [staged[a.key] for a in wanted]
        if len(stacks) == 1:
            self._operands = stacks[0]
        else:
            self._operands = _Stack(
                need,
                {g: torch.cat([s.a[g] for s in stacks], 2) for g in stacks[0].a},
                {m: torch.cat([s.bt[m] for s in stacks], 1) for m in stacks[0].bt},
            )
        self._side_by_side, first = {}, 0
        for a in wanted:
            self._side_by_side[a.key] = (a.generation, first)
            first += a.rank
        return self._operands

    def modules(self, group: str) -> tuple[str, ...]:
        """The group's modules that any adapter seen has."""
        return tuple(m for m in GROUPS[group] if m in self._modules)

    def _masks(
        self,
        together: Sequence[Rows],
        operands: _Stack | None,
        adapters: Mapping[str, AdapterBlocks],
        stop: int,
    ) -> dict[int, torch.Tensor]:
        """number of modules -> [stop, modules x columns], True where a column is not the row's.
        Empty where every column is every row's."""
        if operands is None:
            return {}
        bounds: list[tuple[int, int]] = []
        for r in together:
            ends = (0, 0)
            if r.adapter is not None:
                first = self._side_by_side[r.adapter][1]
                ends = (first, first + adapters[r.adapter].rank)
            bounds += [ends] * (r.stop - r.start)
        if all(b == (0, operands.columns) for b in bounds):
            return {}
        table = torch.tensor(bounds)
        columns = torch.arange(operands.columns)
        mask = (columns < table[:, :1]) | (columns >= table[:, 1:])
        counts = {len(self.modules(g)) for g in GROUPS} - {0}
        return {n: mask.repeat(1, n) if n > 1 else mask for n in counts}

    def products(
        self,
        stack: _Stack,
        layer: int,
        group: str,
        x: torch.Tensor,
        y: torch.Tensor,
        masks: Mapping[int, torch.Tensor],
    ) -> None:
        """y [n, Σ out] += (x [n, in] · Aᵀ, cut to each row's columns) · Bᵀᵀ, module by module."""
        modules = self.modules(group)
        if not modules:
            return
        t = F.linear(x, stack.a[group][layer].view(-1, x.shape[1]))
        mask = masks.get(len(modules))
        if mask is not None:
            # A fill, not a product with 0/1: another adapter's column may have overflowed.
            t = t.masked_fill_(mask, 0.0)
        for index, module in enumerate(modules):
            own = t.narrow(1, index * stack.columns, stack.columns)
            self._columns(y, group, module).addmm_(own, stack.bt[module][layer])

    def _columns(self, y: torch.Tensor, group: str, module: str) -> torch.Tensor:
        """The columns of `y` that hold a module's output."""
        first = 0
        for m in GROUPS[group]:
            if m == module:
                break
            first += self._shapes[m][0]
        return y.narrow(1, first, self._shapes[module][0])


class _Step:
    """LoRA of one step: the leading rows together, some segments alone."""

    def __init__(
        self,
        owner: GroupedLora,
        operands: _Stack | None,
        stop: int,
        masks: Mapping[int, torch.Tensor],
        alone: tuple[tuple[_Stack, int, int], ...],
    ) -> None:
        self._owner = owner
        self._operands = operands
        self._stop = stop
        self._masks = masks
        self._alone = alone

    def apply(self, layer: int, group: str, x: torch.Tensor, y: torch.Tensor) -> None:
        if self._operands is not None:
            stop = self._stop
            self._owner.products(self._operands, layer, group, x[:stop], y[:stop], self._masks)
        for stack, start, stop in self._alone:
            self._owner.products(stack, layer, group, x[start:stop], y[start:stop], {})


def _fill(target: torch.Tensor, pieces: Sequence[torch.Tensor]) -> None:
    """The first rows of `target` = the pieces stacked."""
    row = 0
    for piece in pieces:
        target[row : row + piece.shape[0]].copy_(piece)
        row += piece.shape[0]
