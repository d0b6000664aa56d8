"""A model on several ranks answers as on one, and says so when it no longer can."""

from __future__ import annotations

import pytest
import torch
from together import PAGE_TOKENS, greedy, segment, small_config, together

from engine.errors import ConfigError, RankError
from engine.model.config import MODULES
from engine.model.loaders import synthetic_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.parallel.follower import Follower
from engine.parallel.wire import Channel, Done, Drop, Load, channels
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import StepPlan

PAGES = 64


@pytest.fixture(scope="module")
def model():
    whole = synthetic_model(small_config(biased=("q_proj", "o_proj", "down_proj")))
    for name, tensor in whole.weights.items():
        if name.endswith("bias"):
            whole.weights.put(name, torch.randn(tensor.shape) * 0.3)
    return whole


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    where = tmp_path_factory.mktemp("adapters")
    kinds = {3: MODULES, 20: ("q_proj", "o_proj", "up_proj", "down_proj"), 40: ("k_proj", "v_proj")}
    return [make_adapter(where / f"r{r}", model.config, r, kinds[r], seed=r) for r in kinds]


@pytest.fixture(scope="module")
def one(model):
    return TorchRunner(model, PAGES, PAGE_TOKENS)


@pytest.fixture
def three(model):
    with together(model, 3, pages=PAGES) as ranks:
        yield ranks


def prompt(length: int, seed: int) -> list[int]:
    return [(7 * i + 13 * seed) % 500 for i in range(length)]


def test_three_ranks_answer_as_one_with_and_without_adapters(one, three, folders) -> None:
    end = PAGES
    keys = []
    for folder in folders:
        cut = three.read(folder)
        whole = read_adapter(folder, one.model.config, one.model.dtype, one.page_bytes)
        end -= max(cut.pages, whole.pages)
        three.runner.copy_in(cut, range(end, end + cut.pages))
        one.copy_in(whole, range(end, end + whole.pages))
        keys.append(cut.key)
    wanted = [(None, prompt(1, 5)), *((k, prompt(20 + 9 * i, i)) for i, k in enumerate(keys))]
    wanted.append((None, prompt(33, 9)))
    ours, theirs = greedy(three.runner, wanted, 5), greedy(one, wanted, 5)
    for (tokens, logits), (expected, rows) in zip(ours, theirs, strict=True):
        assert float((logits - rows).abs().max()) <= 1e-4
        assert tokens == expected
    assert three.failed == []
    # Two sums a layer, in each of the ten steps: nothing else goes between the ranks' tensors.
    assert three.table.sums == 2 * one.model.config.layers * 10


