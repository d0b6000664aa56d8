"""Settling: books what a step has produced, request by request where it must, else by the cohort.

Owns no state; decides nothing but which requests the step's tokens have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.memory.prefix import PrefixCache
from engine.scheduling.endings import Ending, Endings
from engine.scheduling.parts import Part
from engine.scheduling.plan import StepOutcome
from engine.scheduling.plan_cost import PlanCost
from engine.scheduling.request import Outcome, Request, State
from engine.scheduling.running import Running
from engine.scheduling.waiting import Waiting
from engine.scheduling.waits import WaitBook
from telemetry.ledger.ledger import Ledger
from telemetry.ledger.views import TenantWork


@dataclass(frozen=True, slots=True)
class Settled:
    """Tokens in order (none where nobody needs to know them), their number, and who ended."""

    tokens: tuple[tuple[str, int], ...]
    made: int
    ended: tuple[Ending, ...]


class Settling:
    def __init__(
        self,
        waiting: Waiting,
        running: Running,
        endings: Endings,
        prefix: PrefixCache | None,
        book: WaitBook,
        ledger: Ledger,
    ) -> None:
        self._waiting = waiting
        self._running = running
        self._endings = endings
        self._prefix = prefix
        self._book = book
        self._ledger = ledger

    def settle(
        self,
        outcome: StepOutcome,
        parts: Sequence[Part],
        cost: PlanCost | None,
        elapsed_s: float,
    ) -> Settled:
        """The step began `elapsed_s` ago and is over at the ledger's present instant."""
        now = self._ledger.now
        cohort, end = self._running.cohort, self._endings.end
        stall, scale = _stall(cost, elapsed_s)
        if stall:
            for part in parts:  # of rows that fail too: their time has passed like the others'
                if part.request.state is State.RUNNING:
                    part.request.stall_s += stall - part.cost_s * scale
        failed_prefill = failed_rows = 0  # planned, and nothing came of it
        for request_id, why in outcome.failed.items():
            failed = self._endings.live.get(request_id)
            if failed is not None:
                if failed in cohort:
                    failed.stall_s += stall
                    failed_rows += 1
                end(failed, Outcome.FAILED, why)
        work: dict[str, TenantWork] = {}
        made = len(cohort)
        sampled: list[Request] = []
        for part in parts:
            request = part.request
            if request.state is not State.RUNNING:
                failed_prefill += part.count
                continue
            done = work.get(request.tenant)
            if done is None:
                done = work[request.tenant] = TenantWork()
            self._computed(request, part, done)
            if part.samples:
                done.output += 1
                sampled.append(request)
        self._ledger.settle(
            work,
            cohort.rows_of if made else None,
            now,
            failed_prefill_tokens=failed_prefill,
            failed_decode_rows=failed_rows,
        )
        made += len(sampled)
        tokens = self._hand_out(sampled, outcome.tokens) if outcome.tokens is not None else []
        if cohort.rows:
            self._decoded(now, stall)
        for request in sampled:
            self._produced(request, now)
        for request_id, token in tokens:
            live = self._endings.live.get(request_id)
            if live is not None and token in live.ask.stop_tokens:
                end(live, Outcome.FINISHED, "stop")
        for request in sampled:
            if request.state is State.RUNNING:
                if request.produced >= request.ask.max_tokens:
                    end(request, Outcome.FINISHED, "length")
                else:
                    self._running.decodes(request)
        if cohort.rows:
            for request in cohort.finishing():
                if request.decoding_since >= 0:  # named twice when it left and came back
                    end(request, Outcome.FINISHED, "length")
        return Settled(tuple(tokens), made, self._endings.take())

    def _hand_out(self, sampled: list[Request], tokens: Mapping[str, int]) -> list[tuple[str, int]]:
        """Each row's token, where somebody wants to know it: decode rows, then first tokens."""
        out = []
        for rows in (self._running.cohort.rows.values(), sampled):
            for request in rows:
                token = tokens[request.ask.request_id]
                request.output.append(token)
                out.append((request.ask.request_id, token))
        return out

    # -- what a step did

    def _computed(self, request: Request, part: Part, done: TenantWork) -> None:
        start, stop = part.start, part.start + part.count
        high = request.high_water
        again = max(0, min(stop, high) - start)
        done.prompt += max(0, min(stop, request.prompt_tokens) - max(start, high))
        done.recomputed += again
        request.recomputed += again
        request.computed = stop
        if stop > high:
            request.high_water = stop
        if request.cached and request.first_token_s is None and part.samples:
            done.cached += request.cached
        if part.samples and self._prefix is not None and request.keys:
            request.shared = self._prefix.publish(
                request.keys, request.pages, request.shared, request.tenant, self._ledger.now
            )

    def _produced(self, request: Request, now: float) -> None:
        """A token was sampled at the end of a prefill: the first, or the first after a return."""
        ask = request.ask
        request.produced += 1
        self._waiting.counters.charge_output(request.tenant)
        self._waiting.queues.produced(request)
        self._waiting.policy.produced_first(request)
        if request.first_token_s is None:
            self._book.bring_up(request.waits)
            request.waits.had_token = True
            request.first_token_s = now
            self._ledger.first_token(ask.request_id, request.tenant, now - ask.arrived_s)
        elif request.last_token_s is not None:
            self._gap(request, now - request.last_token_s)
        request.last_token_s = now

    def _decoded(self, now: float, stall: float) -> None:
        """Every row of the cohort has a token more."""
        cohort, ledger = self._running.cohort, self._ledger
        smallest = ledger.smallest_gap_s
        fresh = list(cohort.fresh())
        for request in fresh:
            if request.last_token_s is not None:
                self._gap(request, now - request.last_token_s)
        gap = cohort.stepped(now, stall)
        if gap is not None and smallest is not None and gap > smallest:
            new = {r.sequence for r in fresh}
            for number, request in cohort.rows.items():
                if number not in new:
                    ledger.gap(request.ask.request_id, gap)
        self._waiting.counters.stepped()
        self._waiting.policy.stepped(1)

    def _gap(self, request: Request, gap: float) -> None:
        if request.max_gap_s is None or gap > request.max_gap_s:
            request.max_gap_s = gap
        smallest = self._ledger.smallest_gap_s
        if smallest is not None and gap > smallest:
            self._ledger.gap(request.ask.request_id, gap)


def _stall(cost: PlanCost | None, elapsed_s: float) -> tuple[float, float]:
    """Seconds of the step spent on prefill, and seconds passed a predicted second."""
    if cost is None or cost.predicted_s <= 0 or not cost.prefill_sum_s:
        return 0.0, 0.0
    scale = min(1.0, elapsed_s / cost.predicted_s)
    return cost.prefill_sum_s * scale, scale
