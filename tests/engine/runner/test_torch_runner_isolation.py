"""What goes wrong for one request stays with that request."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracle import Bench, Sequence

from engine.errors import ConfigError
from engine.model.config import synthetic_config
from engine.model.loaders import synthetic_model
from engine.model.made_adapters import make_adapter
from engine.runner.arena import Arena
from engine.runner.torch_runner import TorchRunner, kv_page_bytes
from engine.scheduling.plan import Segment, StepPlan


@pytest.fixture(scope="module")
def model():
    return synthetic_model(synthetic_config())


def segment(name, tokens=(5, 6, 7), pages=(0,), **more):
    options = {"adapter": None, "start": 0, "samples": True, "is_prefill": True} | more
    return Segment(request_id=name, tenant="t", tokens=tuple(tokens), pages=tuple(pages), **options)


def run(runner, *segments):
    return runner.execute(StepPlan(1, segments))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (segment("bad", adapter="f" * 64), "not on the device"),
        (segment("bad", tokens=(5, 512)), "token id 512 is outside the vocabulary of 512"),
        (segment("bad", tokens=(-1,)), "token id -1"),
        (segment("bad", tokens=()), "no tokens"),
        (segment("bad", tokens=(1,), start=16), "pages do not hold 17 tokens"),
        (segment("bad", pages=(900,)), "pages do not hold"),
        (segment("bad", tokens=(1,), start=4096, pages=range(10)), "context of 4096"),
    ],
)
def test_a_segment_that_cannot_be_computed_fails_alone(model, bad, says):
    runner = TorchRunner(model, 20, 16)
    alone = run(runner, segment("good", pages=(1,)))
    beside = run(runner, bad, segment("good", pages=(1,)))
    assert beside.tokens == alone.tokens
    assert set(beside.failed) == {"bad"}
    assert says in beside.failed["bad"]


@pytest.mark.parametrize("rows", [1, 40])
def test_an_adapter_that_overflows_fails_its_own_request_only(model, tmp_path, rows):
    bench = Bench(model, pages=300)
    quiet = bench.load(make_adapter(tmp_path / "quiet", model.config, 8, seed=1))
    weights = bench.read(make_adapter(tmp_path / "loud", model.config, 8, seed=2))
    image = weights.image.copy()
    floats = image.view(np.float32)
    floats[floats != 0] = 3e38  # finite by itself; any sum of products is not
    pages = [bench.free.pop() for _ in range(weights.pages)]
    bench.runner.copy_in(replace(weights, image=image, key="loud"), pages)
    good = (segment("base", [3] * rows, (0, 1, 2)),
            segment("tuned", [4] * rows, (3, 4, 5), adapter=quiet))  # fmt: skip
    alone = run(bench.runner, *good)
    beside = run(bench.runner, segment("bad", [5] * rows, (6, 7, 8), adapter="loud"), *good)
    assert set(beside.failed) == {"bad"}
    assert "not finite" in beside.failed["bad"]
    assert beside.tokens == alone.tokens


def test_nan_in_one_sequences_pages_fails_that_sequence_only(model):
    bench = Bench(model)
    a, b = Sequence("a", None, None, [1] * 40), Sequence("b", None, None, [2] * 9)
    bench.step([a, b])
    bench.runner.arena.elements[a.pages[0]] = float("nan")
    outcome = run(bench.runner, bench.segment(a), bench.segment(b))
    assert set(outcome.failed) == {"a"}
    assert set(outcome.tokens) == {"b"}


def test_a_chunk_that_does_not_sample_still_tells_that_it_is_not_finite(model):
    bench = Bench(model)
    a = Sequence("a", None, None, [1] * 60, chunk=20)
    bench.step([a])
    bench.runner.arena.elements[a.pages[0]] = float("nan")
    outcome = run(bench.runner, bench.segment(a))
    assert set(outcome.failed) == {"a"}
    assert not outcome.tokens


def test_the_newest_copy_of_a_key_is_served_never_an_earlier_one(model, tmp_path):
    bench = Bench(model)
    one = bench.read(make_adapter(tmp_path / "one", model.config, 16, seed=1))
    two = replace(bench.read(make_adapter(tmp_path / "two", model.config, 16, seed=2)), key=one.key)
    pages = [bench.free.pop() for _ in range(one.pages)]

    def logits():
        plan = StepPlan(1, (segment("x", [3] * 5, (0,), adapter=one.key),))
        return bench.runner.logits(plan)["x"]

    bench.runner.copy_in(one, pages)
    first = logits()
    bench.runner.copy_in(two, pages)
    second = logits()
    bench.runner.copy_in(one, pages)
    assert not torch.equal(first, second)
    assert torch.equal(first, logits())


def test_a_dropped_adapter_is_not_served(model, tmp_path):
    bench = Bench(model)
    key = bench.load(make_adapter(tmp_path / "one", model.config, 4))
    bench.evict(key)
    outcome = run(bench.runner, segment("x", adapter=key))
    assert "not on the device" in outcome.failed["x"]


def test_loads_beside_steps_do_not_change_the_steps(model, tmp_path):
    bench = Bench(model, pages=300)
    keys = [bench.load(make_adapter(tmp_path / f"{i}", model.config, 8, seed=i)) for i in range(3)]
    noise = bench.read(make_adapter(tmp_path / "noise", model.config, 64, seed=9))
    pages = [bench.free.pop() for _ in range(noise.pages)]
    stop = threading.Event()

    def loader():
        while not stop.is_set():
            bench.runner.copy_in(noise, pages)
            bench.runner.drop(noise.key)

    def generate():
        rows = [Sequence(str(i), k, None, [7, 8, 9]) for i, k in enumerate(keys)]
        for _ in range(12):
            bench.step(rows)
        return [s.output for s in rows]

    quiet = generate()
    thread = threading.Thread(target=loader)
    thread.start()
    try:
        assert generate() == quiet
    finally:
        stop.set()
        thread.join()


def test_an_adapter_packed_for_another_arena_is_refused(model, tmp_path):
    bench = Bench(model)
    weights = bench.read(make_adapter(tmp_path / "a", model.config, 4))
    other = TorchRunner(model, 50, 32)
    with pytest.raises(ConfigError, match="packed for pages of"):
        other.copy_in(weights, range(weights.pages))
    with pytest.raises(ConfigError, match="needs"):
        bench.runner.copy_in(weights, range(weights.pages - 1))


def test_base_rows_are_bitwise_the_same_with_and_without_adapters_beside(model, tmp_path):
    bench = Bench(model, pages=200)
    key = bench.load(make_adapter(tmp_path / "a", model.config, 16))

    def base(adapter):
        plan = StepPlan(1, tuple(
            segment(str(i), [i + 3], (i,), adapter=adapter if i % 2 else None) for i in range(8)
        ))  # fmt: skip
        return bench.runner.logits(plan)

    without, beside = base(None), base(key)
    for i in range(0, 8, 2):
        assert torch.equal(without[str(i)], beside[str(i)])
    assert not torch.equal(without["1"], beside["1"])


def test_offsets_past_two_to_the_31_elements_reach_the_right_page():
    config = synthetic_config(layers=32, heads=8, kv_heads=8, head_dim=128)
    size = kv_page_bytes(config, 16, torch.bfloat16)
    pages = 2**32 // size + 100  # more than 2**31 elements; memory is touched only where used
    arena = Arena(config, pages, 16, torch.bfloat16)
    last = pages - 1
    assert arena.elements[0].numel() * last > 2**31
    slots = torch.arange(16)
    rows = arena.slot_rows(torch.full((16,), last), slots)
    kv = torch.randn(16, 2 * arena.width).bfloat16()
    arena.clear(torch.tensor([0, last]))
    arena.write(rows[31], kv)
    assert torch.equal(arena.gather(31, torch.tensor([last])).view(16, -1), kv)
    assert not arena.gather(30, torch.tensor([last])).any()
    assert not arena.elements[0].any()


def test_a_page_that_adapter_rows_cannot_align_to_is_refused():
    with pytest.raises(ConfigError, match="no multiple of 128"):
        Arena(synthetic_config(layers=1, kv_heads=1, heads=4, head_dim=2), 4, 3, torch.float32)
