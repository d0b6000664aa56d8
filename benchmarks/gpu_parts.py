"""The parts of `gpu.py`. Each prints its lines and says whether a number was wrong."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace

import gpu_sgmv
import torch
import torch.nn.functional as F
from gpu_rig import Rig
from gpu_sgmv import BASE, Segment, decode, make_step, mixed, worst_error
from gpu_step import Made

from kernels import attention, fused, ops_reference
from kernels.attention import Heads, build_paged
from kernels.backend import HeadNorms, PagedRows
from kernels.gpu_room import StepRoom
from kernels.tuned import AttentionTile, tiles_for

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
PAGE_TOKENS = 16


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


def us(value: float) -> float:
    return round(value, 1)


def numerics(rig: Rig) -> bool:
    """Every kernel against its reference in every dtype, on the device."""
    wrong = False
    ranks = [3, 16] if rig.toy else [1, 3, 8, 16, 33, 64, 128]
    for dtype in DTYPES:
        limit = gpu_sgmv.TOLERANCE[dtype]
        batches = {"decode": decode(4 if rig.toy else 16, len(ranks))}
        if not rig.toy:
            batches["prefill"] = [
                Segment(0, 70, 0), Segment(70, 9, BASE), Segment(79, 80, 5)
            ]  # fmt: skip
        for name, segments in batches.items():
            widths = [48, 16] if rig.toy else [160, 48]
            error = worst_error(make_step(segments, ranks, 64, widths, dtype, str(rig.device)))
            wrong |= not error <= limit
            say(part="numerics", op=f"sgmv {name}", dtype=str(dtype), error=error)
        for op, error in _step_errors(rig, dtype).items():
            wrong |= not error <= limit
            say(part="numerics", op=op, dtype=str(dtype), error=error)
    return wrong


def _step_errors(rig: Rig, dtype: torch.dtype) -> dict[str, float]:
    """Largest |found - reference| over 1 + |reference|, by op."""
    heads = Heads(4, 2, 32) if rig.toy else Heads(32, 8, 128)
    sequences = [(40, 1), (3, 1), (17, 5)] if rig.toy else [(900, 1), (31, 1), (300, 1), (50, 100)]
    rows = paged(sequences)
    work = _work(rig, dtype, rows, heads)
    arena = torch.randn(
        len(rows.pages), 2 * PAGE_TOKENS * 2 * heads.kv * heads.dim, device=rig.device
    ).to(dtype)
    qkv = torch.randn(rows.first_row[-1], heads.qkv_width, device=rig.device).to(dtype)
    angle = torch.rand(1024, heads.dim // 2, device=rig.device) * 6.3
    rope = (torch.cat((angle.cos(),) * 2, 1), torch.cat((-angle.sin(), angle.sin()), 1))
    norms = HeadNorms(*torch.rand(2, heads.dim, device=rig.device))
    turned = ops_reference.rotate(qkv, rows, heads, rope, norms, 1e-5)
    fused.rotate_and_store(
        qkv,
        arena,
        1,
        PAGE_TOKENS,
        heads,
        work,
        rope,
        norms,
        1e-5,
        tiles_for(rig.device, dtype).heads,
    )
    errors = {"rotate": _error(qkv[:, : heads.q_width], turned[:, : heads.q_width])}
    out, partials = _room(rig, dtype, qkv, heads, work)
    attention.attend(qkv, arena, 1, PAGE_TOKENS, heads, work, partials, out)
    errors["attend"] = _error(out, ops_reference.attend(qkv, arena, 1, PAGE_TOKENS, rows, heads))
    x, added = torch.randn(3, 200, device=rig.device), torch.randn(3, 200, device=rig.device)
    weight, h = torch.rand(200, device=rig.device), torch.empty(3, 200, device=rig.device)
    _, expected = ops_reference.normed(x, added.to(dtype), weight, 1e-5)
    h = h.to(dtype)
    fused.normed(x, added.to(dtype), weight, 1e-5, h)
    errors["normed"] = _error(h, expected)
    gate_up = torch.randn(3, 200, device=rig.device).to(dtype)
    gated = torch.empty(3, 100, device=rig.device, dtype=dtype)
    fused.gated(gate_up, gated, 1024)
    errors["gated"] = _error(gated, ops_reference.gated(gate_up))
    return errors


def sgmv_times(rig: Rig) -> bool:
    """One layer's q, k and v of a large model: the pair, a padded bmm, a loop, the floor."""
    width, outs = (64, [32, 16]) if rig.toy else (4096, [4096, 1024, 1024])
    many = 4 if rig.toy else 32
    cases = {
        f"decode {many} x {n}": (decode(many, n), [16] * n) for n in (1, 4, 16, 32) if n <= many
    }
    if not rig.toy:
        cases["decode 128 x 64"] = (decode(128, 64), [16] * 64)
        cases["decode 32 x 32, ranks 8-128"] = (decode(32, 32), [8, 16, 32, 128] * 8)
        cases["mixed 32 x 16 + 480"] = (mixed(32, 16), [16] * 16)
        cases["prefill 4 x 512"] = ([Segment(512 * i, 512, i) for i in range(4)], [16] * 4)
    for name, (segments, ranks) in cases.items():
        step = make_step(segments, ranks, width, outs, rig.dtype, str(rig.device))
        pair = rig.median_us(step.run)
        bmm, loop = rig.median_us(_padded_bmm(step)), rig.median_us(lambda s=step: gpu_sgmv.loop(s))
        floor = rig.floor_us(step.least_bytes)
        say(
            part="sgmv", case=name, pair_us=us(pair), padded_bmm_us=us(bmm), loop_us=us(loop),
            floor_us=us(floor), of_bound=round(floor / pair, 2),
            bmm_over_pair=round(bmm / pair, 2), loop_over_pair=round(loop / pair, 2),
        )  # fmt: skip
    return False


