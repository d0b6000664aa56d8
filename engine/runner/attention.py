"""Attention of one step over pages of the arena: writes the step's KV, then attends."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engine.model.config import ModelConfig
from engine.runner.arena import Arena
from engine.runner.batch import StepBatch


class PagedAttention:
    """Attention for one step's batch; satisfies the decoder's `Attend`."""

    def __init__(self, config: ModelConfig, arena: Arena, batch: StepBatch) -> None:
        self._arena = arena
        self._batch = batch
        self._kv_heads = config.kv_heads
        self._group = config.heads // config.kv_heads
        self._dim = config.head_dim

    def attend(self, layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """q [T, heads x head_dim] and kv [T, 2 x kv_heads x head_dim], both after RoPE and in the
        arena's dtype. Returns [T, heads x head_dim]."""
        batch, arena = self._batch, self._arena
        arena.write(batch.kv_rows[layer], kv)
        out = torch.empty_like(q)
        heads, group, dim = self._kv_heads, self._group, self._dim
        for g in batch.decode:
            rows = g.stop - g.start
            # The query heads that share a KV head stand as its queries: no repeat of K and V.
            query = q[g.start : g.stop].view(rows, heads, group, dim)
            found = arena.gather(layer, g.pages).view(rows, -1, 2, heads, dim)
            k, v = found.permute(2, 0, 3, 1, 4)
            answer = F.scaled_dot_product_attention(query, k, v, attn_mask=g.bias)
            out[g.start : g.stop].view(rows, heads, group, dim).copy_(answer)
        for p in batch.prefill:
            query = q[p.start : p.stop].view(-1, heads, group, dim).permute(1, 2, 0, 3)
            found = arena.gather(layer, p.pages)[: p.context].view(-1, 2, heads, 1, dim)
            k, v = found.permute(1, 2, 3, 0, 4).expand(2, heads, group, p.context, dim)
            answer = F.scaled_dot_product_attention(query, k, v, attn_mask=p.bias)
            out[p.start : p.stop].view(-1, heads, group, dim).copy_(answer.permute(2, 0, 1, 3))
        return out
