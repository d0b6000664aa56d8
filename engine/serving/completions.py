"""One completion, from the caller's headers to the last byte. Owns admission's order of checks.

Order: who (401), what (400/413), which model (404), is there a worker (503); only then is the
request *offered* to the pool and counted, and from there on it is rejected or admitted: offered =
rejected + admitted. Prompt text goes to the tokenizer and nowhere else.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from engine.clock import Clock
from engine.config import Settings, Tenant
from engine.scheduling.quota import Admitted, QuotaDoor, Refused
from engine.serving import openai
from engine.serving.answer import Answer, Decoder
from engine.serving.auth import Caller, KeyRing
from engine.serving.catalogue import Catalogue
from engine.serving.front_book import FrontBook
from engine.serving.link import End, Flight, WorkerLink
from engine.serving.openai import ApiError, CompletionRequest
from engine.serving.retries import RetryMemory, says_retry
from telemetry.outbound import trace_context
from telemetry.outbound.trace_context import TraceContext
from telemetry.proto import tenantscope_pb2 as pb

_LEAST_BODY_BYTES = 1 << 20
_BODY_BYTES_PER_TOKEN = 16  # room for the longest allowed prompt, as text or as ids
_INLINE_CHARACTERS = 16_384  # longer prompts are tokenized off the event loop


class Tokenizer(Protocol):
    """Text to ids and back (see `engine.model.text`)."""

    @property
    def eos_ids(self) -> Sequence[int]: ...
    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def stream(self) -> Decoder: ...


@dataclass(frozen=True, slots=True)
class _Offer:
    """A request that is understood: what admission and the book need to know of it."""

    request_id: str
    tenant: Tenant
    key_id: str
    adapter: str | None
    asked: CompletionRequest
    prompt: tuple[int, ...]
    arrived_s: float
    is_retry: bool
    mark: bytes  # its salted hash in the retry memory
    trace: TraceContext | None

    @property
    def tokens(self) -> int:
        return len(self.prompt) + self.asked.max_tokens


class Completions:
    """POST /v1/completions. Lives on the front's event loop."""

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
        self._door = door
        self._book = book
        self._link = link
        self._pool = settings.limits
        self._body_bytes = max(
            _LEAST_BODY_BYTES, settings.limits.max_context * _BODY_BYTES_PER_TOKEN
        )
        self._retries = RetryMemory()
        self._eos = frozenset(tokenizer.eos_ids)

    def caller(self, request: Request) -> Caller:
        """Raises ApiError (401)."""
        caller = self._keys.caller_of(request.headers.get("authorization"))
        if caller is None:
            raise openai.unauthorized()
        return caller

    async def answer(self, request: Request) -> Answer:
        """Admit a request and hand back its running answer. Raises ApiError."""
        arrived_s = self._clock.now()
        tenant, key_id = self.caller(request)
        asked = openai.parse_completion(await self._body(request))
        adapter = self._catalogue.adapter(asked.model, tenant)
        prompt = await self._tokenize(asked.prompt)
        if not self._link.is_up:
            raise openai.worker_down()
        mark = self._retries.print_of(tenant.name, asked.model, asked.prompt)
        offer = _Offer(
            request_id=f"cmpl-{uuid.uuid4().hex}",
            tenant=tenant,
            key_id=key_id,
            adapter=adapter,
            asked=asked,
            prompt=prompt,
            arrived_s=arrived_s,
            is_retry=says_retry(request.headers) or self._retries.seen(mark, arrived_s),
            mark=mark,
            trace=trace_context.of_headers(request.headers.getlist(trace_context.HEADER)),
        )
        return self._admit(offer)

    def _admit(self, offer: _Offer) -> Answer:
        """From offered to handed over, with no await in between: nothing can change meanwhile."""
        now_s = self._clock.now()
        tenant = offer.tenant.name
        self._book.offered(tenant, offer.tokens, offer.is_retry, now_s)
        self._refuse_what_never_fits(offer, now_s)
        verdict = self._door.admit(tenant, len(offer.prompt), offer.asked.max_tokens, now_s)
        if isinstance(verdict, Refused):
            raise self._refuse(offer, verdict, now_s)
        self._book.admitted(tenant, offer.tokens, now_s - offer.arrived_s, now_s)
        flight = self._link.send(
            self._to_proto(offer, now_s),
            lambda flight, end: self._ended(offer, verdict, now_s, flight, end),
        )
        return Answer(
            flight,
            openai.Shape(
                offer.request_id,
                int(self._clock.base.unix(now_s)),
                offer.asked.model,
                offer.asked.include_usage,
            ),
            self._tokenizer.stream(),
            stop_tokens=frozenset() if offer.asked.ignore_eos else self._eos,
            stream=offer.asked.stream,
            headers={"x-request-id": offer.request_id} | self._limits(offer.tenant, now_s),
            leave=lambda: self._link.abort(offer.request_id),
        )

    def _refuse_what_never_fits(self, offer: _Offer, now_s: float) -> None:
        """What a worker's whole pool could not hold (context and buckets are the door's)."""
        status = self._link.status
        if status is None or not status.pages or offer.tokens > self._pool.max_context:
            return
        own = status.adapter_pages.get(offer.adapter, 0) if offer.adapter else 0
        room = max(0, status.pages - own) * self._pool.page_tokens
        if offer.tokens <= room:
            return
        self._book_rejection(offer, "impossible", now_s)
        beside = " beside its adapter" if own else ""
        raise ApiError(
            400,
            f"prompt + max_tokens = {offer.tokens} tokens, and the pool holds {room}{beside}: "
            "send a shorter prompt or a smaller max_tokens",
            code="request_too_large",
            extra={"dimension": "impossible", "limit": room, "used": offer.tokens},
        )

    def _refuse(self, offer: _Offer, refused: Refused, now_s: float) -> ApiError:
        self._book_rejection(offer, refused.reason, now_s)
        facts: dict[str, Any] = {
            "dimension": refused.reason,
            "limit": _plain(refused.limit),
            "used": _plain(refused.used),
        }
        if refused.is_estimate:
            facts["retry_after_is_estimate"] = True
        if refused.reason == "impossible":
            return ApiError(400, refused.sentence, code="request_too_large", extra=facts)
        self._retries.note(offer.mark, now_s)
        headers = self._limits(offer.tenant, now_s)
        if refused.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, refused.retry_after_s))
        return ApiError(
            429,
            refused.sentence,
            kind="rate_limit_error",
            code="rate_limit_exceeded",
            headers=headers,
            extra=facts,
        )

    def _book_rejection(self, offer: _Offer, reason: str, now_s: float) -> None:
        self._book.rejected(
            request_id=offer.request_id,
            tenant=offer.tenant.name,
            adapter=offer.adapter,
            reason=reason,
            prompt_tokens=len(offer.prompt),
            max_tokens=offer.asked.max_tokens,
            arrived_s=offer.arrived_s,
            is_retry=offer.is_retry,
            now_s=now_s,
            trace=offer.trace,
        )

    def _ended(
        self, offer: _Offer, ticket: Admitted, admitted_s: float, flight: Flight, end: End
    ) -> None:
        """Once a request, whether or not its caller is still there."""
        now_s = self._clock.now()
        if end.lost and not end.output_tokens:
            self._door.refund(ticket, now_s)  # nobody knows how far it came
        else:
            whole = end.output_tokens or end.outcome == "finished"
            prompt = ticket.prompt_tokens if whole else end.computed_tokens
            self._door.settle(ticket, end.output_tokens, now_s, prompt_tokens=prompt)
        if end.outcome in ("aborted", "timed_out"):
            self._retries.note(offer.mark, now_s)
        if end.lost:
            self._book.lost(
                request_id=offer.request_id,
                tenant=offer.tenant.name,
                adapter=offer.adapter,
                prompt_tokens=len(offer.prompt),
                max_tokens=offer.asked.max_tokens,
                output_tokens=flight.received,
                arrived_s=offer.arrived_s,
                admitted_s=admitted_s,
                is_retry=offer.is_retry,
                now_s=now_s,
                trace=offer.trace,
            )

    def _to_proto(self, offer: _Offer, admitted_s: float) -> pb.Ask:
        own = offer.tenant
        return pb.Ask(
            request_id=offer.request_id,
            tenant=own.name,
            prompt=offer.prompt,
            max_tokens=offer.asked.max_tokens,
            arrived_s=offer.arrived_s,
            admitted_s=admitted_s,
            adapter=offer.adapter or "",
            temperature=offer.asked.temperature,
            seed=offer.asked.seed,
            ignore_eos=offer.asked.ignore_eos,
            is_retry=offer.is_retry,
            key_id=offer.key_id,
            queue_timeout_s=own.queue_timeout_s or self._pool.queue_timeout_s or 0.0,
            deadline_s=own.deadline_s or self._pool.deadline_s or 0.0,
            traceparent=offer.trace.header() if offer.trace is not None else "",
        )

    def _limits(self, tenant: Tenant, now_s: float) -> dict[str, str]:
        """`x-ratelimit-*` of the dimensions that have a limit."""
        levels = self._door.levels(tenant.name, now_s)
        headers: dict[str, str] = {}
        for what, limit, left in (
            ("requests", tenant.rpm, levels.rpm),
            ("tokens", tenant.tpm, levels.tpm),
        ):
            if limit is not None and left is not None:
                headers[f"x-ratelimit-limit-{what}"] = str(limit)
                headers[f"x-ratelimit-remaining-{what}"] = str(max(0, int(left)))
        return headers

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared) > self._body_bytes:
            raise self._too_long(int(declared))
        parts, total = [], 0
        async for part in request.stream():
            total += len(part)
            if total > self._body_bytes:
                raise self._too_long(total)
            parts.append(part)
        return b"".join(parts)

    def _too_long(self, size: int) -> ApiError:
        return ApiError(
            413,
            f"the body has {size} bytes or more, and the most allowed is {self._body_bytes}",
            code="body_too_large",
            extra={"limit": self._body_bytes, "used": size},
        )

    async def _tokenize(self, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(prompt, str):
            if len(prompt) > _INLINE_CHARACTERS:
                tokens = tuple(await asyncio.to_thread(self._tokenizer.encode, prompt))
            else:
                tokens = tuple(self._tokenizer.encode(prompt))
            if not tokens:
                raise ApiError(400, "prompt: it holds no token", param="prompt")
            return tokens
        vocab = self._tokenizer.vocab_size
        for position, token in enumerate(prompt):
            if not 0 <= token < vocab:
                raise ApiError(
                    400,
                    f"prompt[{position}] = {str(token)[:20]}: "
                    f"expected a token id from 0 to {vocab - 1}",
                    param="prompt",
                )
        return prompt


def _plain(number: float) -> float | int:
    return int(number) if number == int(number) else number
