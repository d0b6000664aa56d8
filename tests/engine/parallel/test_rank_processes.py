"""Ranks as processes over gloo: they answer as one, start together, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from together import PAGE_TOKENS, greedy, segment

from engine.config import PoolSpec
from engine.errors import ModelError, RankError
from engine.model.loaders import LoadedModel, load_model
from engine.model.lora import read_adapter
from engine.model.made_adapters import make_adapter
from engine.parallel.adapters import CutReader
from engine.parallel.ranks import Ranks, open_ranks
from engine.parallel.runner import TensorParallelRunner
from engine.runner.torch_runner import TorchRunner
from engine.scheduling.plan import StepPlan
from engine.serving.processes import ServeProcesses
from tests.engine.serving.test_serve_hung import until
from tests.engine.serving.test_serve_whole import SETTINGS, ask

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("ranks")]

PAGES = 120
SOON_S = 30.0
PLAN = StepPlan(1, (segment("a", [1, 2, 3], [0]),))


class Heard:
    """Why the ranks parted."""

    def __init__(self) -> None:
        self.why: list[str] = []
        self._said = threading.Event()

    def __call__(self, why: str) -> None:
        self.why.append(why)
        self._said.set()

    def wait(self) -> str:
        assert self._said.wait(SOON_S)
        return self.why[0]


@contextmanager
def ranks(
    model: LoadedModel, of: int, name: str, timeout_s: float = 60.0
) -> Iterator[tuple[TensorParallelRunner, Heard]]:
    heard = Heard()
    asked = Ranks(PoolSpec("p", tp=of), 0, name, PAGES, PAGE_TOKENS, timeout_s)
    runner = open_ranks(asked, model, lost=heard)
    try:
        yield runner, heard
    finally:
        runner.close()
        assert rank_pids(os.getpid()) == []


def rank_pids(parent: int) -> list[int]:
    """Processes of ranks whose parent is this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            is_rank = b"engine.parallel.rank" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if is_rank and int(stat[1]) == parent and stat[0] != "Z":
            found.append(int(folder.name))
    return sorted(found)


@pytest.fixture(scope="module")
def synthetic() -> LoadedModel:
    return load_model("synthetic", "float32")


def answers_alike(model: LoadedModel, of: int, name: str, tmp_path: Path, tokens: int) -> None:
    folders = [make_adapter(tmp_path / f"r{r}", model.config, r, seed=r) for r in (4, 16)]
    one = TorchRunner(model, PAGES, PAGE_TOKENS)
    with ranks(model, of, name) as (cut, heard):
        assert cut.page_bytes == one.page_bytes
        end, keys = PAGES, []
        for folder in folders:
            whole = read_adapter(folder, model.config, model.dtype, one.page_bytes)
            shares = CutReader(model.config, model.dtype, cut.page_bytes, of)(folder)
            end -= shares.pages
            one.copy_in(whole, range(end, end + whole.pages))
            cut.copy_in(shares, range(end, end + shares.pages))
            keys.append(whole.key)
        wanted = [
            (key, [(31 * i + 7 * n) % 500 for i in range(length)])
            for n, (key, length) in enumerate([(keys[0], 40), (None, 1), (keys[1], 21), (None, 33)])
        ]
        ours, theirs = greedy(cut, wanted, tokens), greedy(one, wanted, tokens)
        assert heard.why == []
    for (tokens_, logits), (expected, rows) in zip(ours, theirs, strict=True):
        assert float((logits - rows).abs().max()) <= 1e-3
        assert tokens_ == expected


def test_two_processes_answer_as_one(synthetic, tmp_path) -> None:
    answers_alike(synthetic, 2, "synthetic", tmp_path, tokens=12)


def test_three_processes_answer_as_one_with_smollm2(tmp_path) -> None:
    try:
        model = load_model("smollm2-135m", "float32")
    except ModelError as e:
        pytest.skip(f"SmolLM2-135M cannot be had here: {e}")
    answers_alike(model, 3, "smollm2-135m", tmp_path, tokens=8)


