"""What stands between a step's linears, in plain torch, over pages of the arena: norms, RoPE,
attention, the gate. Works everywhere; chooses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engine.model.config import ModelConfig
from engine.runner.arena import Arena
from kernels.backend import HeadNorms, PagedRows, StepOps

# A new decode group starts when padding contexts to one length would gather this many tokens in
# vain: about what the calls of one more group cost.
GROUP_WASTE_TOKENS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _DecodeGroup:
    """Rows start .. stop, one query each, padded to one number of pages.

    pages: int64 [rows x pages a row]; bias: [rows, 1, 1, pages a row x page_tokens], 0 on the
    row's keys and -inf beyond them.
    """

    start: int
    stop: int
    pages: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Prefill:
    """Rows start .. stop of one sequence over `context` keys.

    pages: int64 [pages]; bias: [queries, context], causal with the chunk's offset.
    """

    start: int
    stop: int
    context: int
    pages: torch.Tensor
    bias: torch.Tensor


class TorchOps:
    """The plain-torch backend (`OpsBackend`)."""

    def __init__(
        self, config: ModelConfig, arena: Arena, rope: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        """rope: cos and signed sin of every position (`engine.model.rope`)."""
        self.config = config
        self.arena = arena
        self.rope = rope

    def prepare(self, rows: PagedRows) -> StepOps:
        return _TorchStep(self, rows)


class _TorchStep:
    """`StepOps` of one step."""

    def __init__(self, owner: TorchOps, rows: PagedRows) -> None:
        config, arena = owner.config, owner.arena
        self._config = config
        self._arena = arena
        positions: list[int] = []
        pages: list[int] = []
        fresh: list[int] = []
        sequences = _sequences(rows)
        size = arena.page_tokens
        for s in sequences:
            run = range(s.start, s.context)
            positions += run
            pages += [s.pages[p // size] for p in run]
            final = (s.context - 1) // size
            # Slots past a sequence's end are read (and masked) with their page. Zeroing the page
            # as its first slot is written keeps garbage, NaN above all, out of masked products.
            if final * size >= s.start:
                fresh.append(s.pages[final])
        if fresh:
            arena.clear(torch.tensor(fresh))
        where = torch.tensor(positions)
        self._kv_rows = arena.slot_rows(torch.tensor(pages), where % size)
        self._cos, self._sin = (table[where][:, None, :] for table in owner.rope)
        single = [s for s in sequences if s.context - s.start == 1]
        self._decode = _decode_groups(single, arena)
        self._prefill = [_prefill(s, arena) for s in sequences[len(single) :]]

    def normed(
        self, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        if added is not None:
            x += added
        c = self._config
        return F.rms_norm(x, (c.hidden,), weight, c.norm_eps).to(self._arena.dtype)

    def gated(self, gate_up: torch.Tensor) -> torch.Tensor:
        ff = self._config.ff
        return F.silu(gate_up[:, :ff]).mul_(gate_up[:, ff:])

    def attend(self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None) -> torch.Tensor:
        c, arena = self._config, self._arena
        heads, group, dim = c.kv_heads, c.heads // c.kv_heads, c.head_dim
        turned = qkv[:, : c.q_width + c.kv_width].view(len(qkv), -1, dim)
        if norms is not None:
            for part, weight in (
                (turned[:, : c.heads], norms.q),
                (turned[:, c.heads :], norms.k),
            ):
                part.copy_(F.rms_norm(part.float(), (dim,), weight.float(), c.norm_eps))
        rotate(turned, self._cos, self._sin)
        q = qkv[:, : c.q_width]
        arena.write(self._kv_rows[layer], qkv[:, c.q_width :])
        out = torch.empty_like(q)
        for g in self._decode:
            rows = g.stop - g.start
            # The query heads that share a KV head stand as its queries: no repeat of K and V.
            query = q[g.start : g.stop].view(rows, heads, group, dim)
            found = arena.gather(layer, g.pages).view(rows, -1, 2, heads, dim)
            k, v = found.permute(2, 0, 3, 1, 4)
            answer = F.scaled_dot_product_attention(query, k, v, attn_mask=g.bias)
            out[g.start : g.stop].view(rows, heads, group, dim).copy_(answer)
        for p in self._prefill:
            query = q[p.start : p.stop].view(-1, heads, group, dim).permute(1, 2, 0, 3)
            found = arena.gather(layer, p.pages)[: p.context].view(-1, 2, heads, 1, dim)
            k, v = found.permute(1, 2, 3, 0, 4).expand(2, heads, group, p.context, dim)
            answer = F.scaled_dot_product_attention(query, k, v, attn_mask=p.bias)
            out[p.start : p.stop].view(-1, heads, group, dim).copy_(answer.permute(2, 0, 1, 3))
        return out


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """RoPE in place. heads [T, heads, head_dim]; cos, sin float32 [T, 1, head_dim]."""
    swapped = heads.roll(heads.shape[-1] // 2, -1)
    heads.copy_((heads * cos).addcmul_(swapped, sin))


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence of a step: rows from `first_row` on, at positions start .. context."""

    first_row: int
    start: int
    context: int
    pages: Sequence[int]


def _sequences(rows: PagedRows) -> list[_Sequence]:
    return [
        _Sequence(
            first := rows.first_row[i],
            start,
            start + rows.first_row[i + 1] - first,
            rows.pages[rows.first_page[i] : rows.first_page[i + 1]],
        )
        for i, start in enumerate(rows.start)
    ]


def _prefill(s: _Sequence, arena: Arena) -> _Prefill:
    ahead = torch.arange(s.context)[None, :] > torch.arange(s.start, s.context)[:, None]
    bias = torch.zeros(ahead.shape, dtype=arena.dtype).masked_fill_(ahead, float("-inf"))
    stop = s.first_row + s.context - s.start
    return _Prefill(s.first_row, stop, s.context, torch.tensor(s.pages), bias)


def _decode_groups(single: Sequence[_Sequence], arena: Arena) -> list[_DecodeGroup]:
    """Cut rows of falling context into groups of little padding."""
    size = arena.page_tokens
    groups: list[_DecodeGroup] = []
    first = 0
    while first < len(single):
        widest = len(single[first].pages)
        waste, stop = 0, first
        while stop < len(single):
            waste += (widest - len(single[stop].pages)) * size
            if waste > GROUP_WASTE_TOKENS:
                break
            stop += 1
        rows = single[first:stop]
        pages: list[int] = []
        for s in rows:
            # Padding repeats the row's own first page: never another sequence's bytes.
            pages += [*s.pages, *([s.pages[0]] * (widest - len(s.pages)))]
        length = torch.tensor([s.context for s in rows])
        beyond = torch.arange(widest * size)[None, :] >= length[:, None]
        bias = torch.zeros(beyond.shape, dtype=arena.dtype).masked_fill_(beyond, float("-inf"))
        groups.append(_DecodeGroup(first, stop, torch.tensor(pages), bias[:, None, None, :]))
        first = stop
    return groups
