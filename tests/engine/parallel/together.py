"""Ranks as threads of the test: the real runner, followers and channels; only the sums are a table
around which the threads meet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from engine.model.config import ModelConfig, synthetic_config
from engine.model.loaders import LoadedModel
from engine.parallel.adapters import CutAdapter, CutReader
from engine.parallel.cut import Cut
from engine.parallel.follower import Follower
from engine.parallel.model import cut_model
from engine.parallel.runner import Peer, TensorParallelRunner
from engine.parallel.wire import Channel, channels
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import Segment, StepPlan

torch.set_num_threads(1)  # the suite runs on several workers: one core each
PAGE_TOKENS = 16
MEET_S = 30.0


def small_config(**other) -> ModelConfig:
    """Six heads on three KV heads: cut into 1 or 3."""
    shape = {"hidden": 96, "layers": 2, "heads": 6, "kv_heads": 3, "head_dim": 32, "ff": 192}
    return synthetic_config(**{**shape, **other})


class Table:
    """Where threads lay their parts down, and take the sum from."""

    def __init__(self, of: int) -> None:
        self._all_there = threading.Barrier(of, timeout=MEET_S)
        self._parts: list[torch.Tensor | None] = [None] * of
        self.sums = 0

    def seat(self, rank: int) -> Callable[[torch.Tensor], None]:
        def join(tensor: torch.Tensor) -> None:
            self._parts[rank] = tensor.clone()
            self._all_there.wait()
            total = torch.stack([p for p in self._parts if p is not None]).sum(0)
            self._all_there.wait()  # all have read before anybody comes again
            tensor.copy_(total)
            self.sums += rank == 0

        return join

    def leave(self) -> None:
        """Who waits, and who comes later, has an error: as when a process of a group is gone."""
        self._all_there.abort()


class Together:
    """`of` ranks of a model; `runner` is what a core would be given. `lost`: why they parted."""

    def __init__(self, model: LoadedModel, of: int, pages: int = 64) -> None:
        self.model = model
        self.of = of
        self.table = Table(of)
        self.lost: list[str] = []
        self.failed: list[Exception] = []
        self.parts: list[TorchRunner] = []
        self.far: list[tuple[Channel, Channel]] = []
        self._threads: list[threading.Thread] = []
        peers = [self._peer(rank, pages) for rank in range(1, of)]
        own = TorchRunner(cut_model(model, Cut(0, of)), pages, PAGE_TOKENS, join=self.table.seat(0))
        self.parts.insert(0, own)
        self.runner = TensorParallelRunner(own, peers, lost=self.lost.append)

    def read(self, folder: Path) -> CutAdapter:
        config, dtype = self.model.config, self.model.dtype
        return CutReader(config, dtype, self.runner.page_bytes, self.of)(folder)

    def close(self) -> None:
        self.runner.close()
        self.table.leave()
        for thread in self._threads:
            thread.join(MEET_S)
            assert not thread.is_alive()

    def _peer(self, rank: int, pages: int) -> Peer:
        steps, far_steps = channels()
        loads, far_loads = channels()
        for channel in (steps, loads):
            channel.patient(MEET_S)
        part = cut_model(self.model, Cut(rank, self.of))
        runner = TorchRunner(part, pages, PAGE_TOKENS, join=self.table.seat(rank))
        self.parts.append(runner)
        far = (Channel(far_steps), Channel(far_loads))
        self.far.append(far)
        follower = Follower(runner, *far)

        def follow() -> None:
            try:
                follower.follow()
            except Exception as e:
                self.failed.append(e)
                for channel in far:  # as the end of the process would
                    channel.close()
                self.table.leave()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        self._threads += [thread, follower.start_loading(self.failed.append)]
        return Peer(rank, steps, loads)


@contextmanager
def together(model: LoadedModel, of: int, **options) -> Iterator[Together]:
    ranks = Together(model, of, **options)
    try:
        yield ranks
    finally:
        ranks.close()


def segment(
    name: str, tokens: Sequence[int], pages: Sequence[int], start: int = 0, adapter=None, **more
) -> Segment:
    return Segment(
        name, "t", adapter, tuple(tokens), start, tuple(pages), True, len(tokens) > 1, **more
    )


def greedy(runner, wanted: Sequence[tuple[str | None, Sequence[int]]], steps: int) -> list:
    """Each (adapter, prompt): its prompt in a step with the others', then `steps` tokens one by
    one. Of every sequence its tokens and the logits they were taken from."""
    each = -(-(max(len(p) for _, p in wanted) + steps) // PAGE_TOKENS)
    texts = [list(p) for _, p in wanted]
    done = [0] * len(wanted)
    told: list[list[torch.Tensor]] = [[] for _ in wanted]
    for number in range(steps):
        rows = [
            segment(str(i), text[done[i] :], range(i * each, (i + 1) * each), done[i], adapter)
            for i, ((adapter, _), text) in enumerate(zip(wanted, texts, strict=True))
        ]
        plan = StepPlan(number, tuple(rows))
        logits = runner.logits(plan)
        outcome = runner.execute(plan)
        assert outcome.failed == {}
        for i, text in enumerate(texts):
            told[i].append(logits[str(i)])
            done[i] = len(text)
            text.append(outcome.tokens[str(i)])
    return [
        (text[len(prompt) :], torch.stack(rows))
        for (_, prompt), text, rows in zip(wanted, texts, told, strict=True)
    ]
