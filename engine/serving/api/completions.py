"""One request, from the caller's headers to its running answer. Owns admission's order of checks.

Order: who (401), what (400/413), which model (404), is there a worker (503); only then is the
request *offered* to the pool and counted, and from there on it is rejected or admitted: offered =
rejected + admitted. `n` choices are n requests of the pool, let in together or not at all; the
prompt's tokens count once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from engine import key_digest
from engine.clock import Clock
from engine.config import Settings, Tenant
from engine.scheduling.quota import Admitted, QuotaDoor, Refused
from engine.serving.api import bodies, openai, refusals, waits
from engine.serving.api.answer import Answer
from engine.serving.api.auth import Caller, KeyRing
from engine.serving.api.bodies import Asked
from engine.serving.api.catalogue import Catalogue
from engine.serving.api.choice import Choice
from engine.serving.api.intake import Intake, Tokenizer
from engine.serving.api.openai import ApiError
from engine.serving.api.retries import RetryMemory, says_retry
from engine.serving.api.seeds import seed_of
from engine.serving.api.shapes import ChatShape, CompletionShape
from engine.serving.front_book import FrontBook
from engine.serving.link import End, Flight, WorkerLink
from telemetry.outbound import trace_context
from telemetry.outbound.trace_context import TraceContext
from telemetry.proto import tenantscope_pb2 as pb

__all__ = ["Completions", "Tokenizer"]


@dataclass(frozen=True, slots=True)
class _Offer:
    """A request that is understood: what admission and the book need to know of it."""

    request_id: str
    tenant: Tenant
    key_id: str
    adapter: str | None
    asked: Asked
    prompt: tuple[int, ...]
    max_tokens: int  # a choice
    arrived_s: float
    is_retry: bool
    mark: bytes  # its salted hash in the retry memory
    trace: TraceContext | None
    tell_waits: bool

    @property
    def longest(self) -> int:
        """Tokens of one choice with its prompt."""
        return len(self.prompt) + self.max_tokens

    def prompt_of(self, index: int) -> int:
        """The prompt's tokens as they are counted: with the first choice only."""
        return len(self.prompt) if index == 0 else 0

    def id_of(self, index: int) -> str:
        return self.request_id if index == 0 else f"{self.request_id}-{index}"