def _padded_bmm(step: gpu_sgmv.Step):
    """Adapters stacked at the largest rank, rows padded to the longest segment: two bmms a module.

    The stacks and the padded rows' places are made beforehand; gathering x and adding to y is
    part of the call.
    """
    rows_of: dict[int, list[int]] = {}
    for s in step.segments:
        if s.slot != BASE:
            rows_of.setdefault(s.slot, []).extend(range(s.first_row, s.first_row + s.rows))
    used, longest = list(rows_of), max(map(len, rows_of.values()))
    rank, spare = step.table.max_rank, len(step.y)
    device, dtype = step.x.device, step.x.dtype
    # A padding row repeats the adapter's first; what it computes goes to a row past the end.
    read = [[*r, *[r[0]] * (longest - len(r))] for r in rows_of.values()]
    written = [[*r, *[spare] * (longest - len(r))] for r in rows_of.values()]
    source = torch.tensor(read, device=device)
    target = torch.tensor(written, device=device).flatten()
    modules = []
    for s, width in enumerate(step.table.out_widths):
        a = torch.zeros(len(used), rank, step.table.in_width, dtype=dtype, device=device)
        b = torch.zeros(len(used), rank, width, dtype=dtype, device=device)
        for i, slot in enumerate(used):
            pair = step.pairs[slot][s]
            assert pair is not None
            a[i, : pair.rank] = gpu_sgmv.view(step.arena, pair.a)
            b[i, : pair.rank] = gpu_sgmv.view(step.arena, pair.bt)
        modules.append((a.transpose(1, 2), b))
    y = torch.zeros(spare + 1, step.y.shape[1], dtype=dtype, device=device)

    def call() -> None:
        x = step.x[source]
        column = 0
        for a, b in modules:
            added = torch.bmm(torch.bmm(x, a), b).flatten(0, 1)
            y[:, column : column + b.shape[2]].index_add_(0, target, added)
            column += b.shape[2]

    return call


def attention_times(rig: Rig) -> bool:
    """Attention of one layer: decode against SDPA on contiguous keys, and prompt chunks."""
    heads = Heads(4, 2, 32) if rig.toy else Heads(32, 8, 128)
    shapes = [(2, 40)] if rig.toy else [(1, 4096), (1, 32768), (32, 512), (32, 2048), (128, 1024)]
    for count, context in shapes:
        _decode_time(rig, heads, count, context)
    for start, count in [(16, 20)] if rig.toy else [(0, 512), (4096, 512)]:
        _prefill_time(rig, heads, start, count)
    return False


