"""The plain-torch LoRA backend equals a loop over rows, whatever the batch and its history."""

from __future__ import annotations

import random

import pytest
import torch

from kernels.backend import GROUPS, AdapterBlocks, Block, Rows
from kernels.torch_ops import GroupedLora

SHAPES = {
    "q_proj": (24, 16), "k_proj": (8, 16), "v_proj": (8, 16), "o_proj": (16, 24),
    "gate_proj": (32, 16), "up_proj": (32, 16), "down_proj": (16, 32),
}  # fmt: skip
LAYERS = 2


def make(key, rank, modules=tuple(SHAPES), generation=1, seed=None, pieces=1):
    g = torch.Generator().manual_seed(seed if seed is not None else hash(key) % 1000)
    blocks = {}
    for layer in range(LAYERS):
        for m in modules:
            out, width = SHAPES[m]
            a = torch.randn(rank, width, generator=g)
            bt = torch.randn(rank, out, generator=g)
            cut = rank // 2 if pieces == 2 and rank > 1 else rank
            split = lambda t, c=cut: tuple(p for p in (t[:c], t[c:]) if len(p))  # noqa: E731
            blocks[layer, m] = Block(rank, split(a), split(bt))
    return AdapterBlocks(key, generation, rank, blocks)


def expected(adapters, rows, layer, group, x, y):
    y = y.clone()
    for r in rows:
        first = 0
        for m in GROUPS[group]:
            out = SHAPES[m][0]
            block = adapters[r.adapter].blocks.get((layer, m)) if r.adapter else None
            if block is not None:
                t = x[r.start : r.stop] @ torch.cat(block.a).T
                y[r.start : r.stop, first : first + out] += t @ torch.cat(block.bt)
            first += out
    return y


def check(backend, adapters, rows):
    step = backend.prepare(rows, adapters)
    total = rows[-1].stop + 3  # rows beyond: base prefill
    for layer in range(LAYERS):
        for group, modules in GROUPS.items():
            x = torch.randn(total, SHAPES[modules[0]][1])
            y = torch.randn(total, sum(SHAPES[m][0] for m in modules))
            want = expected(adapters, rows, layer, group, x, y)
            got = y.clone()
            if step is not None:
                step.apply(layer, group, x, got)
            assert torch.allclose(got, want, rtol=1e-4, atol=1e-4)
            base = [i for r in rows if r.adapter is None for i in range(r.start, r.stop)]
            base += range(rows[-1].stop, total)
            assert torch.equal(got[base], y[base])


def tile(*spec):
    rows, at = [], 0
    for adapter, size in spec:
        rows.append(Rows(adapter, at, at + size))
        at += size
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_any_history_of_batches_equals_the_loop(seed):
    rng = random.Random(seed)
    backend = GroupedLora(LAYERS, SHAPES, torch.float32, max_columns=96, max_staged=120)
    adapters = {}
    for i, rank in enumerate((1, 3, 8, 16, 33, 64, 100)):
        modules = rng.sample(list(SHAPES), rng.randint(1, 7))
        adapters[f"a{i}"] = make(f"a{i}", rank, modules, seed=i, pieces=rng.choice((1, 2)))
    for generation in range(2, 30):
        names = [rng.choice([None, *adapters]) for _ in range(rng.randint(1, 12))]
        sizes = sorted(rng.choice((1, 1, 1, 2, 9, 150, 700)) for _ in names)
        check(backend, adapters, tile(*zip(names, sizes, strict=True)))
        again = rng.choice(list(adapters))  # evicted, and loaded with other content
        backend.forget(again)
        old = adapters[again]
        adapters[again] = make(
            again, old.rank, {m for _, m in old.blocks}, generation, seed=generation
        )


def test_a_batch_of_base_rows_needs_no_work():
    backend = GroupedLora(LAYERS, SHAPES, torch.float32)
    assert backend.prepare(tile((None, 1), (None, 4)), {}) is None


def test_a_new_generation_is_used_without_being_told_to_forget():
    backend = GroupedLora(LAYERS, SHAPES, torch.float32)
    rows = tile(("a", 1), ("b", 1))
    check(backend, {"a": make("a", 4, seed=1), "b": make("b", 4, seed=2)}, rows)
    check(backend, {"a": make("a", 4, generation=9, seed=3), "b": make("b", 4, seed=2)}, rows)


def test_operands_hold_the_active_adapters_and_little_else():
    backend = GroupedLora(LAYERS, SHAPES, torch.float32, max_columns=64, max_staged=80)
    many = {f"a{i}": make(f"a{i}", 16, seed=i) for i in range(10)}
    for i in range(10):
        check(backend, many, tile((f"a{i}", 1), (f"a{(i + 3) % 10}", 1)))
        assert backend.columns_held == 32
        assert backend.columns_staged <= 80
    check(backend, many, tile(*((f"a{i}", 1) for i in range(6))))
    assert backend.columns_held == 64, "adapters beyond the bound go alone"
    assert backend.columns_staged == 96, "the step's own are staged, whatever the bound"
    check(backend, many, tile(("a1", 1)))
    assert backend.columns_held == 16


def test_anothers_overflow_does_not_reach_a_row():
    backend = GroupedLora(LAYERS, SHAPES, torch.float32)
    wild = make("wild", 4, seed=1)
    for block in wild.blocks.values():
        for piece in (*block.a, *block.bt):
            piece.fill_(3e38)
    adapters = {"wild": wild, "good": make("good", 4, seed=2)}
    x = torch.full((2, 16), 5.0)
    y = torch.zeros(2, 40)
    step = backend.prepare(tile(("wild", 1), ("good", 1)), adapters)
    assert step is not None
    step.apply(0, "qkv", x, y)
    assert not torch.isfinite(y[0]).all()
    assert torch.isfinite(y[1]).all()
    assert y[1].any()
