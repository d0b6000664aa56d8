"""Steps of paged attention on an arena of NaN, and what they mean, in float64."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass

import torch

from kernels.backend import HeadNorms, PagedRows
from kernels.cpu import Absent, Isa, Native, native
from kernels.cpu_ops import NativeOps, OpsShape

FOUND = native()
# How far a value of size 1 may be off: float32 sums, or half a unit in the last place of the dtype.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
LAYERS, LAYER, POSITIONS, EPS = 3, 1, 2048, 1e-5


def of_isa(isa: Isa) -> Native:
    assert not isinstance(FOUND, Absent)
    return Native(FOUND.functions, isa)


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    dim: int
    page_tokens: int = 16

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.dim


@dataclass
class Sequence:
    """Positions start .. start + count are the step's; those before are in the arena."""

    start: int
    count: int
    pages: list[int]
    k: torch.Tensor  # [start, kv_heads, dim]
    v: torch.Tensor
    qkv: torch.Tensor  # [count, heads + 2 kv_heads, dim], before RoPE


class Arena:
    """NaN wherever no sequence has written."""

    def __init__(self, shape: Shape, dtype: torch.dtype, pages: int, isa: Isa, seed: int = 0):
        self.shape, self.dtype = shape, dtype
        elements = LAYERS * shape.page_tokens * 2 * shape.kv_width
        self.elements = torch.full((pages, elements), float("nan"), dtype=dtype)
        self.kv = self.elements.view(pages, LAYERS, shape.page_tokens, 2, shape.kv_heads, shape.dim)
        self.made = torch.Generator().manual_seed(seed)
        self.free = list(range(pages))
        random.Random(seed).shuffle(self.free)
        angle = torch.rand(POSITIONS, shape.dim // 2, generator=self.made) * 6.3
        cos, sin = angle.cos(), angle.sin()
        self.rope = (torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1))
        self.ops = NativeOps(
            of_isa(isa),
            OpsShape(16, shape.heads, shape.kv_heads, shape.dim, 16, EPS),
            self.elements,
            shape.page_tokens,
            self.rope,
        )

    def random(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, generator=self.made).to(self.dtype)

    def sequence(self, start: int, count: int) -> Sequence:
        """A sequence whose first `start` keys and values are written."""
        c = self.shape
        pages = [self.free.pop() for _ in range(-(-(start + count) // c.page_tokens))]
        k, v = self.random(start, c.kv_heads, c.dim), self.random(start, c.kv_heads, c.dim)
        for p in range(start):
            slot = self.kv[pages[p // c.page_tokens], LAYER, p % c.page_tokens]
            slot[0], slot[1] = k[p], v[p]
        qkv = self.random(count, c.heads + 2 * c.kv_heads, c.dim)
        return Sequence(start, count, pages, k, v, qkv)

    def attend(
        self, sequences: list[Sequence], norms: HeadNorms | None = None
    ) -> list[torch.Tensor]:
        """Each sequence's answer [count, heads x dim]; sequences of one row first."""
        first_row, first_page, pages = array("q", (0,)), array("q", (0,)), array("q")
        for s in sequences:
            first_row.append(first_row[-1] + s.count)
            pages.extend(s.pages)
            first_page.append(len(pages))
        starts = array("q", [s.start for s in sequences])
        step = self.ops.prepare(PagedRows(first_row, starts, first_page, pages))
        qkv = torch.cat([s.qkv for s in sequences]).flatten(1)
        return list(step.attend(LAYER, qkv, norms).clone().split([s.count for s in sequences]))

    def expected(self, s: Sequence, norms: HeadNorms | None = None) -> torch.Tensor:
        """In float64, but for q and k, which are rounded to the dtype after RoPE."""
        c = self.shape
        turned = s.qkv[:, : c.heads + c.kv_heads].double()
        if norms is not None:
            q = norms.q.double().expand(c.heads, -1)
            weight = torch.cat((q, norms.k.double().expand(c.kv_heads, -1)))
            turned = turned * (turned.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight
        at = torch.arange(s.start, s.start + s.count)
        cos, sin = (table[at].double()[:, None] for table in self.rope)
        turned = (turned * cos + turned.roll(c.dim // 2, -1) * sin).to(self.dtype).double()
        group = c.heads // c.kv_heads
        k = torch.cat((s.k.double(), turned[:, c.heads :])).repeat_interleave(group, 1)
        v = torch.cat((s.v.double(), s.qkv[:, c.heads + c.kv_heads :].double()))
        scores = torch.einsum("qhd,khd->hqk", turned[:, : c.heads], k) * c.dim**-0.5
        ahead = torch.arange(s.start + s.count) > at[:, None]
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v.repeat_interleave(group, 1)).flatten(1)

    def check(self, sequences: list[Sequence], norms: HeadNorms | None = None) -> None:
        for s, found in zip(sequences, self.attend(sequences, norms), strict=True):
            torch.testing.assert_close(
                found.double(), self.expected(s, norms), atol=TOLERANCE[self.dtype],
                rtol=TOLERANCE[self.dtype],
            )  # fmt: skip
