"""The seam between a decoder and kernels: what a step tells a backend, and what it may ask.

Knows no queues or tenants, and who owns a page. `*_proj` names are Llama's; a *group* is the
linears that share an input and whose outputs lie side by side in one tensor.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

GROUPS: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One layer x module of an adapter, as views of device memory.

    `a` pieces stack to [rank, in], `bt` pieces to [rank, out] with the scale merged; a block that
    spans pages has several pieces, split at any row.
    """

    rank: int
    a: tuple[torch.Tensor, ...]
    bt: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AdapterBlocks:
    """A resident adapter. `generation` differs each time a key is copied in, so that nothing kept
    from an earlier copy can be mistaken for this one. `rank` is the largest of its blocks."""

    key: str
    generation: int
    rank: int
    blocks: Mapping[tuple[int, str], Block]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows start .. stop of a step that carry one adapter; None = base rows, left untouched."""

    adapter: str | None
    start: int
    stop: int


class StepLora(Protocol):
    """LoRA for one step."""

    def apply(self, layer: int, group: str, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add x·Aᵀ·Bᵀᵀ of each row's adapter to `y`, in place.

        Semantics: y[i] += x[i] @ A_{a(i)}ᵀ @ Bt_{a(i)} for every module of `group`, each on its
        own columns of y; rows without an adapter are left as they are.
        Shapes: x [T, in], y [T, Σ out of the group's modules].
        """
        ...


class LoraBackend(Protocol):
    """Prepares steps. Called from one thread; `forget` may be called between steps."""

    def prepare(
        self, rows: Sequence[Rows], adapters: Mapping[str, AdapterBlocks]
    ) -> StepLora | None:
        """`rows` tile a step's first rows in order; None when no row carries an adapter."""
        ...

    def adopt(self, adapter: AdapterBlocks) -> None:
        """Make ready for an adapter just copied in, so that no step pays for it. May be called
        beside a step, from another thread; to do nothing is allowed."""
        ...

    def forget(self, key: str) -> None:
        """Drop whatever was kept of an adapter."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PagedRows:
    """Whose rows a step's rows are, and in which pages of the arena their keys and values lie.

    Sequence i has rows first_row[i] .. first_row[i + 1], at positions from start[i] on; position p
    lives in page pages[first_page[i] + p // page_tokens] at p % page_tokens. Sequences of one row
    come first, by falling context. All arrays hold int64 ("q"); `first_*` have one entry more
    than there are sequences.
    """

    first_row: array[int]
    start: array[int]
    first_page: array[int]
    pages: array[int]


@dataclass(frozen=True, slots=True, eq=False)
class HeadNorms:
    """Weights of the RMSNorm over each head of q and k, before RoPE: [head_dim] each."""

    q: torch.Tensor
    k: torch.Tensor


class StepOps(Protocol):
    """What stands between a step's linears. An answer may be scratch: it holds until the next
    call of the same op. Activations are in the model's dtype, the residual stream is float32."""

    def normed(
        self, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        """x += added, in place; then RMSNorm of x with `weight`, rounded once.

        Shapes: x float32 [T, hidden], added [T, hidden], weight [hidden] -> [T, hidden].
        """
        ...

    def attend(self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None) -> torch.Tensor:
        """Norm heads (if asked), rotate q and k, store k and v in the step's pages, attend.

        Semantics: softmax(q·Kᵀ/√head_dim)·V of each row over its sequence's keys up to its own
        position; `qkv` [T, q width + 2 x kv width] is overwritten. Returns [T, q width].
        """
        ...

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        """SiLU(gate) · up. gate_up [T, 2 x ff] -> [T, ff]."""
        ...


class OpsBackend(Protocol):
    """Prepares steps. Called from one thread; a step's ops are used before the next's are made."""

    def prepare(self, rows: PagedRows) -> StepOps: ...
