"""One worker of a pool as the front sees it: does it answer, does it move? Owns its link.

What its comings and goings mean to the pool's book is said here; who goes where is `pools`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.clock import Clock
from engine.serving.api.ready import Progress
from engine.serving.flight import Flight
from engine.serving.front_book import FrontBook
from engine.serving.launch import WorkerPlace
from engine.serving.link import WorkerLink
from engine.serving.silence import Silence
from telemetry.proto import tenantscope_pb2 as pb

_log = logging.getLogger(__name__)

OnUp = Callable[[WorkerPlace], None]

# Silent for so long after a question has run out of its 5 s, nobody waits for it any more: by then
# the supervisor has said that it gives no sign of life (`vigil.SAID_S`).
GIVEN_UP_S = 10.0


class Replica:
    """For the front's event loop. `take_over` is asked of a flight whose worker is lost; `charged`
    hears what this one charged to whom."""

    def __init__(
        self,
        where: WorkerPlace,
        name: str,
        clock: Clock,
        book: FrontBook,
        *,
        on_up: OnUp,
        take_over: Callable[[Flight], bool],
        charged: Callable[[WorkerLink, pb.Charges], None],
        stalled_s: float,
    ) -> None:
        """`name`: as a person calls the worker."""
        self.place = where
        self._name = f"the {name}"
        self._clock = clock
        self._book = book
        self._on_up = on_up
        self._progress = Progress(stalled_s)
        self._down_s: float | None = None
        self._silent_s: float | None = None  # since when it is known to be
        self._silence, self._seen_s = Silence(), 0.0
        self._given_up = False
        self.was_up = False
        self.stalls = False  # it is silent, or work waits there and nothing comes
        self.link = WorkerLink(
            where.address,
            on_up=self._up,
            on_down=self._down,
            take_over=take_over,
            on_charges=lambda told: charged(self.link, told),
            on_late=self._ended_late,
        )

    @property
    def answers(self) -> bool:
        """A request could be handed over now, and be heard."""
        return self.link.is_up and not self._given_up

    def observe(self, now_s: float) -> None:
        """Now and then. Who is silent for too long is left by all who can be."""
        self._progress.observe(self.link.heard, self.link.open_requests, now_s)
        self.stalls = self.link.silent or self._progress.stalled(now_s) is not None
        passed_s, self._seen_s = now_s - self._seen_s, now_s
        if not self.link.silent:
            self._is_heard(now_s)
        elif self._silent_s is None:
            self._silent_s, self._silence = now_s, Silence()
            self._book.worker_silent(now_s, who=self._name)
        elif self._silence.turn(False, passed_s) >= GIVEN_UP_S:
            # First: nobody may be handed over to where it comes from. And every time anew: whoever
            # had a part of an answer may have hung up since.
            self._given_up = True
            lost, moved = self.link.hand_over()
            if lost or moved:
                self._book.worker_left(lost, now_s, who=self._name, moved=moved)

    def why_not_ready(self, now_s: float) -> str | None:
        """Why it gets nowhere, in a sentence; None when it does."""
        self.observe(now_s)
        if not self.link.is_up:
            return "the pool's worker does not answer"
        if self.link.silent:
            return "the pool's worker gives no sign of life: is its process stopped?"
        stalled_s = self._progress.stalled(now_s)
        if stalled_s is not None:
            return f"work waits, and no token has come for {stalled_s:.0f} s"
        return None

    def _is_heard(self, now_s: float) -> None:
        if self._silent_s is not None and self.link.is_up:  # else its end is told
            self._book.worker_back(now_s - self._silent_s, now_s, who=self._name)
        self._silent_s, self._given_up = None, False

    def _ended_late(self, tenant: str, tokens: int) -> None:
        """It has woken up, and books an outcome of a request that began again on another worker,
        which will book one too: it was asked twice."""
        now_s = self._clock.now()
        self._book.offered(tenant, tokens, True, now_s)
        self._book.admitted(tenant, tokens, 0.0, now_s)

    def _up(self, status: pb.StatusReply) -> None:
        now_s = self._clock.now()
        self.was_up = True
        if self.place.replica == 0:
            self._book.worker_up(status.run_id, now_s)
        if self._down_s is not None:
            self._book.worker_back(now_s - self._down_s, now_s, who=self._name)
            self._down_s = None
        self._on_up(self.place)

    def _down(self, lost: int, moved: int) -> None:
        self._down_s = now_s = self._clock.now()
        _log.warning(
            "%s went away; %d open requests failed, %d began again", self._name, lost, moved
        )
        self._book.worker_down(lost, now_s, who=self._name, moved=moved)
