"""Grouped LoRA in plain torch: two matrix products a module for all adapters of a step.

Rows of few tokens are computed together: the active adapters' blocks are stacked to operands
A [Σ rank, in] and Bt [Σ rank, out]; the product x·Aᵀ is cut to each row's own columns before the
second product. On a CPU this beats a loop over adapters, whose cost is the number of calls. Long
segments, where the columns of others would cost more than calls, go by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernels.backend import GROUPS, AdapterBlocks, Rows, StepLora

# A segment goes by itself when rows x (columns of others) exceeds this: about where the wasted
# products cost as much as the 14 calls a layer that going alone takes (two AVX-512 cores).
ALONE_AT = 8192
# Steps for which the operands may stay twice as wide as needed before they are cut down.
PATIENCE_STEPS = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Columns first .. first+width of the operands, filled from one generation of an adapter."""

    generation: int
    first: int
    width: int


class GroupedLora:
    """The plain-torch backend (`LoraBackend`).

    shapes: module -> (out, in). Operands hold at most `max_columns` columns, in multiples of
    `quantum`: layers x Σ(in + out) x columns elements at most. Adapters beyond them go by
    themselves.
    """

    def __init__(
        self,
        layers: int,
        shapes: Mapping[str, tuple[int, int]],
        dtype: torch.dtype,
        max_columns: int = 384,
        quantum: int = 32,
    ) -> None:
        self._layers = layers
        self._shapes = dict(shapes)
        self._dtype = dtype
        self._max_columns = max_columns
        self._quantum = quantum
        self._places: dict[str, _Place] = {}  # in order of last use
        self._columns = 0
        self._used = 0
        self._slack_steps = 0
        self._modules: frozenset[str] = frozenset()
        self._a: dict[str, torch.Tensor] = {}  # group -> [layers, modules, columns, in]
        self._bt: dict[str, torch.Tensor] = {}  # module -> [layers, columns, out]

    @property
    def columns_held(self) -> int:
        """Width of the operands now."""
        return self._columns

    def forget(self, key: str) -> None:
        self._places.pop(key, None)

    def prepare(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> StepLora | None:
        """`rows` tile rows 0 .. n of the step in order; see `LoraBackend.prepare`."""
        if all(r.adapter is None for r in rows):
            return None
        together, alone = self._split(rows, adapters)
        active = [r for r in together if r.adapter is not None]
        wanted = [adapters[k] for k in dict.fromkeys(r.adapter for r in active if r.adapter)]
        fitting = self._fit(wanted)
        alone += [
            (adapters[r.adapter], r) for r in active if r.adapter and r.adapter not in fitting
        ]
        self._hold([a for a in wanted if a.key in fitting])
        stop = together[-1].stop if together and fitting else 0
        return _Step(self, stop, self._masks(together, fitting, stop), tuple(alone))

    def _split(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> tuple[list[Rows], list[tuple[AdapterBlocks, Rows]]]:
        """The leading rows to compute together, and the segments that go by themselves."""
        ranks = {k: adapters[k].rank for k in {r.adapter for r in rows if r.adapter is not None}}
        total = sum(ranks.values())
        together: list[Rows] = []
        alone: list[tuple[AdapterBlocks, Rows]] = []
        last = 0
        for r in rows:
            if r.adapter is not None:
                size = r.stop - r.start
                if size > 1 and size * (total - ranks[r.adapter]) > ALONE_AT:
                    alone.append((adapters[r.adapter], r))
                    r = Rows(None, r.start, r.stop)
                else:
                    last = len(together) + 1
            together.append(r)
        return together[:last], alone

    def _fit(self, wanted: Sequence[AdapterBlocks]) -> frozenset[str]:
        room, fitting = self._max_columns, set()
        for a in wanted:
            if a.rank <= room:
                room -= a.rank
                fitting.add(a.key)
        return frozenset(fitting)

    def _hold(self, wanted: Sequence[AdapterBlocks]) -> None:
        """Make the operands contain `wanted`, filled from their present generation."""
        if not wanted:
            return
        missing = []
        for a in wanted:
            place = self._places.pop(a.key, None)
            if place is None or place.generation != a.generation:
                missing.append(a)
            else:
                self._places[a.key] = place
        need = self._rounded(sum(a.rank for a in wanted))
        self._slack_steps = self._slack_steps + 1 if 2 * need <= self._columns else 0
        modules = self._modules.union(m for a in missing for _, m in a.blocks)
        added = sum(a.rank for a in missing)
        if self._slack_steps > PATIENCE_STEPS:
            self._rebuild(wanted, frozenset(m for a in wanted for _, m in a.blocks), need)
        elif modules != self._modules or self._used + added > self._max_columns:
            self._rebuild(wanted, modules, need)
        else:
            if self._used + added > self._columns:
                self._widen(self._rounded(self._used + added))
            for a in missing:
                self._place(a)

    def _rounded(self, columns: int) -> int:
        return -(-columns // self._quantum) * self._quantum

    def _rebuild(
        self, wanted: Sequence[AdapterBlocks], modules: frozenset[str], columns: int
    ) -> None:
        self._slack_steps = 0
        self._modules = modules
        self._places.clear()
        self._used, self._columns = 0, columns
        # Zeros, not garbage: a column nobody owns is multiplied by zero, and 0 x NaN is NaN.
        self._a = {
            g: torch.zeros(
                self._layers, len(ms), columns, self._shapes[ms[0]][1], dtype=self._dtype
            )
            for g in GROUPS
            if (ms := self.modules(g))
        }
        self._bt = {
            m: torch.zeros(self._layers, columns, self._shapes[m][0], dtype=self._dtype)
            for m in modules
        }
        for a in wanted:
            self._place(a)

    def _widen(self, columns: int) -> None:
        old, self._columns = self._columns, columns
        for store, axis in ((self._a, 2), (self._bt, 1)):
            for name, tensor in store.items():
                shape = list(tensor.shape)
                shape[axis] = columns
                wide = tensor.new_zeros(shape)
                wide.narrow(axis, 0, old).copy_(tensor)
                store[name] = wide

    def _place(self, adapter: AdapterBlocks) -> None:
        first = self._used
        self._used += adapter.rank
        for group in GROUPS:
            for index, module in enumerate(self.modules(group)):
                for layer in range(self._layers):
                    block = adapter.blocks.get((layer, module))
                    _fill(
                        self._a[group][layer, index], first, adapter.rank, block.a if block else ()
                    )
                    _fill(self._bt[module][layer], first, adapter.rank, block.bt if block else ())
        self._places[adapter.key] = _Place(adapter.generation, first, adapter.rank)

    def modules(self, group: str) -> tuple[str, ...]:
        """The group's modules that any adapter held has."""
        return tuple(m for m in GROUPS[group] if m in self._modules)

    def _masks(
        self, together: Sequence[Rows], fitting: frozenset[str], stop: int
    ) -> dict[int, torch.Tensor]:
        """number of modules -> [stop, modules x columns], True where a column is not the row's."""
        if not stop:
            return {}
        bounds = []
        for r in together:
            place = self._places[r.adapter] if r.adapter in fitting and r.adapter else None
            ends = (place.first, place.first + place.width) if place else (0, 0)
            bounds += [ends] * (r.stop - r.start)
        table = torch.tensor(bounds)
        columns = torch.arange(self._columns)
        mask = (columns < table[:, :1]) | (columns >= table[:, 1:])
        counts = {len(self.modules(g)) for g in GROUPS} - {0}
        return {n: mask.repeat(1, n) if n > 1 else mask for n in counts}

    def together(
        self,
        layer: int,
        group: str,
        x: torch.Tensor,
        y: torch.Tensor,
        masks: dict[int, torch.Tensor],
    ) -> None:
        """The stacked products of the leading rows x [n, in], y [n, Σ out]."""
        modules = self.modules(group)
        if not modules:
            return
        stacked = self._a[group][layer].view(-1, x.shape[1])
        # A fill, not a product with 0/1: another adapter's column may have overflowed.
        t = F.linear(x, stacked).masked_fill_(masks[len(modules)], 0.0)
        for index, module in enumerate(modules):
            own = t.narrow(1, index * self._columns, self._columns)
            self.columns(y, group, module).addmm_(own, self._bt[module][layer])

    def columns(self, y: torch.Tensor, group: str, module: str) -> torch.Tensor:
        """The columns of `y` that hold a module's output."""
        first = 0
        for m in GROUPS[group]:
            if m == module:
                break
            first += self._shapes[m][0]
        return y.narrow(1, first, self._shapes[module][0])


class _Step:
    """LoRA of one step: the leading rows together, some segments by themselves."""

    def __init__(
        self,
        owner: GroupedLora,
        stop: int,
        masks: dict[int, torch.Tensor],
        alone: tuple[tuple[AdapterBlocks, Rows], ...],
    ) -> None:
        self._owner = owner
        self._stop = stop
        self._masks = masks
        self._alone = alone

    def apply(self, layer: int, group: str, x: torch.Tensor, y: torch.Tensor) -> None:
        if self._stop:
            self._owner.together(layer, group, x[: self._stop], y[: self._stop], self._masks)
        for adapter, rows in self._alone:
            for module in GROUPS[group]:
                block = adapter.blocks.get((layer, module))
                if block is None:
                    continue
                t = _stacked_product(x[rows.start : rows.stop], block.a)
                target = self._owner.columns(y[rows.start : rows.stop], group, module)
                first = 0
                for piece in block.bt:
                    target.addmm_(t.narrow(1, first, piece.shape[0]), piece)
                    first += piece.shape[0]


def _stacked_product(x: torch.Tensor, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    """x @ [pieces stacked]ᵀ: [n, Σ rows]."""
    products = [F.linear(x, p) for p in pieces]
    return products[0] if len(products) == 1 else torch.cat(products, 1)


def _fill(target: torch.Tensor, first: int, width: int, pieces: Sequence[torch.Tensor]) -> None:
    """Rows first .. first+width of `target` = the pieces stacked, then zeros."""
    row = first
    for piece in pieces:
        target[row : row + piece.shape[0]].copy_(piece)
        row += piece.shape[0]
    if row < first + width:
        target[row : first + width].zero_()
