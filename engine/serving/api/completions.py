"""One request, from the caller's headers to its running answer. Owns admission's order of checks.

Order: who (401), what (400/413), which model (404), is there a worker (503); only then is the
request *offered* to the pool and counted, and from there on it is rejected or admitted: offered =
rejected + admitted. `n` choices are n requests of the pool, let in together or not at all; the
prompt's tokens count once.

A long prompt is tokenized only once it is known that it could be let in: a caller over its limits
must not use up the front's time. What is refused before is counted with a guess at its tokens.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request

from engine import key_digest
from engine.clock import Clock
from engine.scheduling.quota import Admitted, QuotaDoor, Refused
from engine.serving.api import bodies, openai, refusals, waits
from engine.serving.api.answer import Answer
from engine.serving.api.auth import Caller, KeyRing
from engine.serving.api.brake import Brake
from engine.serving.api.catalogue import Catalogue
from engine.serving.api.choice import Choice
from engine.serving.api.intake import Guess, Intake, Tokenizer
from engine.serving.api.offer import Offer
from engine.serving.api.openai import ApiError
from engine.serving.api.retries import RetryMemory, says_retry
from engine.serving.api.shapes import ChatShape, CompletionShape
from engine.serving.api.turns import TurnRefused
from engine.serving.flight import End, Flight
from engine.serving.link import WorkerLink
from engine.serving.pools import Pools
from telemetry.outbound import trace_context

__all__ = ["Completions", "Tokenizer"]


class _Bill:
    """What of one answer's prompt has not been charged yet: no token of it is charged twice."""

    __slots__ = ("_left",)

    def __init__(self, prompt_tokens: int) -> None:
        self._left = prompt_tokens

    def prompt(self, computed: int) -> int:
        """What to charge, of so many that were computed."""
        charged = min(self._left, computed)
        self._left -= charged
        return charged


