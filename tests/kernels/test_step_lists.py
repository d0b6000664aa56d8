"""A step's lists are made once a step, in memory made once, and are never another step's."""

from __future__ import annotations

import itertools
import random
from array import array

import numpy as np
import pytest
import torch

from engine.model.config import MODULES
from engine.model.rope import rope_tables
from engine.runner.arena import Arena
from kernels.backend import GROUPS, AdapterBlocks, PagedRows, Rows
from kernels.errors import KernelError
from kernels.gpu_lora import SgmvLora
from kernels.gpu_ops import TritonOps
from kernels.gpu_room import FixedRoom, StepRoom
from tests.kernels.lists_in_torch import instead_of_triton
from tests.kernels.whole_model import CONFIG, adapter, ops_shape

SHAPES = {m: CONFIG.module_shape(m) for m in MODULES}


@pytest.fixture
def arena():
    return Arena(CONFIG, 120, 16, torch.float32)


def copies(arena: Arena, count: int) -> list[AdapterBlocks]:
    ranks = [1 + 2 * (i % 4) for i in range(count)]
    return [
        adapter(arena, str(i), r, list(range(8 * i, 8 * i + 8)), 1) for i, r in enumerate(ranks)
    ]


def reference(rows, blocks, layer, group, x, y):
    for r in rows:
        if r.adapter is None:
            continue
        column = 0
        for module in GROUPS[group]:
            width = SHAPES[module][0]
            block = blocks[r.adapter].blocks.get((layer, module))
            if block is not None:
                t = x[r.start : r.stop] @ torch.cat(block.a).T
                y[r.start : r.stop, column : column + width] += t @ torch.cat(block.bt)
            column += width


def steps(held: list[AdapterBlocks], count: int):
    """(rows, their adapters, rows in all) of steps whose tenants change."""
    choose = random.Random(3)
    for _ in range(count):
        taken = choose.sample(held, choose.randint(1, 5))
        blocks = {a.key: a for a in taken}
        rows, at = [], 0
        for key in (*blocks, *(choose.choice([None, *blocks]) for _ in range(3))):
            size = choose.choice([1, 1, 1, 2, 3])
            rows.append(Rows(key, at, at + size))
            at += size
        yield rows, blocks, at


def test_a_hundred_steps_of_changing_tenants_make_no_memory(arena):
    lora = SgmvLora(2, SHAPES, arena.elements, slots=6, max_rank=8, max_rows=24)
    held = copies(arena, 12)  # twice the slots
    for a in held:
        lora.adopt(a)
    with torch.autograd.profiler.profile() as seen:
        for rows, blocks, _ in steps(held, 100):
            lora.prepare(rows, blocks)
    ops = {e.name for e in seen.function_events}
    assert "aten::copy_" in ops
    assert not {o for o in ops if "empty" in o or "clone" in o}


def test_a_hundred_steps_of_changing_tenants_equal_the_reference(arena, monkeypatch):
    instead_of_triton(monkeypatch)
    lora = SgmvLora(2, SHAPES, arena.elements, slots=6, max_rank=8, max_rows=24)
    turns = itertools.cycle(itertools.product(range(2), GROUPS))
    for rows, blocks, count in steps(copies(arena, 12), 100):
        layer, group = next(turns)
        x = torch.randn(count, SHAPES[GROUPS[group][0]][1])
        y = torch.randn(count, sum(SHAPES[m][0] for m in GROUPS[group]))
        expected = y.clone()
        reference(rows, blocks, layer, group, x, expected)
        step = lora.prepare(rows, blocks)
        assert step is not None
        step.apply(layer, group, x, y)
        assert float((y - expected).abs().max()) <= 1e-4


def test_a_hundred_steps_of_changing_contexts_make_no_memory(arena):
    ops = TritonOps(ops_shape(), arena.elements, 16, rope_tables(CONFIG, 2000), max_rows=24)
    choose = random.Random(4)
    with torch.autograd.profiler.profile() as seen:
        for _ in range(100):
            ops.prepare(some_rows(choose))
    made = {e.name for e in seen.function_events}
    assert "aten::copy_" in made
    assert not {o for o in made if "empty" in o or "clone" in o}


