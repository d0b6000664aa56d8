"""The seam between a decoder and LoRA kernels: what a step tells a backend, and what it may ask.

Knows no pages, queues or tenants. `*_proj` names are Llama's; a *group* is the linears that share
an input and whose outputs lie side by side in one tensor.
"""

from __future__ import annotations

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

    def forget(self, key: str) -> None:
        """Drop whatever was kept of an adapter."""
        ...