def test_each_rank_pages_its_share_of_the_same_pages_and_no_more(one, three, folders) -> None:
    assert three.runner.page_bytes == one.page_bytes
    assert [p.page_bytes * 3 for p in three.parts] == [one.page_bytes] * 3
    assert {p.pages for p in three.parts} == {three.runner.pages} == {PAGES}
    cut = three.read(folders[0])
    pages = range(PAGES - cut.pages, PAGES)
    for part in three.parts:
        part.arena.bytes.fill_(7)
    three.runner.copy_in(cut, pages)
    for part, share in zip(three.parts, cut.shares, strict=True):
        assert torch.equal(part.arena.bytes[list(pages)], torch.from_numpy(share.image))
        assert (part.arena.bytes[: pages[0]] == 7).all()
    assert [load.bytes_ for load in three.runner.last_load] == [cut.pages * one.page_bytes // 3] * 3
    assert [load.rank for load in three.runner.last_load] == [0, 1, 2]


def test_an_adapter_that_is_dropped_and_comes_again_elsewhere_still_answers(three, folders) -> None:
    first, other = three.read(folders[0]), three.read(folders[1])
    wanted = [(first.key, prompt(18, 2))]
    three.runner.copy_in(first, range(40, 40 + first.pages))
    before = greedy(three.runner, wanted, 3)
    three.runner.drop(first.key)
    three.runner.copy_in(other, range(40, 40 + other.pages))
    gone = three.runner.execute(StepPlan(1, (segment("a", [1, 2], [0], adapter=first.key),)))
    assert "not on the device" in gone.failed["a"]
    three.runner.copy_in(first, range(20, 20 + first.pages))
    after = greedy(three.runner, wanted, 3)
    assert before[0][0] == after[0][0]
    assert torch.equal(before[0][1], after[0][1])
    assert three.lost == three.failed == []


def test_rows_that_cannot_be_computed_fail_alone_and_are_told_to_no_other_rank(three) -> None:
    good, bad = segment("good", [1, 2, 3], [0]), segment("bad", [1, 10_000], [1])
    outcome = three.runner.execute(StepPlan(1, (bad, good)))
    assert list(outcome.failed) == ["bad"]
    assert list(outcome.tokens) == ["good"]
    sums = three.table.sums
    assert list(three.runner.execute(StepPlan(2, (bad,))).failed) == ["bad"]
    assert three.table.sums == sums


def test_logprobs_and_drawn_tokens_come_from_rank_0_alone(one, three) -> None:
    rows = (
        segment("hot", [4, 5, 6], [0], temperature=1.0, seed=3),
        segment("told", [7, 8], [1], logprobs=3),
    )
    ours, theirs = three.runner.execute(StepPlan(1, rows)), one.execute(StepPlan(1, rows))
    assert ours.tokens == theirs.tokens
    assert ours.logprobs is not None
    top, expected = ours.logprobs["told"].top, theirs.logprobs["told"].top
    assert [t for t, _ in top] == [t for t, _ in expected]
    assert [p for _, p in top] == pytest.approx([p for _, p in expected], abs=1e-4)


def test_a_rank_that_ends_is_said_once_and_nothing_is_computed_after_it(three) -> None:
    plan = StepPlan(1, (segment("a", [1, 2, 3], [0]),))
    assert three.runner.execute(plan).failed == {}
    three.parts[2].compute = lambda segments: 1 / 0
    with pytest.raises(RankError, match="a step"):
        three.runner.execute(plan)
    assert any(isinstance(e, ZeroDivisionError) for e in three.failed)
    with pytest.raises(RankError, match="a step"):
        three.runner.execute(plan)
    three.runner.give_up("again")
    assert len(three.lost) == 1


def test_an_error_of_rank_0_before_the_last_sum_parts_the_ranks_and_one_after_it_does_not(
    three, monkeypatch
) -> None:
    plan = StepPlan(1, (segment("a", [1, 2, 3], [0]),))
    with monkeypatch.context() as patch:
        patch.setattr(three.parts[0]._next, "choose", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            three.runner.execute(plan)
    assert three.runner.execute(plan).failed == {}
    assert three.lost == []
    monkeypatch.setattr(three.parts[0], "compute", lambda segments: 1 / 0)
    with pytest.raises(RankError, match="ZeroDivisionError"):
        three.runner.execute(plan)
    assert len(three.lost) == 1


def test_a_load_to_a_rank_that_is_gone_is_an_error_and_not_a_wait(three, folders) -> None:
    for channel in three.far[1]:
        channel.close()
    cut = three.read(folders[0])
    with pytest.raises(RankError, match="a load"):
        three.runner.copy_in(cut, range(cut.pages))
    assert len(three.lost) == 1
    three.runner.drop(cut.key)


def test_an_adapter_cut_for_others_is_refused_by_all_and_the_ranks_go_on(
    model, three, folders
) -> None:
    whole = read_adapter(folders[0], model.config, model.dtype, three.runner.page_bytes)
    with pytest.raises(ConfigError, match="not made by a CutReader"):
        three.runner.copy_in(whole, range(whole.pages))
    cut = three.read(folders[0])
    with pytest.raises(ConfigError, match=r"needs .* pages"):
        three.runner.copy_in(cut, range(cut.pages + 1))
    three.runner.copy_in(cut, range(cut.pages))
    assert three.lost == []


class Kept:
    """A part that only remembers."""

    def __init__(self) -> None:
        self.there: dict[str, tuple[int, ...]] = {}

    def compute(self, segments) -> None:
        raise AssertionError("no step was asked for")

    def copy_in(self, adapter, pages) -> None:
        self.there[adapter.key] = tuple(pages)

    def drop(self, key: str) -> None:
        del self.there[key]


def test_a_drop_that_comes_late_leaves_the_copy_that_came_after_it(three, folders) -> None:
    (steps, far_steps), (loads, far_loads) = channels(), channels()
    kept = Kept()
    follower = Follower(kept, Channel(far_steps), Channel(far_loads))
    thread = follower.start_loading(lambda e: None)
    share = three.read(folders[2]).shares[1]

    def load(serial: int, at: int) -> None:
        order = Load(serial, tuple(range(at, at + share.pages)), share)
        loads.send(order, memoryview(share.image).cast("B"))
        done = loads.recv()
        assert isinstance(done, Done)
        assert (done.serial, done.refusal) == (serial, None)

    load(1, 0)
    load(2, 30)
    steps.send(Drop(share.key, 1))  # of the first copy: it was on its way meanwhile
    steps.send(Drop("unknown", 9))
    steps.close()
    follower.follow()
    assert kept.there[share.key][0] == 30
    loads.close()
    thread.join(10)
    assert not thread.is_alive()
