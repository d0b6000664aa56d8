"""What a step's ops mean, in slow plain torch: the oracle of the fused and the paged kernels.

Everything is computed in float64, sequence by sequence and head by head. Knows no tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kernels.attention import Heads
from kernels.backend import HeadNorms, PagedRows


def normed(
    x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(s, n): s = x + added, n = s / √(mean(s²) + eps) · weight; float64 [rows, width]."""
    total = x.double() if added is None else x.double() + added.double()
    return total, _normed(total, weight, eps)


def gated(gate_up: torch.Tensor) -> torch.Tensor:
    """gate / (1 + e^-gate) · up. gate_up [rows, 2 x ff] -> float64 [rows, ff]."""
    gate, up = gate_up.double().chunk(2, -1)
    return gate / (1 + (-gate).exp()) * up


def rotate(
    qkv: torch.Tensor,
    rows: PagedRows,
    heads: Heads,
    rope: tuple[torch.Tensor, torch.Tensor],
    norms: HeadNorms | None,
    eps: float,
) -> torch.Tensor:
    """Heads of q and k normed and rotated: u · cos[p] + (halves of u swapped) · sin[p].

    qkv [rows, (q + 2 kv) x dim] -> float64, the same shape; v as it was.
    """
    out = qkv.double().clone()
    units = out.view(len(qkv), -1, heads.dim)
    if norms is not None:
        units[:, : heads.q] = _normed(units[:, : heads.q], norms.q, eps)
        units[:, heads.q : heads.q + heads.kv] = _normed(
            units[:, heads.q : heads.q + heads.kv], norms.k, eps
        )
    at = torch.tensor([p for _, p, _ in _rows(rows)], device=qkv.device)
    cos, sin = (table[at].double()[:, None] for table in rope)
    turned = units[:, : heads.q + heads.kv]
    turned.copy_(turned * cos + turned.roll(heads.dim // 2, -1) * sin)
    return out


def store(
    turned: torch.Tensor,
    arena: torch.Tensor,
    layer: int,
    page_tokens: int,
    rows: PagedRows,
    heads: Heads,
) -> None:
    """Write k and v of `turned` [rows, (q + 2 kv) x dim] to each row's slot of its page.

    arena [pages, elements of a page], laid out [layers, page_tokens, 2 (K, V), kv heads x dim].
    """
    width = heads.kv * heads.dim
    for row, position, pages in _rows(rows):
        page = arena[pages[position // page_tokens]].view(-1, page_tokens, 2 * width)
        page[layer, position % page_tokens] = turned[row, heads.q_width :].to(arena.dtype)


def attend(
    turned: torch.Tensor,
    arena: torch.Tensor,
    layer: int,
    page_tokens: int,
    rows: PagedRows,
    heads: Heads,
) -> torch.Tensor:
    """softmax(q · Kᵀ / √dim) · V of each row over its sequence's keys up to its own position.

    turned [rows, q width and more]; arena as `store` -> float64 [rows, q width].
    """
    out = torch.empty(len(turned), heads.q_width, dtype=torch.float64, device=arena.device)
    for row, position, pages in _rows(rows):
        used = arena[torch.tensor(pages[: position // page_tokens + 1], device=arena.device)]
        held = used.view(len(used), -1, page_tokens, 2, heads.kv, heads.dim)[:, layer]
        keys = held.reshape(-1, 2, heads.kv, heads.dim)[: position + 1].double()
        keys = keys.repeat_interleave(heads.group, 2)
        q = turned[row, : heads.q_width].double().view(heads.q, heads.dim)
        weights = (torch.einsum("hd,nhd->hn", q, keys[:, 0]) * heads.dim**-0.5).softmax(-1)
        out[row] = torch.einsum("hn,nhd->hd", weights, keys[:, 1]).flatten()
    return out


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def _rows(rows: PagedRows) -> Iterator[tuple[int, int, list[int]]]:
    """(row, position, its sequence's pages) of every row of a step."""
    for i, start in enumerate(rows.start):
        pages = list(rows.pages[rows.first_page[i] : rows.first_page[i + 1]])
        for k, row in enumerate(range(rows.first_row[i], rows.first_row[i + 1])):
            yield row, start + k, pages
