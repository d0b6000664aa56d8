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
            pages = arena.gather(layer, g.pages)
            # The query heads that share a KV head stand as its queries: no repeat of K and V.
            query = q[g.start : g.stop].view(rows, heads, group, dim)
            keys = pages.view(rows, -1, 2, arena.page_tokens, heads, dim)
            k, v = (keys[:, :, i].reshape(rows, -1, heads, dim).transpose(1, 2) for i in (0, 1))
            found = F.scaled_dot_product_attention(query, k, v, attn_mask=g.bias)
            out[g.start : g.stop].view(rows, heads, group, dim).copy_(found)
        for p in batch.prefill:
            pages = arena.gather(layer, p.pages)
            query = q[p.start : p.stop].view(-1, heads, group, dim).permute(1, 2, 0, 3)
            k, v = (
                pages[:, i].reshape(-1, heads, 1, dim)[: p.context].permute(1, 2, 0, 3)
                .expand(heads, group, p.context, dim)
                for i in (0, 1)
            )  # fmt: skip
            found = F.scaled_dot_product_attention(query, k, v, attn_mask=p.bias)
            out[p.start : p.stop].view(-1, heads, group, dim).copy_(found.permute(2, 0, 1, 3))
        return out
