"""The runner on an accelerator, with the CPU in its place: what it answers, and in which order its
lanes touch the arena. The kernels' parts are played by plain torch on the kernels' own lists."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from held_lanes import WITHIN_S, HeldLane, StepLane
from oracle import Bench, Sequence

from engine.errors import ConfigError
from engine.model.config import synthetic_config
from engine.model.loaders import synthetic_model
from engine.model.made_adapters import make_adapter
from engine.runner.accelerator import Accelerator
from engine.runner.device_runner import MAX_RANK, DeviceRunner
from engine.runner.lanes import AtOnce
from engine.scheduling.plan import Segment, StepPlan
from kernels import attention
from kernels.errors import KernelError
from tests.kernels.called_again import Again
from tests.kernels.lists_in_torch import instead_of_triton

CPU = torch.device("cpu")
PAGES = 160


@pytest.fixture(autouse=True)
def torch_kernels(monkeypatch):
    instead_of_triton(monkeypatch)


@pytest.fixture(scope="module")
def model():
    return synthetic_model(synthetic_config(layers=2))


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    where = tmp_path_factory.mktemp("adapters")
    return [make_adapter(where / f"r{r}", model.config, r, seed=r) for r in (3, 8, 17)]


def on(steps=None, copies=None, recorder=None, **most) -> Accelerator:
    sizes = {"most_rows": 64, "most_sequences": 4, "most_adapters": 4} | most
    return Accelerator(CPU, steps or AtOnce(), copies or AtOnce(), recorder, **sizes)


def bench(model, accelerator: Accelerator | None) -> Bench:
    made = Bench(model, pages=PAGES)
    if accelerator is not None:
        made.runner = DeviceRunner(model, PAGES, 16, accelerator)
        made.runner.arena.elements[:PAGES] = float("nan")
    return made


def rows(runner, key, pages=(0,), count=5):
    segment = Segment("r", "t", key, tuple(range(count)), 0, tuple(pages), True, True)
    return runner.logits(StepPlan(1, (segment,)))["r"]


def alike(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert float((found - expected).abs().max()) <= 1e-4


def driven(made: Bench, folders) -> dict[str, list[int]]:
    """Requests that come and go, chunked prompts among decode rows, adapters evicted between."""
    keys = [made.load(f) for f in folders]
    whose = [None, *keys]
    waiting = [
        Sequence(f"s{i}", whose[i % 4], None, [(i * 37 + j) % 256 for j in range(3 + 7 * i)], 9)
        for i in range(6)
    ]
    running: list[Sequence] = []
    answers = {}
    while waiting or running:
        while waiting and len(running) < 4:
            running.append(waiting.pop(0))
        plan = StepPlan(1, tuple(made.segment(s) for s in running))
        outcome = made.runner.execute(plan)
        assert outcome.failed == {}
        for s, segment in zip(running, plan.segments, strict=True):
            s.computed += len(segment.tokens)
            s.output += [outcome.tokens[s.name]] if segment.samples else []
        for s in [s for s in running if len(s.output) == 6 + len(s.prompt) % 4]:
            running.remove(s)
            answers[s.name] = s.output
            made.release(s.pages)
            if s.adapter is not None and not any(r.adapter == s.adapter for r in running):
                made.evict(s.adapter)
                assert made.load(folders[keys.index(s.adapter)]) == s.adapter
    return answers


def test_replayed_steps_answer_token_for_token_what_launched_ones_and_the_cpu_do(model, folders):
    recorder = Again()
    made = bench(model, on(recorder=recorder))
    recorder.replayed = 0
    replayed = driven(made, folders)
    assert recorder.recorded == 9  # rows x adapters: 1 x {0, 1}, 2 x {0, 1, 2}, 4 x {0, 1, 2, 4}
    assert recorder.replayed > 10
    assert replayed == driven(bench(model, on()), folders)
    assert replayed == driven(bench(model, None), folders)


def test_a_device_that_replays_otherwise_than_it_launches_serves_without_and_says_so(model):
    class Stale(Again):
        def record(self, call):
            replay = super().record(call)
            replay.__class__.__call__ = lambda self: None  # the first answer for ever
            return replay

    runner = DeviceRunner(model, 12, 16, on(recorder=Stale()))
    assert runner.kernels[-1] == (
        "decode: launched kernel by kernel, which is slower: a recorded step of 4 rows does not "
        "answer as a launched one does on cpu"
    )
    alike(rows(runner, None), rows(bench(model, None).runner, None))


def test_long_contexts_take_a_shape_of_more_rows_and_what_none_holds_is_launched(model):
    recorder = Again()
    runners = [DeviceRunner(model, PAGES, 16, on(recorder=r)) for r in (recorder, None)]
    runners[0].arena.elements.normal_(generator=torch.Generator().manual_seed(1))
    runners[1].arena.elements.copy_(runners[0].arena.elements)
    filled: list[int] = []
    for shape, graph in runners[0]._graphs._graphs.items():
        run = graph.run
        graph.run = lambda *a, run=run, rows=shape.rows: filled.append(rows) or run(*a)

    def plan(*starts):
        pages = tuple(range(PAGES))
        return StepPlan(
            1,
            tuple(
                Segment(str(i), "t", None, (5,), start, pages, True, False)
                for i, start in enumerate(starts)
            ),
        )

    for starts, takes in (
        ((100,), [1]),
        ((2300,), [2]),  # nine items of 256 keys: a row's share is eight
        ((2300, 2300), [4]),
        ((2300, 2300, 2300, 2300), []),  # more than the largest shape has
        ((9, 8, 7, 6, 5), []),
    ):
        filled.clear()
        found, expected = (r.logits(plan(*starts)) for r in runners)
        assert filled == takes
        for name, row in expected.items():
            alike(found[name], row)


def test_a_step_waits_for_the_load_that_it_reads_and_for_no_other(model, folders):
    copies = HeldLane()
    made, plain = bench(model, on(StepLane(), copies)), bench(model, None)
    weights = [made.read(f) for f in folders]
    places = [[*range(10 + 40 * i, 10 + 40 * i + w.pages)] for i, w in enumerate(weights)]
    for w, own in zip(weights, places, strict=True):
        plain.runner.copy_in(w, own)
    with ThreadPoolExecutor(3) as loaders:
        loads = []
        for i, (w, own) in enumerate(zip(weights, places, strict=True)):
            loads.append(loaders.submit(made.runner.copy_in, w, own))
            copies.waited_for(i + 1)  # until then steps cannot name it
        alike(rows(made.runner, None), rows(plain.runner, None))
        assert len(copies.todo) == 6  # the bytes of each, and the mark behind them
        expected = rows(plain.runner, weights[1].key)
        alike(rows(made.runner, weights[1].key), expected)
        assert len(copies.todo) == 2  # those before it on the link have ended, that behind it not
        assert not loads[2].done()
        assert torch.isnan(made.runner.arena.elements[places[2]]).all()
        copies.go()
        for load in loads:
            load.result(WITHIN_S)
    for w in weights:
        alike(rows(made.runner, w.key), rows(plain.runner, w.key))


def test_an_evicted_adapters_page_is_not_written_while_a_step_that_reads_it_is_under_way(
    model, folders, monkeypatch
):
    class Waited(threading.Condition):
        def wait(self, timeout=None):
            waiting.set()
            return super().wait(timeout)

    waiting = threading.Event()
    made = bench(model, on())
    key = made.load(folders[1])
    own = made.held[key]
    before = rows(made.runner, key)
    noise = replace(made.read(folders[1]), key="noise")
    noise.image[:] = 0xFF  # NaN, whoever reads it
    made.runner._order._changed = Waited()
    attend, loads = attention.attend, []

    def while_under_way(qkv, arena, layer, *more):
        if layer == 1 and not loads:
            made.runner.drop(key)
            loads.append(loader.submit(made.runner.copy_in, noise, own))
            assert waiting.wait(WITHIN_S)
        attend(qkv, arena, layer, *more)

    with ThreadPoolExecutor(1) as loader:
        monkeypatch.setattr(attention, "attend", while_under_way)
        assert torch.equal(rows(made.runner, key), before)
        loads[0].result(WITHIN_S)
    assert torch.isnan(made.runner.arena.elements[own]).all()


def test_an_adapter_of_too_high_a_rank_is_refused_once_its_copy_has_ended(model, tmp_path):
    copies = HeldLane()
    made = bench(model, on(StepLane(), copies))
    big = made.read(make_adapter(tmp_path / "big", model.config, 2))
    big = replace(big, rank=MAX_RANK + 1)
    with ThreadPoolExecutor(1) as loader:
        load = loader.submit(made.runner.copy_in, big, range(big.pages))
        copies.holds(2)
        assert not load.done()
        copies.go()
        with pytest.raises(KernelError, match=f"rank {MAX_RANK + 1}, the slots hold {MAX_RANK}"):
            load.result(WITHIN_S)
    made.runner.drop(big.key)
    assert made.runner._pages_of == {}
    assert made.runner._order.under_way == (0, 0)


def test_neighbouring_pages_come_by_one_copy(model):
    arena = DeviceRunner(model, 12, 16, on()).arena
    image = torch.arange(6, dtype=torch.uint8)[:, None].expand(6, arena.page_bytes).contiguous()
    with torch.autograd.profiler.profile() as seen:
        arena.load_all([4, 5, 6, 2, 9, 10], image)
    assert [e.name for e in seen.function_events].count("aten::copy_") == 3
    assert [int(arena.bytes[p, -1]) for p in (4, 5, 6, 2, 9, 10)] == list(range(6))


def test_padding_rows_write_to_the_spare_page_and_to_no_other(model):
    runner = DeviceRunner(model, 12, 16, on(recorder=Again()))
    runner.arena.elements[:12] = float("nan")
    segments = [
        Segment(str(i), "t", None, (7 + i,), 0, (3 + i,), True, False) for i in range(3)
    ]  # of four recorded rows one is padding
    outcome = runner.execute(StepPlan(1, tuple(segments)))
    assert outcome.failed == {}
    written = ~torch.isnan(runner.arena.elements[:12]).all(1)
    assert np.flatnonzero(written.numpy()).tolist() == [3, 4, 5]


def test_a_failed_step_is_its_own_and_a_lost_device_is_told_once_it_is_known(model, monkeypatch):
    errors, heard = [], []
    accelerator = replace(on(), broken=lambda: errors[-1] if errors else None)
    runner = DeviceRunner(model, 12, 16, accelerator, heard.append)
    segment = Segment("r", "t", None, (5,), 0, (0,), True, False)
    attend = attention.attend

    def fails(*arguments):
        raise RuntimeError("out of memory")

    for device_error in (None, "cuda:0: an illegal memory access was encountered"):
        errors += [device_error] if device_error else []
        monkeypatch.setattr(attention, "attend", fails)
        with pytest.raises(RuntimeError, match="out of memory"):
            runner.execute(StepPlan(1, (segment,)))
        monkeypatch.setattr(attention, "attend", attend)
        assert heard == errors
    assert runner.execute(StepPlan(1, (segment,))).failed == {}
    assert heard == errors


def test_a_model_that_the_kernels_cannot_compute_is_refused_with_its_name():
    odd = synthetic_model(synthetic_config(layers=1))
    wide = replace(odd, dtype=torch.float64)
    with pytest.raises(ConfigError, match=f"model {odd.name}: the Triton ops compute"):
        DeviceRunner(wide, 4, 16, on())