class Completions:
    """POST /v1/completions and /v1/chat/completions. Lives on the front's event loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        keys: KeyRing,
        catalogue: Catalogue,
        tokenizer: Tokenizer,
        door: QuotaDoor,
        pools: Pools,
    ) -> None:
        self._clock = clock
        self._keys = keys
        self._catalogue = catalogue
        self._tokenizer = tokenizer
        self.intake = Intake(tokenizer)
        self._door = door
        self._pools = pools
        self._retries = RetryMemory()
        self._brake = Brake()
        self._eos = frozenset(tokenizer.eos_ids)

    def caller(self, request: Request) -> Caller:
        """Raises ApiError (401)."""
        caller = self._keys.caller_of(request.headers.get("authorization"))
        if caller is None:
            raise openai.unauthorized()
        if not caller.opens(self._clock.base.unix(self._clock.now())):
            raise openai.key_expired(key_digest.instant(caller.until_unix_s or 0.0))
        return caller

    async def answer(self, request: Request, *, chat: bool = False) -> Answer:
        """Admit a request and hand back its running answer. Raises ApiError."""
        whose = ""
        try:
            caller = self.caller(request)
            whose = caller.tenant.name
            return await self._let_in(request, caller, chat)
        except ApiError:
            await self._brake.hold(whose)
            raise

    async def _let_in(self, request: Request, caller: Caller, chat: bool) -> Answer:
        arrived_s = self._clock.now()
        tenant, key_id = caller.tenant, caller.key_id
        body = await self.intake.body(request, self._pools.of(tenant).limits.max_context)
        asked = bodies.parse_chat(body) if chat else bodies.parse_completion(body)
        adapter = self._catalogue.adapter(asked.model, tenant)
        most = self._pools.of(tenant).limits.max_context
        guess = self.intake.guess(asked, most)
        prompt = self.intake.count(asked) if guess is None else ()
        mark = self._retries.print_of(tenant.name, asked.model, asked.identity(most))
        offer = Offer(
            request_id=f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            tenant=tenant,
            pool=self._pools.of(tenant),
            key_id=key_id,
            adapter=adapter,
            asked=asked,
            prompt=prompt,
            prompt_tokens=len(prompt) if guess is None else guess.likely,
            arrived_s=arrived_s,
            is_retry=says_retry(request.headers) or self._retries.seen(mark, arrived_s),
            mark=mark,
            trace=trace_context.of_headers(request.headers.getlist(trace_context.HEADER)),
            tell_waits=waits.wanted(request.headers),
        )
        if guess is not None:
            offer = await self._count(offer, guess)
        return self._admit(offer)

    async def _count(self, offer: Offer, guess: Guess) -> Offer:
        """Tokenize a long prompt, unless it is sure that it will not be let in."""
        if not offer.pool.answers:
            raise openai.worker_down()
        now_s = self._clock.now()
        asked = offer.asked
        room = asked.room(guess.least, offer.pool.limits.max_context)
        if asked.is_chat and asked.max_tokens is None and asked.n > 1:
            room = 1  # by default the longer the prompt, the less each of its answers may have
        why = self._door.foresee(offer.tenant.name, guess.least, guess.likely, room, asked.n, now_s)
        if why is not None:
            offer.book_offered(now_s)
            raise self._refuse(offer, why, now_s)
        try:
            prompt = await self.intake.count_in_turn(offer.tenant.name, asked)
        except TurnRefused as full:
            offer.book_offered(now_s)
            offer.book_rejected("queue", now_s)
            self._retries.note(offer.mark, now_s)
            error = refusals.front_full(self._door, offer.tenant, full, now_s)
            error.headers["x-request-id"] = offer.request_id
            raise error from None
        # It took a while: the tenant may be served elsewhere by now.
        return offer.counted(prompt, self._pools.of(offer.tenant))

    def _admit(self, offer: Offer) -> Answer:
        """From offered to handed over, with no await in between: nothing can change meanwhile."""
        link = offer.pool.route(offer.adapter)
        if link is None:
            raise openai.worker_down()
        now_s = self._clock.now()
        offer.book_offered(now_s)
        self._refuse_what_never_fits(offer, link, now_s)
        verdict = self._door.admit_together(
            offer.tenant.name, offer.prompt_tokens, offer.max_tokens, offer.asked.n, now_s
        )
        if isinstance(verdict, Refused):
            raise self._refuse(offer, verdict, now_s)
        return self._answer(offer, link, verdict, now_s)

    def _answer(
        self, offer: Offer, link: WorkerLink, tickets: Sequence[Admitted], now_s: float
    ) -> Answer:
        asked = offer.asked
        offer.pool.went(offer.adapter, link)
        front_s = now_s - offer.arrived_s
        bill = _Bill(offer.prompt_tokens)
        shape = ChatShape if asked.is_chat else CompletionShape
        return Answer(
            [self._choice(offer, link, bill, i, t, now_s) for i, t in enumerate(tickets)],
            shape(
                offer.request_id,
                int(self._clock.base.unix(now_s)),
                asked.model,
                self._tokenizer.piece,
                asked.include_usage,
            ),
            stream=asked.stream,
            include_usage=asked.include_usage,
            usage_so_far=asked.usage_so_far,
            headers={"x-request-id": offer.request_id}
            | refusals.limit_headers(self._door, offer.tenant, now_s),
            more_headers=partial(waits.headers, front_s) if offer.tell_waits else waits.none,
        )

    def _choice(
        self,
        offer: Offer,
        link: WorkerLink,
        bill: _Bill,
        index: int,
        ticket: Admitted,
        now_s: float,
    ) -> Choice:
        front_s = now_s - offer.arrived_s
        offer.pool.book.admitted(offer.tenant.name, ticket.tokens, front_s, now_s)
        flight = link.send(
            offer.to_proto(index, now_s),
            lambda flight, end: self._ended(offer, bill, ticket, now_s, flight, end),
        )
        return Choice(
            index,
            flight,
            self._tokenizer.stream,
            stop=offer.asked.stop,
            stop_tokens=frozenset() if offer.asked.ignore_eos else self._eos,
        )

    def _refuse_what_never_fits(self, offer: Offer, link: WorkerLink, now_s: float) -> None:
        """What a worker's whole pool could not hold (context and buckets are the door's)."""
        status, limits = link.status, offer.pool.limits
        if status is None or not status.pages or offer.longest > limits.max_context:
            return
        own = status.adapter_pages.get(offer.adapter, 0) if offer.adapter else 0
        room = max(0, status.pages - own) * limits.page_tokens
        if offer.longest <= room:
            return
        offer.book_rejected("impossible", now_s)
        beside = " beside its adapter" if own else ""
        raise ApiError(
            400,
            f"prompt + max_tokens = {offer.longest} tokens, and the pool holds {room}{beside}: "
            "send a shorter prompt or a smaller max_tokens",
            code="request_too_large",
            extra={"dimension": "impossible", "limit": room, "used": offer.longest},
            headers={"x-request-id": offer.request_id},
        )

    def _refuse(self, offer: Offer, why: Refused, now_s: float) -> ApiError:
        offer.book_rejected(why.reason, now_s)
        if why.reason != "impossible":
            self._retries.note(offer.mark, now_s)
        error = refusals.refused(self._door, offer.tenant, why, now_s)
        error.headers["x-request-id"] = offer.request_id  # as its row in the store says it
        return error

    def _ended(
        self,
        offer: Offer,
        bill: _Bill,
        ticket: Admitted,
        admitted_s: float,
        flight: Flight,
        end: End,
    ) -> None:
        """Once a choice, whether or not its caller is still there."""
        now_s = self._clock.now()
        if end.lost and not end.output_tokens:
            self._door.refund(ticket, now_s)  # nobody knows how far it came
        else:
            # The prompt is counted with the first choice; where that one ended before it was
            # computed, the worker says so of another, which carries no reservation of its own.
            whole = ticket.prompt_tokens and (end.output_tokens or end.outcome == "finished")
            computed = ticket.prompt_tokens if whole else end.computed_tokens
            prompt = bill.prompt(computed)
            self._door.settle(ticket, end.output_tokens, now_s, prompt_tokens=prompt)
        if end.outcome in ("aborted", "timed_out"):
            self._retries.note(offer.mark, now_s)
        if end.lost:
            offer.book_lost(flight, admitted_s, now_s)