class Completions:
    """POST /v1/completions and /v1/chat/completions. Lives on the front's event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        keys: KeyRing,
        catalogue: Catalogue,
        tokenizer: Tokenizer,
        door: QuotaDoor,
        book: FrontBook,
        link: WorkerLink,
    ) -> None:
        self._clock = clock
        self._keys = keys
        self._catalogue = catalogue
        self._tokenizer = tokenizer
        self._intake = Intake(settings, tokenizer)
        self._door = door
        self._book = book
        self._link = link
        self._pool = settings.limits
        self._retries = RetryMemory()
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
        arrived_s = self._clock.now()
        tenant, key_id, _ = self.caller(request)
        body = await self._intake.body(request)
        asked = bodies.parse_chat(body) if chat else bodies.parse_completion(body)
        adapter = self._catalogue.adapter(asked.model, tenant)
        prompt = await self._intake.tokens(asked)
        if not self._link.is_up:
            raise openai.worker_down()
        mark = self._retries.print_of(tenant.name, asked.model, asked.identity())
        offer = _Offer(
            request_id=f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
            tenant=tenant,
            key_id=key_id,
            adapter=adapter,
            asked=asked,
            prompt=prompt,
            max_tokens=asked.room(len(prompt), self._pool.max_context),
            arrived_s=arrived_s,
            is_retry=says_retry(request.headers) or self._retries.seen(mark, arrived_s),
            mark=mark,
            trace=trace_context.of_headers(request.headers.getlist(trace_context.HEADER)),
            tell_waits=waits.wanted(request.headers),
        )
        return self._admit(offer)

    def _admit(self, offer: _Offer) -> Answer:
        """From offered to handed over, with no await in between: nothing can change meanwhile."""
        now_s = self._clock.now()
        tenant = offer.tenant.name
        for i in range(offer.asked.n):
            tokens = offer.prompt_of(i) + offer.max_tokens
            self._book.offered(tenant, tokens, offer.is_retry, now_s)
        self._refuse_what_never_fits(offer, now_s)
        verdict = self._door.admit_together(
            tenant, len(offer.prompt), offer.max_tokens, offer.asked.n, now_s
        )
        if isinstance(verdict, Refused):
            raise self._refuse(offer, verdict, now_s)
        return self._answer(offer, verdict, now_s)

    def _answer(self, offer: _Offer, tickets: Sequence[Admitted], now_s: float) -> Answer:
        asked = offer.asked
        front_s = now_s - offer.arrived_s
        shape = ChatShape if asked.is_chat else CompletionShape
        return Answer(
            [self._choice(offer, i, ticket, now_s) for i, ticket in enumerate(tickets)],
            shape(
                offer.request_id,
                int(self._clock.base.unix(now_s)),
                asked.model,
                self._tokenizer.piece,
                asked.include_usage,
            ),
            stream=asked.stream,
            include_usage=asked.include_usage,
            headers={"x-request-id": offer.request_id}
            | refusals.limit_headers(self._door, offer.tenant, now_s),
            more_headers=partial(waits.headers, front_s) if offer.tell_waits else waits.none,
        )

    def _choice(self, offer: _Offer, index: int, ticket: Admitted, now_s: float) -> Choice:
        self._book.admitted(offer.tenant.name, ticket.tokens, now_s - offer.arrived_s, now_s)
        request_id = offer.id_of(index)
        flight = self._link.send(
            self._to_proto(offer, index, now_s),
            lambda flight, end: self._ended(offer, ticket, now_s, flight, end),
        )
        return Choice(
            index,
            flight,
            self._tokenizer.stream(),
            stop=offer.asked.stop,
            stop_tokens=frozenset() if offer.asked.ignore_eos else self._eos,
            let_go=lambda complete: self._link.abort(request_id, complete=complete),
        )

    def _refuse_what_never_fits(self, offer: _Offer, now_s: float) -> None:
        """What a worker's whole pool could not hold (context and buckets are the door's)."""
        status = self._link.status
        if status is None or not status.pages or offer.longest > self._pool.max_context:
            return
        own = status.adapter_pages.get(offer.adapter, 0) if offer.adapter else 0
        room = max(0, status.pages - own) * self._pool.page_tokens
        if offer.longest <= room:
            return
        self._book_rejection(offer, "impossible", now_s)
        beside = " beside its adapter" if own else ""
        raise ApiError(
            400,
            f"prompt + max_tokens = {offer.longest} tokens, and the pool holds {room}{beside}: "
            "send a shorter prompt or a smaller max_tokens",
            code="request_too_large",
            extra={"dimension": "impossible", "limit": room, "used": offer.longest},
            headers={"x-request-id": offer.request_id},
        )

    def _refuse(self, offer: _Offer, why: Refused, now_s: float) -> ApiError:
        self._book_rejection(offer, why.reason, now_s)
        if why.reason != "impossible":
            self._retries.note(offer.mark, now_s)
        error = refusals.refused(self._door, offer.tenant, why, now_s)
        error.headers["x-request-id"] = offer.request_id  # as its row in the store says it
        return error

    def _book_rejection(self, offer: _Offer, reason: str, now_s: float) -> None:
        for i in range(offer.asked.n):
            self._book.rejected(
                request_id=offer.id_of(i),
                tenant=offer.tenant.name,
                adapter=offer.adapter,
                reason=reason,
                prompt_tokens=offer.prompt_of(i),
                max_tokens=offer.max_tokens,
                arrived_s=offer.arrived_s,
                is_retry=offer.is_retry,
                now_s=now_s,
                trace=offer.trace,
            )

    def _ended(
        self, offer: _Offer, ticket: Admitted, admitted_s: float, flight: Flight, end: End
    ) -> None:
        """Once a choice, whether or not its caller is still there."""
        now_s = self._clock.now()
        if end.lost and not end.output_tokens:
            self._door.refund(ticket, now_s)  # nobody knows how far it came
        else:
            whole = end.output_tokens or end.outcome == "finished"
            computed = ticket.prompt_tokens if whole else end.computed_tokens
            prompt = min(ticket.prompt_tokens, computed)
            self._door.settle(ticket, end.output_tokens, now_s, prompt_tokens=prompt)
        if end.outcome in ("aborted", "timed_out"):
            self._retries.note(offer.mark, now_s)
        if end.lost:
            self._book.lost(
                request_id=flight.ask.request_id,
                tenant=offer.tenant.name,
                adapter=offer.adapter,
                prompt_tokens=len(offer.prompt),
                max_tokens=offer.max_tokens,
                output_tokens=flight.received,
                arrived_s=offer.arrived_s,
                admitted_s=admitted_s,
                is_retry=offer.is_retry,
                now_s=now_s,
                trace=offer.trace,
            )

    def _to_proto(self, offer: _Offer, index: int, admitted_s: float) -> pb.Ask:
        own, asked = offer.tenant, offer.asked
        return pb.Ask(
            request_id=offer.id_of(index),
            tenant=own.name,
            prompt=offer.prompt,
            max_tokens=offer.max_tokens,
            arrived_s=offer.arrived_s,
            admitted_s=admitted_s,
            adapter=offer.adapter or "",
            temperature=asked.temperature,
            seed=seed_of(asked.seed, index),
            ignore_eos=asked.ignore_eos,
            is_retry=offer.is_retry,
            key_id=offer.key_id,
            queue_timeout_s=own.queue_timeout_s or self._pool.queue_timeout_s or 0.0,
            deadline_s=own.deadline_s or self._pool.deadline_s or 0.0,
            traceparent=offer.trace.header() if offer.trace is not None else "",
            top_p=asked.top_p,
            logprobs=asked.logprobs,
            tell_waits=offer.tell_waits,
        )
