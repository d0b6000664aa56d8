"""What the Triton kernels do with a step's lists, in plain torch and fast: whoever tests lists,
buffers or replays puts these in their place (`instead_of_triton`). Reads nothing but what a launch
is given: a list that is wrong, or not where it was, gives another answer."""

from __future__ import annotations

import torch

from kernels import attention, fused, sgmv
from kernels.attention import Heads, PagedWork
from kernels.backend import HeadNorms
from kernels.blocks import Table
from kernels.work import Work


def instead_of_triton(monkeypatch) -> None:
    for module, names in (
        (sgmv, ("shrink", "expand")),
        (attention, ("attend",)),
        (fused, ("normed", "gated", "rotate_and_store")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, globals()[name])


def shrink(x: torch.Tensor, arena: torch.Tensor, table: Table, work: Work, out: torch.Tensor):
    splits, tile = out.shape[0], work.tile
    for first, count, slot, piece, column in work.shrink.tolist():
        if not count:
            continue
        rank, first_a, _ = table.index[slot, piece].tolist()
        low, high = column * tile.r, min(rank, (column + 1) * tile.r)
        if low >= high:
            continue
        rows = work.order[first : first + count].long()
        a = rows_of(arena, table.rows[first_a + low : first_a + high], 0, table.in_width)
        for split in range(splits):
            k = slice(split * tile.split_k, (split + 1) * tile.split_k)
            out[split, piece, rows, low:high] = x[rows][:, k].float() @ a[:, k].T


def rows_of(arena: torch.Tensor, offsets: torch.Tensor, low: int, high: int) -> torch.Tensor:
    return torch.stack([arena[at + low : at + high] for at in offsets.tolist()]).float()


def expand(t: torch.Tensor, arena: torch.Tensor, table: Table, work: Work, y: torch.Tensor):
    starts = [sum(table.out_widths[:i]) for i in range(table.slices)]
    for first, count, slot, piece, column in work.expand.tolist():
        rank, _, b_row = table.index[slot, piece].tolist()
        if not count or not rank:
            continue
        low = column * work.tile.n
        high = min(table.out_widths[piece], low + work.tile.n)
        rows = work.order[first : first + count].long()
        b = rows_of(arena, table.rows[b_row : b_row + rank], low, high)
        added = t[:, piece, rows, :rank].sum(0) @ b
        y[rows, starts[piece] + low : starts[piece] + high] += added.to(y.dtype)


def normed(x, added, weight, eps: float, out: torch.Tensor):
    if added is not None:
        x += added
    out.copy_(torch.nn.functional.rms_norm(x, (x.shape[1],), weight, eps))


def gated(gate_up: torch.Tensor, out: torch.Tensor, block: int):
    gate, up = gate_up.float().chunk(2, -1)
    out.copy_(torch.nn.functional.silu(gate) * up)


def rotate_and_store(
    qkv: torch.Tensor,
    arena: torch.Tensor,
    layer: int,
    page_tokens: int,
    heads: Heads,
    work: PagedWork,
    rope: tuple[torch.Tensor, torch.Tensor],
    norms: HeadNorms | None,
    eps: float,
    heads_a_program: int,
):
    assert norms is None
    position, page = work.rows.long().unbind(1)
    cos, sin = (table[position][:, None] for table in rope)
    turned = qkv[:, : heads.q_width + heads.kv * heads.dim].view(len(qkv), -1, heads.dim)
    turned.copy_(turned * cos + turned.roll(heads.dim // 2, -1) * sin)
    kept = arena.view(len(arena), -1, page_tokens, 2 * heads.kv * heads.dim)
    kept[page, layer, position % page_tokens] = qkv[:, heads.q_width :]


def attend(
    qkv: torch.Tensor,
    arena: torch.Tensor,
    layer: int,
    page_tokens: int,
    heads: Heads,
    work: PagedWork,
    partials: torch.Tensor,
    out: torch.Tensor,
):
    """Decode items leave their part in `partials` where a row has several, as the kernel does, and
    spans add them up."""
    kept = arena.view(len(arena), -1, page_tokens, 2, heads.kv, heads.dim)
    width = heads.dim + 1
    room = partials if work.splits else torch.empty(len(work.decode) * heads.q * width)
    parts = room[: len(work.decode) * heads.q * width].view(-1, heads.q, width)
    parts.fill_(float("nan"))

    def scores(row: int, position: int, table: int, low: int, high: int):
        n = torch.arange(low, min(high, position + 1))
        held = kept[work.pages[table + n // page_tokens].long(), layer, n % page_tokens]
        q = qkv[row, : heads.q_width].view(heads.q, heads.dim).float()
        k, v = held.float().repeat_interleave(heads.group, 2).unbind(1)
        weights = (torch.einsum("hd,nhd->hn", q, k) * heads.dim**-0.5).exp()
        return weights.sum(1), torch.einsum("hn,nhd->hd", weights, v)

    for i, (row, queries, position, table, low, high) in enumerate(work.decode.tolist()):
        if queries:
            total, summed = scores(row, position, table, low, high)
            parts[i, :, 0], parts[i, :, 1:] = total, summed
    for row, first, count in work.spans.tolist():
        if count:
            both = parts[first : first + count].sum(0)
            out[row] = (both[:, 1:] / both[:, :1]).flatten().to(out.dtype)
    for row, queries, position, table, low, high in work.prefill.tolist():
        for q in range(queries):
            total, summed = scores(row + q, position + q, table, low, high)
            out[row + q] = (summed / total[:, None]).flatten().to(out.dtype)
