"""A step's ops with Triton, on a GPU or, under its interpreter, on the CPU. Chooses nothing."""

from __future__ import annotations

import math

import torch

from kernels import attention, fused
from kernels.attention import Heads, StepRoom, build_paged
from kernels.backend import HeadNorms, PagedRows, StepOps
from kernels.cpu_ops import OpsShape
from kernels.errors import KernelError
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
    ) -> None:
        """arena: [pages, elements of a page] in the model's dtype, a page laid out
        [layers, page_tokens, 2 (K, V), kv_heads x head_dim]; rope: cos and sin of every position,
        float32 [positions, head_dim], the sign of the rotation folded into sin.

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
        self._room = StepRoom(arena.device)
        self._partials = torch.empty(0, device=arena.device)
        self._activations: tuple[torch.Tensor, ...] = ()

    def prepare(self, rows: PagedRows) -> StepOps:
        """Raises KernelError for pages beyond the arena, or that do not cover a sequence."""
        return _TritonStep(self, rows)

    def work(self, rows: PagedRows) -> attention.PagedWork:
        """The step's list, in the room of the step before."""
        return build_paged(rows, self.page_tokens, self.heads, self.tiles, self._room)

    def partials(self, values: int) -> torch.Tensor:
        """At least so many float32 values, kept over steps."""
        if len(self._partials) < values:
            self._partials = torch.empty(values + values // 2, device=self.arena.device)
        return self._partials

    def activations(self, rows: int) -> tuple[torch.Tensor, ...]:
        """Room for normed [rows, hidden], attended [rows, q width] and gated [rows, ff]; the same
        as the step before's where that had as many rows."""
        if not self._activations or len(self._activations[0]) != rows:
            s = self.shape
            widths = (s.hidden, self.heads.q_width, s.ff)
            self._activations = tuple(self.arena.new_empty(rows, w) for w in widths)
        return self._activations


class _TritonStep:
    """`StepOps` of one step."""

    def __init__(self, owner: TritonOps, rows: PagedRows) -> None:
        self._owner = owner
        self._work = owner.work(rows)
        self._partials = owner.partials(math.prod(self._work.partials_shape(owner.heads)))
        self._h, self._attended, self._gated = owner.activations(self._work.row_count)

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
