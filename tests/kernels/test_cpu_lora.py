"""The native CPU LoRA equals the reference with every instruction set of this machine, and a row's
bits depend on nothing but the row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.backend import GROUPS
from kernels.cpu import Absent, Isa, kind_of, native
from kernels.cpu_lora import TALL_ROWS
from kernels.errors import KernelError
from tests.kernels.lora_cases import (
    EVEN,
    LAYERS,
    ODD,
    RANKS,
    World,
    backend,
    check,
    make_world,
    operands,
    tile,
)

FOUND = native()
pytestmark = pytest.mark.skipif(isinstance(FOUND, Absent), reason=str(FOUND))
BEST = Isa.PLAIN if isinstance(FOUND, Absent) else FOUND.isa
HERE = [i for i in kind_of(BEST) if i <= BEST]
PATHS = [
    pytest.param(isa, dtype, id=f"{isa.name.lower()}-{str(dtype).removeprefix('torch.')}")
    for isa in kind_of(BEST)
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
    # Plain machines leave fp16 to torch; tiles are for bf16, the rest is AVX-512's.
    if (isa != Isa.PLAIN or dtype != torch.float16) and (isa != Isa.AMX or dtype == torch.bfloat16)
]
every_path = pytest.mark.parametrize(("isa", "dtype"), PATHS)


def on_this_machine(isa: Isa) -> Isa:
    if isa not in HERE:
        pytest.skip(f"this CPU, or its kernel, has no {isa.name}")
    return isa


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    # A second one would wait for the cores of other tests; where it matters a test asks for it.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def of_all_ranks(dtype: torch.dtype, shapes: object = EVEN) -> World:
    """An adapter a rank, each on all modules."""
    return make_world(dtype, shapes, {f"r{n}": lambda *_, n=n: n for n in RANKS})


@every_path
def test_every_rank_and_length_equals_the_reference(isa: Isa, dtype: torch.dtype) -> None:
    world = of_all_ranks(dtype)
    lora = backend(world, on_this_machine(isa))
    short = [(f"r{n}", 1) for n in RANKS] + [("r16", 1)] * 5 + [("r3", 1)] * 2
    random.Random(1).shuffle(short)
    check(world, lora, isa, tile(*short[:7], (None, 1), *short[7:], ("r33", 5), ("r64", 31)))
    long = [(f"r{n}", TALL_ROWS + i) for i, n in enumerate(RANKS)]
    check(world, lora, isa, tile(("r16", 1), (None, 2), *long, ("r12", 130)))


@every_path
def test_one_row_and_six_hundred_rows(isa: Isa, dtype: torch.dtype) -> None:
    world = make_world(dtype, EVEN, {"a": lambda *_: 16})
    lora = backend(world, on_this_machine(isa))
    for rows in (1, 600, 1):
        check(world, lora, isa, tile(("a", rows)))


@every_path
def test_widths_that_end_within_a_vector(isa: Isa, dtype: torch.dtype) -> None:
    world = make_world(dtype, ODD, {"a": lambda *_: 5, "b": lambda *_: 17})
    lora = backend(world, on_this_machine(isa))
    check(world, lora, isa, tile(("a", 1), ("b", 1), ("a", 1), ("a", 3), ("b", 40)))


@given(data=st.data(), seed=st.integers(0, 2**16))
def test_any_adapters_split_anywhere_equal_the_reference(data: st.DataObject, seed: int) -> None:
    rng = random.Random(seed)
    isa = data.draw(st.sampled_from(HERE))
    dtype = data.draw(st.sampled_from((torch.float32, torch.bfloat16)))
    shapes = data.draw(st.sampled_from((EVEN, ODD)))
    ranks = {}
    for key in "abc"[: data.draw(st.integers(1, 3))]:
        own = {(i, m): rng.choice((0, *RANKS)) for i in range(LAYERS) for m in shapes}
        own[0, "q_proj"] = rng.choice(RANKS)
        ranks[key] = lambda layer, module, own=own: own[layer, module]

    def cuts(rank: int) -> list[int]:
        return sorted(rng.sample(range(1, rank), min(rank - 1, 2))) if rank > 1 else []

    split = data.draw(st.booleans())
    world = make_world(dtype, shapes, ranks, seed, cuts if split else lambda rank: ())
    sizes = st.one_of(st.just(1), st.integers(1, 70))
    segments = data.draw(
        st.lists(st.tuples(st.sampled_from((None, *ranks)), sizes), min_size=1, max_size=6)
    )
    check(world, backend(world, isa), isa, tile(*segments), seed)


@every_path
def test_a_rows_bits_depend_on_no_other_row_and_on_no_thread(isa: Isa, dtype: torch.dtype) -> None:
    world = of_all_ranks(dtype)
    lora = backend(world, on_this_machine(isa))
    few = [("r16", 1)] * 7 + [("r33", 1), (None, 1), ("r3", 1)]
    rows = tile(*few, ("r16", 3), ("r16", 40), ("r64", 70))
    for group in GROUPS:
        x, y = operands(world, group, rows[-1].stop)
        together = y.clone()
        lora.prepare(rows, world.adapters).apply(1, group, x, together)
        torch.set_num_threads(3)
        again = y.clone()
        lora.prepare(rows, world.adapters).apply(1, group, x, again)
        torch.set_num_threads(1)
        assert torch.equal(again, together)
        for r in rows:
            alone = y[r.start : r.stop].clone()
            step = lora.prepare(tile((r.adapter, r.stop - r.start)), world.adapters)
            if step is not None:
                step.apply(1, group, x[r.start : r.stop], alone)
            assert torch.equal(alone, together[r.start : r.stop])


@every_path
def test_an_adapters_nan_reaches_its_own_rows_only(isa: Isa, dtype: torch.dtype) -> None:
    world = make_world(dtype, EVEN, {"bad": lambda *_: 16, "good": lambda *_: 16})
    lora = backend(world, on_this_machine(isa))
    rows = tile(("bad", 1), ("good", 1), (None, 1), ("bad", 1), ("good", 50), ("bad", 50))
    x, y = operands(world, "qkv", rows[-1].stop)
    sound = y.clone()
    lora.prepare(rows, world.adapters).apply(0, "qkv", x, sound)
    for block in world.adapters["bad"].blocks.values():
        for piece in (*block.a, *block.bt):
            piece.fill_(float("nan"))
    kept = y.clone()
    lora.prepare(rows, world.adapters).apply(0, "qkv", x, y)
    for r in rows:
        got = y[r.start : r.stop]
        if r.adapter == "bad":
            assert got.isnan().all()
        else:
            assert torch.equal(got, (sound if r.adapter else kept)[r.start : r.stop])


def test_a_new_generation_is_read_where_it_lies_now() -> None:
    old = make_world(torch.float32, EVEN, {"a": lambda *_: 4}, seed=1)
    new = make_world(torch.float32, EVEN, {"a": lambda *_: 8}, seed=2)
    new.adapters["a"] = replace(new.adapters["a"], generation=2)
    lora = backend(old, HERE[-1])
    lora.adopt(old.adapters["a"])
    check(old, lora, HERE[-1], tile(("a", 2)))
    check(new, lora, HERE[-1], tile(("a", 2)))
    lora.forget("a")
    lora.forget("a")
    check(new, lora, HERE[-1], tile(("a", 2)))


def test_a_step_of_base_rows_needs_no_call() -> None:
    world = make_world(torch.float32, EVEN, {"a": lambda *_: 4})
    assert backend(world, HERE[-1]).prepare(tile((None, 1), (None, 40)), world.adapters) is None


def test_operands_that_do_not_fit_are_refused_by_name() -> None:
    world = make_world(torch.float32, EVEN, {"a": lambda *_: 4})
    lora = backend(world, HERE[-1])
    step = lora.prepare(tile(("a", 4)), world.adapters)
    x, y = operands(world, "qkv", 4)
    for bad_x, bad_y, layer in (
        (x[:3], y, 0),
        (x, y[:3], 0),
        (x[:, :32], y, 0),
        (x, y[:, :32], 0),
        (x.bfloat16(), y, 0),
        (x, y.half(), 0),
        (x.T.contiguous().T, y, 0),
        (x, y, LAYERS),
        (x, y, -1),
    ):
        with pytest.raises(KernelError, match=r"qkv: x \[\d+, \d+\].*needed are at least 4"):
            step.apply(layer, "qkv", bad_x, bad_y)


def test_blocks_that_do_not_fit_the_model_are_refused_by_name() -> None:
    world = make_world(torch.float32, EVEN, {"adapter": lambda *_: 4})
    fit = world.adapters["adapter"]
    block = fit.blocks[0, "q_proj"]
    for wrong, said in (
        ({(9, "q_proj"): block}, "layer 9 q_proj is not of this model of 2 layers"),
        ({(0, "lm_head"): block}, "layer 0 lm_head is not of this model"),
        ({(0, "down_proj"): block}, r"a block of \[4, 64\] in float32.*rows of 160 in float32"),
        ({(0, "q_proj"): replace(block, rank=5)}, "rank 5 but 4 rows"),
    ):
        with pytest.raises(KernelError, match=f"adapter adapter: {said}"):
            backend(world, HERE[-1]).adopt(replace(fit, blocks=wrong))