def _decode_time(rig: Rig, heads: Heads, count: int, context: int) -> None:
    """One row a sequence, at several lengths of a split."""
    safe = tiles_for(rig.device, rig.dtype).decode
    timed = {
        split: _attend_us(rig, heads, [(context - 1, 1)] * count, replace(safe, split=split))
        for split in ((safe.split,) if rig.toy else (128, safe.split, 512, 1024))
    }
    q = torch.randn(count, heads.q, 1, heads.dim, device=rig.device).to(rig.dtype)
    k, v = torch.randn(2, count, heads.kv, context, heads.dim, device=rig.device).to(rig.dtype)
    sdpa = rig.median_us(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    size = rig.dtype.itemsize * count * (2 * context * heads.kv + 2 * heads.q) * heads.dim
    floor, mine = rig.floor_us(size), timed[safe.split]
    say(
        part="attention", rows=count, context=context, paged_us=us(mine), sdpa_us=us(sdpa),
        floor_us=us(floor), of_bound=round(floor / mine, 2), sdpa_over=round(sdpa / mine, 2),
        by_split={str(s): us(t) for s, t in timed.items()},
    )  # fmt: skip


def _prefill_time(rig: Rig, heads: Heads, start: int, count: int) -> None:
    mine = _attend_us(rig, heads, [(start, count)])
    work_done = 4 * heads.q * heads.dim * count * (start + count / 2)
    say(
        part="attention", prefix=start, new=count, paged_us=us(mine),
        tflops=round(work_done / mine / 1e6, 1),
    )  # fmt: skip


def _attend_us(
    rig: Rig, heads: Heads, sequences: list[tuple[int, int]], tile: AttentionTile | None = None
) -> float:
    rows = paged(sequences)
    width = PAGE_TOKENS * 2 * heads.kv * heads.dim
    arena = torch.randn(len(rows.pages), width, device=rig.device).to(rig.dtype)
    qkv = torch.randn(rows.first_row[-1], heads.qkv_width, device=rig.device).to(rig.dtype)
    work = _work(rig, rig.dtype, rows, heads, tile)
    out, partials = _room(rig, rig.dtype, qkv, heads, work)
    return rig.median_us(
        lambda: attention.attend(qkv, arena, 0, PAGE_TOKENS, heads, work, partials, out)
    )


def step_times(rig: Rig) -> bool:
    """A decode step of several layers with no, 1, 16 and 64 adapters of rank 16."""
    made = Made(rig)
    many = 4 if rig.toy else 64
    context = 20 if rig.toy else 512
    base = rig.median_us(made.step(many, context, 0), 20)
    eager = rig.eager_us(made.step(many, context, 0))
    say(
        part="step", rows=many, layers=made.config.layers, adapters=0, step_us=us(base),
        without_graph_us=us(eager), tokens_s=round(many / base * 1e6),
        tokens_s_without_graph=round(many / eager * 1e6),
    )  # fmt: skip
    for adapters in (1, 4) if rig.toy else (1, 16, 64):
        taken = rig.median_us(made.step(many, context, adapters), 20)
        say(
            part="step", rows=many, adapters=adapters, step_us=us(taken),
            over_base=round(taken / base, 3),
        )  # fmt: skip
    return False


def paged(sequences: list[tuple[int, int]]) -> PagedRows:
    """Sequences of (start, rows), those of one row first, in shuffled pages."""
    first_row, first_page, pages = array("q", (0,)), array("q", (0,)), array("q")
    needed = sum(-(-(s + n) // PAGE_TOKENS) for s, n in sequences)
    free = iter(torch.randperm(needed).tolist())
    for start, count in sequences:
        first_row.append(first_row[-1] + count)
        pages.extend(next(free) for _ in range(-(-(start + count) // PAGE_TOKENS)))
        first_page.append(len(pages))
    return PagedRows(first_row, array("q", [s for s, _ in sequences]), first_page, pages)


def _work(
    rig: Rig, dtype: torch.dtype, rows: PagedRows, heads: Heads, tile: AttentionTile | None = None
) -> attention.PagedWork:
    tiles = tiles_for(rig.device, dtype)
    tiles = tiles if tile is None else replace(tiles, decode=tile)
    return build_paged(rows, PAGE_TOKENS, heads, tiles, StepRoom(rig.device))


def _room(
    rig: Rig, dtype: torch.dtype, qkv: torch.Tensor, heads: Heads, work: attention.PagedWork
) -> tuple[torch.Tensor, torch.Tensor]:
    items, high, wide = work.partials_shape(heads)
    out = torch.full((len(qkv), heads.q_width), float("nan"), dtype=dtype, device=rig.device)
    return out, torch.empty(items * high * wide, device=rig.device)


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    difference = (found.double() - expected).abs() / (1 + expected.abs())
    return float("inf") if bool(difference.isnan().any()) else float(difference.max())
