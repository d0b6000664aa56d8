"""Executes plans on several ranks at once: rank 0 here, the others told what rank 0 does.

Owns the order in which ranks are told and the moment at which they are given up; the arena and the
sums are the ranks' own. Scheduler, pool and ledger see one runner and one list of page ids: a page
of the pool is `ranks` parts, one in each rank's arena.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from engine.errors import ConfigError, RankError
from engine.parallel.adapters import CutAdapter
from engine.parallel.wire import Channel, Done, Drop, Load, Step, packed, rows_of
from engine.runner.torch_runner import Computed, TorchRunner
from engine.scheduling.plan import HostAdapter, Segment, StepOutcome, StepPlan


@dataclass(frozen=True, slots=True)
class Peer:
    """Another rank, as rank 0 reaches it. Its channels' transfers end in time."""

    rank: int
    steps: Channel
    loads: Channel


@dataclass(frozen=True, slots=True)
class RankLoad:
    """What a load cost one rank: bytes of its pages, seconds to receive and copy them."""

    rank: int
    bytes_: int
    took_s: float


class TensorParallelRunner:
    """Rank 0's part of a model, and its peers (`Runner` and `AdapterDevice`).

    Rank 0 alone has the output head, whole: it chooses the tokens, and the next plan tells them to
    all. `kernels`: sentences for whoever starts the engine, as `TorchRunner`'s.
    """

    def __init__(
        self,
        own: TorchRunner,
        peers: Sequence[Peer],
        *,
        backend: str = "gloo",
        lost: Callable[[str], None] = lambda why: None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`lost` hears, once and on any thread, why the ranks are no longer together: nothing can
        be computed after that. `on_close` ends what the peers run in."""
        self._own = own
        self._peers = tuple(peers)
        self._lost = lost
        self._on_close = on_close
        self._broken: str | None = None
        self._breaking = threading.Lock()
        self._loading = threading.Lock()  # answers come in the order of the loads
        self._telling = threading.Lock()
        self._numbers = itertools.count(1)
        self._serials: dict[str, int] = {}  # of each resident key
        self.last_load: tuple[RankLoad, ...] = ()
        self.kernels = (
            *own.kernels,
            f"tensor parallel: {self.ranks} ranks over {backend}, each with {own.page_bytes} of a "
            f"page's {self.page_bytes} bytes; the output head is rank 0's, whole",
        )

    @property
    def ranks(self) -> int:
        return 1 + len(self._peers)

    @property
    def page_bytes(self) -> int:
        """Of a page of the pool: its parts on all ranks together."""
        return self.ranks * self._own.page_bytes

    @property
    def pages(self) -> int:
        return self._own.pages

    @property
    def page_tokens(self) -> int:
        return self._own.page_tokens

    @property
    def max_context(self) -> int:
        """Most tokens of one sequence that the model's positions allow."""
        return self._own.max_context

    def execute(self, plan: StepPlan) -> StepOutcome:
        """As `TorchRunner.execute`. Raises RankError once the ranks are not together."""
        segments, failed = self._own.sift(plan)
        if not segments:
            return StepOutcome({}, failed)
        return self._own.answer(self._together(segments), failed)

    def logits(self, plan: StepPlan) -> dict[str, torch.Tensor]:
        """As `TorchRunner.logits`: for tests and measurements."""
        segments, failed = self._own.sift(plan)
        if failed:
            name, why = next(iter(failed.items()))
            raise ValueError(f"request {name}: {why}")
        return self._own.logits_from(self._together(segments))

    def copy_in(self, adapter: HostAdapter, pages: Sequence[int]) -> None:
        """Each rank copies its share into `pages` of its own arena, all at the same time; returns
        when all have. Safe beside `execute`, as `TorchRunner.copy_in`. Raises ConfigError for an
        adapter that was cut or packed for others, RankError as `execute`."""
        if not isinstance(adapter, CutAdapter):
            raise ConfigError(f"{type(adapter).__name__} was not made by a CutReader")
        if len(adapter.shares) != self.ranks:
            raise ConfigError(
                f"adapter {adapter.key[:12]} was cut for {len(adapter.shares)} ranks, here are "
                f"{self.ranks}"
            )
        with self._loading:
            self._check()
            serial = next(self._numbers)
            try:
                self._send(serial, adapter, pages)
                took_s, refused = self._copy_own(adapter, pages)
                answers = [self._answer(peer, serial) for peer in self._peers]
            except (OSError, EOFError) as e:
                raise self._lose(f"a load: {_said(e)}") from e
            odd = [a.refusal for a in answers if (a.refusal is None) != (refused is None)]
            if odd:
                raise self._lose(f"a load: rank 0 says {refused}, another rank {odd[0]}")
            if refused is not None:
                raise refused
            self._serials[adapter.key] = serial
            times = (took_s, *(a.took_s for a in answers))
            self.last_load = tuple(
                RankLoad(rank, share.image.nbytes, s)
                for rank, (share, s) in enumerate(zip(adapter.shares, times, strict=True))
            )

    def drop(self, key: str) -> None:
        """Forget an adapter on all ranks. An unknown key is no error. The others hear of it before
        the next step, and may do it while pages of it are written to: no step reads them."""
        self._own.drop(key)
        serial = self._serials.pop(key, None)
        if serial is not None and self._broken is None:
            try:
                self._tell(Drop(key, serial))
            except OSError as e:
                self._lose(f"a drop: {_said(e)}")

    def give_up(self, why: str) -> None:
        """The ranks are no longer together; from any thread."""
        self._lose(why)

    def close(self) -> None:
        """End the other ranks. Nothing is computed after that."""
        with self._breaking:
            self._broken = self._broken or "the ranks were closed"
        for peer in self._peers:
            peer.steps.close()
            peer.loads.close()
        self._on_close()

    def _together(self, segments: Sequence[Segment]) -> Computed:
        self._check()
        try:
            self._tell(Step(rows_of(segments, self.page_tokens)))
            return self._own.compute(segments)
        except Exception as e:
            # Whatever it was: the others wait at a sum that this rank will not come to.
            raise self._lose(f"a step: {_said(e)}") from e

    def _tell(self, order: Step | Drop) -> None:
        said = packed(order)
        with self._telling:
            for peer in self._peers:
                peer.steps.post(said)

    def _send(self, serial: int, adapter: CutAdapter, pages: Sequence[int]) -> None:
        for peer in self._peers:
            share = adapter.shares[peer.rank]
            order = Load(serial, tuple(pages), replace(share, image=share.image[:0]))
            peer.loads.send(order, share.image.data.cast("B"))

    def _copy_own(
        self, adapter: CutAdapter, pages: Sequence[int]
    ) -> tuple[float, ConfigError | None]:
        began_s = time.perf_counter()
        try:
            self._own.copy_in(adapter.shares[0], pages)
        except ConfigError as e:
            return 0.0, e
        return time.perf_counter() - began_s, None

    @staticmethod
    def _answer(peer: Peer, serial: int) -> Done:
        done: Done = peer.loads.recv()
        if done.serial != serial:
            raise EOFError(f"rank {peer.rank} answers load {done.serial}, asked for {serial}")
        return done

    def _check(self) -> None:
        if self._broken is not None:
            raise RankError(self._broken)

    def _lose(self, why: str) -> RankError:
        with self._breaking:
            first, self._broken = self._broken is None, self._broken or why
        if first:
            self._lost(why)
        return RankError(self._broken)


def _said(e: BaseException) -> str:
    return f"{type(e).__name__}: {e}"
