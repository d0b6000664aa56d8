"""Starts the ranks of a worker, brings them together, and ends them. Knows no plans.

The other ranks are processes of this one: they end when it does, however it does, and when one of
them ends by itself the others are given up: what they had computed together is gone.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from engine.config_pools import PoolSpec
from engine.errors import RankError
from engine.model.loaders import LoadedModel
from engine.parallel.cut import Cut
from engine.parallel.model import cut_model
from engine.parallel.runner import Peer, TensorParallelRunner
from engine.parallel.sums import Sums
from engine.parallel.wire import Here, Meet, Meeting, Ready, Start, channels
from engine.runner.torch_runner import TorchRunner
from engine.serving.process import Child, obituary

T = TypeVar("T")

# Ranks on another device are refused (`engine.serving.device`): theirs would be nccl.
BACKEND = "gloo"
START_S = 1800.0  # a rank may have to read a large model
_LAST_WORDS_S = 2.0
_STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Ranks:
    """What the ranks of a worker are to be: those of the pool's replica, each with `pages` of
    `page_tokens` tokens. `model` is a name as `load_model` takes it. One that is silent for
    `timeout_s` in a step or a load is given up."""

    pool: PoolSpec
    replica: int
    model: str
    pages: int
    page_tokens: int
    timeout_s: float


def open_ranks(
    ranks: Ranks,
    whole: LoadedModel,
    *,
    lost: Callable[[str], None],
    say: Callable[[str], None] = lambda text: None,
) -> TensorParallelRunner:
    """`ranks.pool.tp` ranks, together and ready; this process is rank 0. `lost`: see
    `TensorParallelRunner`.

    Raises ConfigError for a model that cannot be cut so or pages too small, RankError when a rank
    does not start.
    """
    of = ranks.pool.tp
    part = cut_model(whole, Cut(0, of))
    # The meeting's folder is gone once all have met: a worker that is killed leaves none behind.
    with tempfile.TemporaryDirectory(prefix="tenantscope-ranks-") as folder, ExitStack() as undo:
        meeting = Meeting(str(Path(folder) / "meeting"), of, BACKEND, ranks.timeout_s)
        others: list[_Other] = []
        undo.callback(_end_all, others)
        for rank in range(1, of):
            start = Start(
                rank,
                ranks.pool,
                ranks.replica,
                ranks.model,
                whole.dtype_name,
                ranks.pages,
                ranks.page_tokens,
                meeting,
            )
            say(f"starting rank {rank} of {of}")
            other = _Other(rank, say)
            others.append(other)
            other.order(start)
            # One after the other: each holds the whole model for as long as it cuts its part off.
            here = other.hear(Here)
            if here.model_hash != whole.hash:
                raise RankError(
                    f"{other.name} read another model than rank 0 ({here.model_hash[:12]}, not "
                    f"{whole.hash[:12]}): has {ranks.model} been changed? Start again"
                )
        for other in others:
            other.order(Meet())
        sums = Sums(meeting, 0)
        undo.callback(sums.close)
        own = TorchRunner(part, ranks.pages, ranks.page_tokens, join=sums)
        for other in others:
            ready = other.hear(Ready)
            if ready.page_bytes != own.page_bytes:
                raise RankError(
                    f"{other.name} has pages of {ready.page_bytes} bytes, rank 0 of "
                    f"{own.page_bytes}: the ranks do not run the same version"
                )
            other.patient(ranks.timeout_s)
        ending = undo.pop_all()
    runner = TensorParallelRunner(
        own, [o.peer for o in others], backend=BACKEND, lost=lost, on_close=ending.close
    )
    for other in others:
        other.watch(runner.give_up)
    return runner


class _Other:
    """One rank but the first: its process, and the channels to it."""

    def __init__(self, rank: int, say: Callable[[str], None]) -> None:
        self.name = f"rank {rank}"
        self._lost: Callable[[str], None] | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ending = False
        steps, far_steps = channels()
        loads, far_loads = channels()
        self.peer = Peer(rank, steps, loads)
        with far_steps, far_loads:
            fds = (far_steps.fileno(), far_loads.fileno())
            self._child = Child(
                self.name,
                "engine.parallel.rank",
                [str(fd) for fd in fds],
                keep_fds=fds,
                on_error_line=self._error_line,
                on_progress=lambda text: say(f"{self.name}: {text}"),
                on_exit=self._exited,
            )
        self.patient(START_S)

    def order(self, what: Start | Meet) -> None:
        """Raises RankError, as `hear`."""
        try:
            self.peer.steps.send(what)
        except OSError:
            raise self._gone() from None

    def hear(self, kind: type[T]) -> T:
        """What it says next, at its start. Raises RankError with its last words when it ends."""
        try:
            said: T = self.peer.steps.recv()
        except TimeoutError:
            raise RankError(
                obituary(self._child, f"was not ready within {START_S:.0f} s")
            ) from None
        except (EOFError, OSError):
            raise self._gone() from None
        if not isinstance(said, kind):
            raise RankError(f"{self.name} says {type(said).__name__}, not {kind.__name__}")
        return said

    def patient(self, timeout_s: float) -> None:
        self.peer.steps.patient(timeout_s)
        self.peer.loads.patient(timeout_s)

    def watch(self, lost: Callable[[str], None]) -> None:
        """`lost` hears, with its last words, that it has ended by itself."""
        with self._lock:
            self._lost = lost
            gone = self._ended.is_set()
        if gone:
            lost(self._obituary())

    def end(self) -> None:
        with self._lock:
            self._ending = True
        self.peer.steps.close()
        self.peer.loads.close()
        self._child.stop(_STOP_S)

    def _exited(self) -> None:
        with self._lock:
            self._ended.set()
            lost = None if self._ending else self._lost
        if lost is not None:
            lost(self._obituary())

    def _gone(self) -> RankError:
        self._ended.wait(_LAST_WORDS_S)
        return RankError(self._obituary())

    def _obituary(self) -> str:
        if self._child.poll() is None:
            return f"{self.name} closed its channel"
        return obituary(self._child, f"ended with {self._child.how()}{self._child.by_whom()}")

    def _error_line(self, line: str) -> None:
        print(f"{self.name}: {line}", file=sys.stderr, flush=True)


def _end_all(others: list[_Other]) -> None:
    """All at once: their ends are waited for together."""
    threads = [threading.Thread(target=o.end, name=f"end-{o.name}") for o in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