def test_bfloat16_ranks_sum_in_bfloat16_and_stay_near_one_process(tmp_path) -> None:
    model = load_model("synthetic", "bfloat16")
    one = TorchRunner(model, PAGES, PAGE_TOKENS)
    with ranks(model, 2, "synthetic") as (cut, _):
        ours, theirs = cut.logits(PLAN)["a"], one.logits(PLAN)["a"]
    assert torch.isfinite(ours).all()
    assert float((ours - theirs).abs().max()) <= 0.1 * float(theirs.abs().max())


def test_a_rank_that_is_killed_is_told_with_its_signal_while_nobody_computes(synthetic) -> None:
    with ranks(synthetic, 2, "synthetic") as (cut, heard):
        assert cut.execute(PLAN).failed == {}
        (pid,) = rank_pids(os.getpid())
        os.kill(pid, signal.SIGKILL)
        assert "rank 1 process ended with signal 9" in heard.wait()
        with pytest.raises(RankError, match="signal 9"):
            cut.execute(PLAN)


def test_a_rank_that_is_stopped_ends_the_step_in_time_and_not_never(synthetic) -> None:
    with ranks(synthetic, 2, "synthetic", timeout_s=2.0) as (cut, heard):
        assert cut.execute(PLAN).failed == {}
        (pid,) = rank_pids(os.getpid())
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(RankError, match="a step"):
                cut.execute(PLAN)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert heard.wait().startswith("a step")


def test_a_rank_that_cannot_start_is_told_with_its_last_words(synthetic, tmp_path) -> None:
    with (
        pytest.raises(RankError, match=r"(?s)rank 1 process ended with exit code 1.*nowhere"),
        ranks(synthetic, 2, str(tmp_path / "nowhere")),
    ):
        pass
    assert rank_pids(os.getpid()) == []


def test_a_rank_that_reads_another_model_is_refused(synthetic) -> None:
    with (
        pytest.raises(RankError, match="rank 1 read another model than rank 0"),
        ranks(replace(synthetic, hash="0" * 64), 2, "synthetic"),
    ):
        pass
    assert rank_pids(os.getpid()) == []


def test_ranks_end_with_the_process_that_started_them_however_it_ends() -> None:
    script = f"""
import os
from engine.config import PoolSpec
from engine.model.loaders import load_model
from engine.parallel.ranks import Ranks, open_ranks
asked = Ranks(PoolSpec("p", tp=2), 0, "synthetic", {PAGES}, {PAGE_TOKENS}, 60.0)
runner = open_ranks(asked, load_model("synthetic", "float32"), lost=print)
print("here", flush=True)
input()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "here\n"
    (pid,) = rank_pids(owner.pid)
    watched = os.pidfd_open(pid)
    owner.kill()
    owner.wait()
    try:
        signal_at_end = threading.Event()
        threading.Thread(target=lambda: (_until_gone(watched), signal_at_end.set())).start()
        assert signal_at_end.wait(SOON_S)
    finally:
        os.close(watched)


def _until_gone(pidfd: int) -> None:
    import select

    select.select([pidfd], [], [])


def test_a_served_pool_of_two_ranks_answers_as_one_of_one_and_survives_a_lost_rank(
    tmp_path: Path,
) -> None:
    import queue

    def text_of(response) -> str:
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["text"]

    with ServeProcesses(SETTINGS, tmp_path / "one") as running:
        expected = text_of(ask(running))
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ServeProcesses(
        SETTINGS.with_tp(2),
        tmp_path / "two",
        progress=lines.put,
        on_line=lambda name, line: lines.put(f"[{name}] {line}"),
    ) as running:
        assert text_of(ask(running)) == expected
        workers = running._workers
        assert workers is not None
        (pid,) = rank_pids(workers.keepers[0].child.pid)
        os.kill(pid, signal.SIGKILL)
        heard = until(lines, "the worker process is back")
        for _ in range(3000):
            again = ask(running)
            if again.status_code == 200:
                break
            assert again.status_code == 503
        assert text_of(again) == expected
    words = "\n".join(heard)
    assert "a rank is lost: the rank 1 process ended with signal 9" in words
