"""Endings: what is given back, charged back and written down when a request is over.

Owns who is alive and the list of those who ended; the one way out of the scheduler, at any point
of a request's life and for every reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from engine.clock import ClockBase
from engine.scheduling import life
from engine.scheduling.request import Outcome, Request, State
from engine.scheduling.running import Running
from engine.scheduling.waiting import Waiting
from engine.scheduling.waits import SCHEDULED, WaitBook
from telemetry.ledger.ledger import Ledger
from telemetry.ledger.views import Ended

UNLOADED = "its adapter has been unloaded"


@dataclass(frozen=True, slots=True)
class Ending:
    """A request has ended. `reason` is stop, length, or a sentence about what went wrong."""

    request_id: str
    outcome: Outcome
    reason: str
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None
    request: Request  # ended: it stands still from now on

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were computed or found in the cache, and are counted with it."""
        request = self.request
        return max(0, min(request.high_water, self.prompt_tokens) - request.counted_from)


class Endings:
    def __init__(
        self,
        waiting: Waiting,
        running: Running,
        book: WaitBook,
        ledger: Ledger,
        base: ClockBase,
    ) -> None:
        self._waiting = waiting
        self._running = running
        self._book = book
        self._ledger = ledger
        self._base = base
        self.live: dict[str, Request] = {}
        self._ended: list[Ending] = []
        self._shared: dict[str, list[Request]] = {}  # whose prompts are counted with whose

    def count_with(self, request: Request, first: str) -> None:
        """The request, one of several answers to one prompt, has its prompt counted and charged
        with the first of them: what it computes of it was had before. Where that one is over, it
        counts its own."""
        if first in self.live:
            self._leave_uncounted(request)
            self._shared.setdefault(first, []).append(request)

    @staticmethod
    def _leave_uncounted(request: Request) -> None:
        request.charged_prompt = True
        request.high_water = request.counted_from = request.prompt_tokens

    def take(self) -> tuple[Ending, ...]:
        """Who has ended since last asked, in order."""
        ended, self._ended = tuple(self._ended), []
        return ended

    def unloaded(self, request: Request) -> None:
        """Its adapter is gone and will not come back for it."""
        self.end(request, Outcome.FAILED, UNLOADED)

    def _inherit(self, request: Request, never: int) -> None:
        """With the one that the prompt was counted with ends, `never` of its tokens uncomputed:
        the next of the answers counts those."""
        others = [
            r for r in self._shared.pop(request.ask.request_id, ()) if r.state is not State.ENDED
        ]
        if not others or not never:
            return
        heir, tenant = others[0], request.tenant
        heir.counted_from = request.prompt_tokens - never
        heir.high_water = max(heir.counted_from, min(heir.computed, heir.prompt_tokens))
        self._waiting.counters.charge_prompt(tenant, never)
        self._waiting.queues.charged(heir, never)
        self._waiting.policy.changed(tenant)
        if others[1:]:
            self._shared[heir.ask.request_id] = others[1:]

    def end(self, request: Request, outcome: Outcome, reason: str) -> None:
        """Pages, slot, references and its place in the queue are back when this returns; prompt
        tokens that were never computed are charged back."""
        now = self._ledger.now
        ask, tenant = request.ask, request.tenant
        if request.state is State.RUNNING:
            self._running.leave(request, now)
            self._waiting.move(request, SCHEDULED)  # from the bench, if it sat there
        else:
            self._waiting.take_out(request)
            self._waiting.policy.changed(tenant)
        self._book.bring_up(request.waits)
        if outcome is not Outcome.FINISHED and request.last_token_s is not None:
            self._ledger.gap(ask.request_id, now - request.last_token_s)
        if request.charged_prompt:
            never = request.prompt_tokens - min(request.high_water, request.prompt_tokens)
            if never:
                self._waiting.counters.refund_prompt(tenant, never)
                self._waiting.queues.charged(request, -never)
                self._waiting.policy.changed(tenant)
            if self._shared:
                self._inherit(request, never)
        elif self._shared:
            self._inherit(request, request.prompt_tokens)
        request.state = State.ENDED
        self._waiting.policy.ended(request, outcome is Outcome.FINISHED)
        del self.live[ask.request_id]
        tpot = life.tpot_s(request)
        self._ledger.ended(
            Ended(
                ask.request_id,
                tenant,
                outcome.value,
                tpot,
                request.max_gap_s,
                request.produced,
            ),
            partial(life.record, request, outcome, now, self._ledger.identity, self._base),
        )
        ttft = request.first_token_s
        self._ended.append(
            Ending(
                ask.request_id,
                outcome,
                reason,
                request.prompt_tokens,
                request.produced,
                None if ttft is None else ttft - ask.arrived_s,
                request,
            )
        )