def some_rows(choose: random.Random) -> PagedRows:
    """Decode rows by falling context, then a prompt's chunk, in pages that no two share."""
    contexts = sorted((choose.randint(1, 400) for _ in range(choose.randint(1, 4))), reverse=True)
    counts = [1] * len(contexts) + [choose.randint(2, 20)]
    starts = [c - 1 for c in contexts] + [choose.randint(0, 100)]
    pages = [-(-(s + n) // 16) for s, n in zip(starts, counts, strict=True)]
    places = choose.sample(range(120), sum(pages))
    first_row, first_page = ([0, *itertools.accumulate(each)] for each in (counts, pages))
    return PagedRows(*(array("q", each) for each in (first_row, starts, first_page, places)))


def test_a_step_like_the_one_before_builds_nothing_and_a_new_copy_of_its_adapter_does(
    arena, monkeypatch
):
    built: list[int] = []
    works = SgmvLora.works
    monkeypatch.setattr(SgmvLora, "works", lambda *a: built.append(1) or works(*a))
    lora = SgmvLora(2, SHAPES, arena.elements, slots=4, max_rank=8)
    first, second = (adapter(arena, "x", 3, list(range(g * 9, g * 9 + 9)), g) for g in (1, 2))
    rows = [Rows("x", 0, 1), Rows(None, 1, 2)]
    assert lora.prepare(rows, {"x": first}) is lora.prepare(rows, {"x": first})
    assert len(built) == 1
    lora.prepare(rows, {"x": second})
    assert len(built) == 2
    lora.forget("x")
    lora.prepare(rows, {"x": second})
    lora.prepare([Rows("x", 0, 1), Rows("x", 1, 2)], {"x": second})
    assert len(built) == 3


def test_fixed_lists_are_launched_whole_and_hold_the_step_that_filled_them_last(arena, monkeypatch):
    instead_of_triton(monkeypatch)
    lora = SgmvLora(2, SHAPES, arena.elements, slots=4, max_rank=8, max_rows=8)
    blocks = {a.key: a for a in copies(arena, 3)}
    fixed = lora.fixed(8, 4, 8)
    places = [w.expand.data_ptr() for w in fixed.step._works.values()]
    choose = random.Random(1)
    for count in (8, 3, 1, 0, 5):
        rows = [Rows(choose.choice([None, *blocks]), i, i + 1) for i in range(count)]
        assert fixed.try_fill(rows, blocks)
        x, y = torch.randn(8, 64), torch.randn(8, 192)
        expected = y.clone()
        reference(rows, blocks, 1, "gate_up", x, expected)
        fixed.step.apply(1, "gate_up", x, y)
        assert float((y - expected).abs().max()) <= 1e-4
    assert [w.expand.data_ptr() for w in fixed.step._works.values()] == places


def test_more_work_than_fixed_lists_hold_is_not_cut_and_what_they_held_stays(arena):
    lora = SgmvLora(2, SHAPES, arena.elements, slots=4, max_rank=40)
    pages = [list(range(8)), list(range(8, 60))]
    small, large = (adapter(arena, str(r), r, at, 1) for r, at in zip((3, 40), pages, strict=True))
    blocks = {a.key: a for a in (small, large)}
    fixed = lora.fixed(2, 1, 16)
    assert fixed.try_fill([Rows("3", 0, 1)], blocks)
    held = [w.expand.clone() for w in fixed.step._works.values()]
    assert not fixed.try_fill([Rows("3", i, i + 1) for i in range(3)], blocks)
    assert not fixed.try_fill([Rows("40", 0, 1)], blocks)
    assert all(
        torch.equal(w.expand, h) for w, h in zip(fixed.step._works.values(), held, strict=True)
    )
    assert fixed.try_fill([Rows("3", 1, 2)], blocks)


def test_a_rooms_tail_is_what_it_was_made_with_whatever_was_there():
    rest = [np.array([[0, 9]] * 5), np.zeros(3)]
    room = FixedRoom(rest)
    room.fill([np.full((4, 2), 7), np.ones(3)])
    room.fill([np.full((1, 2), 8), np.ones(1)])
    assert room.views[0].tolist() == [[8, 8], *[[0, 9]] * 4]
    assert room.views[1].tolist() == [1, 0, 0]
    with pytest.raises(KernelError, match="list 1 has 4 entries, its room holds 3"):
        room.fill([rest[0], np.zeros(4)])


def test_every_list_starts_where_the_first_launch_found_it_a_16_byte_boundary():
    room = StepRoom(torch.device("cpu"))
    for sizes in ((3, 5, 1), (1, 1), (64, 2, 7)):
        parts = [np.arange(n, dtype=np.int32) for n in sizes]
        views = room.hold(parts)
        assert [v.tolist() for v in views] == [p.tolist() for p in parts]
        assert all((v.data_ptr() - room._made.data_ptr()) % 16 == 0 for v in views)
