"""A step's ops with Triton, on a GPU or, under its interpreter, on the CPU. Chooses nothing.

All memory of a step but its linears' answers is made once: lists, partial sums, activations.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from kernels import attention, fused
from kernels.attention import (
    ITEM_COLUMNS,
    SPAN_COLUMNS,
    Heads,
    PagedLists,
    PagedWork,
    build_paged,
    list_paged,
)
from kernels.backend import HeadNorms, PagedRows, StepOps
from kernels.cpu_ops import OpsShape
from kernels.errors import KernelError
from kernels.gpu_room import FixedRoom, StepRoom, values_of
from kernels.jit import DTYPES
from kernels.tuned import OpsTiles, tiles_for


class TritonOps:
    """The Triton backend (`OpsBackend`)."""

    def __init__(
        self,
        shape: OpsShape,
        arena: torch.Tensor,
        page_tokens: int,
        rope: tuple[torch.Tensor, torch.Tensor],
        tiles: OpsTiles | None = None,
        max_rows: int = 0,
    ) -> None:
        """arena: [pages, elements of a page] in the model's dtype, a page laid out
        [layers, page_tokens, 2 (K, V), kv_heads x head_dim]; rope: cos and sin of every position,
        float32 [positions, head_dim], the sign of the rotation folded into sin. `max_rows`: of a
        step; all memory that steps of so many rows need is made at once (but where contexts that
        share pages have more of them together than the arena), else as steps come that need it.

        Raises KernelError for a dtype or heads that the kernels cannot take.
        """
        if arena.dtype not in DTYPES:
            raise KernelError(f"the Triton ops compute {', '.join(map(str, DTYPES))}")
        self.shape = shape
        self.heads = Heads(shape.heads, shape.kv_heads, shape.head_dim)
        self.arena = arena
        self.page_tokens = page_tokens
        cos, sin = (table.to(arena.device, torch.float32).contiguous() for table in rope)
        self.rope = (cos, sin)
        self.tiles = tiles_for(arena.device, arena.dtype) if tiles is None else tiles
        lists, items = self._most(max_rows)
        self._room = StepRoom(arena.device, lists)
        sums = items * self.heads.q * (self.heads.dim + 2)
        self._partials = torch.empty(sums, device=arena.device)
        self._activations = self._made(max_rows)

    def prepare(self, rows: PagedRows) -> StepOps:
        """Raises KernelError for pages beyond the arena, or that do not cover a sequence."""
        work = build_paged(rows, self.page_tokens, self.heads, self.tiles, self._room)
        values = math.prod(work.partials_shape(self.heads))
        return _TritonStep(self, work, self.partials(values), self.activations(work.row_count))

    def lists(self, rows: PagedRows) -> PagedLists:
        """A step's lists, in host memory. Raises KernelError as `prepare`."""
        return list_paged(rows, self.page_tokens, self.heads, self.tiles)

    def fixed(self, rows: int, items: int, spare_page: int) -> FixedOps:
        """Lists that never move, for steps of up to `rows` decode rows whose contexts make up to
        `items` items. What the rows beyond a step's write goes to `spare_page`."""
        return FixedOps(self, rows, items, spare_page)

    def partials(self, values: int) -> torch.Tensor:
        """At least so many float32 values, kept over steps."""
        if len(self._partials) < values:
            self._partials = torch.empty(values + values // 2, device=self.arena.device)
        return self._partials

    def activations(self, rows: int) -> tuple[torch.Tensor, ...]:
        """Room for normed [rows, hidden], attended [rows, q width] and gated [rows, ff]: always
        the same but where a step has more rows than any before."""
        if len(self._activations[0]) < rows:
            self._activations = self._made(rows)
        return tuple(room[:rows] for room in self._activations)

    def _most(self, rows: int) -> tuple[int, int]:
        """int32 values of the lists of any step of so many rows, and decode items of it."""
        if not rows:
            return 0, 0
        pages = len(self.arena) + rows  # a sequence's last page may hold one token
        items = rows + pages * self.page_tokens // self.tiles.decode.split
        shapes = [(items, ITEM_COLUMNS), (rows, ITEM_COLUMNS), (rows, SPAN_COLUMNS), (pages,)]
        return values_of([*shapes, (rows, 2)]), items

    def _made(self, rows: int) -> tuple[torch.Tensor, ...]:
        s = self.shape
        widths = (s.hidden, self.heads.q_width, s.ff)
        return tuple(self.arena.new_empty(rows, w) for w in widths)


class _TritonStep:
    """`StepOps` of one step, or of all that a captured graph will replay."""

    def __init__(
        self,
        owner: TritonOps,
        work: PagedWork,
        partials: torch.Tensor,
        activations: tuple[torch.Tensor, ...],
    ) -> None:
        self._owner = owner
        self._work = work
        self._partials = partials
        self._h, self._attended, self._gated = activations

    def normed(
        self, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        fused.normed(x, added, weight, self._owner.shape.norm_eps, self._h)
        return self._h

    def attend(self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None) -> torch.Tensor:
        o = self._owner
        fused.rotate_and_store(
            qkv,
            o.arena,
            layer,
            o.page_tokens,
            o.heads,
            self._work,
            o.rope,
            norms,
            o.shape.norm_eps,
            o.tiles.heads,
        )
        attention.attend(
            qkv,
            o.arena,
            layer,
            o.page_tokens,
            o.heads,
            self._work,
            self._partials,
            self._attended,
        )
        return self._attended

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        fused.gated(gate_up, self._gated, self._owner.tiles.block)
        return self._gated


class FixedOps:
    """Lists of decode rows at fixed places, filled anew for each step (`TritonOps.fixed`).

    `step` is launched over all of their room whatever a step fills: the rest are items of no
    queries, and rows that store into the spare page.
    """

    def __init__(self, owner: TritonOps, rows: int, items: int, spare_page: int) -> None:
        self._owner = owner
        tile = owner.tiles.decode
        # More items than rows, so that a row's sums are parts to be added, however few it has.
        self.rows, self.items = rows, max(items, rows + 1)
        # An item has at most `split` keys, so no list of pages is longer.
        pages = self.items * -(-tile.split // owner.page_tokens)
        nothing = PagedLists(
            decode=np.zeros((self.items, ITEM_COLUMNS)),
            prefill=np.zeros((0, ITEM_COLUMNS)),
            spans=np.zeros((rows, SPAN_COLUMNS)),
            pages=np.zeros(pages),
            rows=np.array([[0, spare_page]] * rows),
            most_pages=spare_page + 1,
            most_positions=len(owner.rope[0]),
            decode_tile=attention.tall_enough(tile, owner.heads.group),
            prefill_tile=owner.tiles.prefill,
        )
        self._room = FixedRoom(nothing.parts, owner.arena.device)
        work = nothing.on_device(self._room.views, rows)
        # Held here: a graph knows them by their address, and the owner may come to need more.
        partials = owner.partials(self.items * owner.heads.q * (owner.heads.dim + 2))
        self.step: StepOps = _TritonStep(owner, work, partials, owner.activations(rows))

    def try_fill(self, lists: PagedLists) -> bool:
        """They are this step's from now on (`TritonOps.lists`); False: its contexts are too long
        for them. Raises KernelError for pages beyond the arena."""
        if len(lists.decode) > self.items or len(lists.pages) > len(self._room.views[3]):
            return False
        if lists.most_pages > len(self._owner.arena):
            raise KernelError(
                f"page {lists.most_pages - 1} of an arena of {len(self._owner.arena)}"
            )
        self._room.fill(lists.parts)
        return True
