"""A request that is understood, on its way to being let in: what the door, the books and the
worker need to know of it. Its tokens may be counted or only guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.config import Tenant
from engine.serving import shaped
from engine.serving.api.bodies import Asked
from engine.serving.api.seeds import seed_of
from engine.serving.flight import Flight
from engine.serving.pools import Pool
from telemetry.outbound.trace_context import TraceContext
from telemetry.proto import tenantscope_pb2 as pb


@dataclass(frozen=True, slots=True)
class Offer:
    """`n` choices are n requests of the pool; the prompt's tokens count with the first."""

    request_id: str
    tenant: Tenant
    pool: Pool
    key_id: str
    adapter: str | None
    asked: Asked
    prompt: tuple[int, ...]  # none while they are only guessed
    prompt_tokens: int
    arrived_s: float
    is_retry: bool
    mark: bytes  # its salted hash in the retry memory
    trace: TraceContext | None
    tell_waits: bool

    @property
    def max_tokens(self) -> int:
        """Of one choice."""
        return self.asked.room(self.prompt_tokens, self.pool.limits.max_context)

    @property
    def longest(self) -> int:
        """Tokens of one choice with its prompt."""
        return self.prompt_tokens + self.max_tokens

    def counted(self, prompt: tuple[int, ...], pool: Pool) -> Offer:
        """The same, once its tokens are known, in the pool that serves its tenant then."""
        return replace(self, prompt=prompt, prompt_tokens=len(prompt), pool=pool)

    def prompt_of(self, index: int) -> int:
        """The prompt's tokens as they are counted: with the first choice only."""
        return self.prompt_tokens if index == 0 else 0

    def id_of(self, index: int) -> str:
        return self.request_id if index == 0 else f"{self.request_id}-{index}"

    def book_offered(self, now_s: float) -> None:
        for i in range(self.asked.n):
            tokens = self.prompt_of(i) + self.max_tokens
            self.pool.book.offered(self.tenant.name, tokens, self.is_retry, now_s)

    def book_rejected(self, reason: str, now_s: float) -> None:
        for i in range(self.asked.n):
            self.pool.book.rejected(
                request_id=self.id_of(i),
                tenant=self.tenant.name,
                adapter=self.adapter,
                reason=reason,
                prompt_tokens=self.prompt_of(i),
                max_tokens=self.max_tokens,
                arrived_s=self.arrived_s,
                is_retry=self.is_retry,
                now_s=now_s,
                trace=self.trace,
            )

    def book_lost(self, flight: Flight, admitted_s: float, now_s: float) -> None:
        """Its worker went away with it."""
        self.pool.book.lost(
            request_id=flight.ask.request_id,
            tenant=self.tenant.name,
            adapter=self.adapter,
            prompt_tokens=self.prompt_tokens,
            max_tokens=self.max_tokens,
            output_tokens=flight.received,
            arrived_s=self.arrived_s,
            admitted_s=admitted_s,
            is_retry=self.is_retry,
            now_s=now_s,
            trace=self.trace,
        )

    def to_proto(self, index: int, admitted_s: float) -> pb.Ask:
        own, asked, limits = self.tenant, self.asked, self.pool.limits
        return pb.Ask(
            request_id=self.id_of(index),
            tenant=own.name,
            prompt=self.prompt,
            max_tokens=self.max_tokens,
            arrived_s=self.arrived_s,
            admitted_s=admitted_s,
            adapter=self.adapter or "",
            temperature=asked.temperature,
            seed=seed_of(asked.seed, index),
            ignore_eos=asked.ignore_eos,
            is_retry=self.is_retry,
            key_id=self.key_id,
            queue_timeout_s=own.queue_timeout_s or limits.queue_timeout_s or 0.0,
            deadline_s=own.deadline_s or limits.deadline_s or 0.0,
            traceparent=self.trace.header() if self.trace is not None else "",
            top_p=asked.top_p,
            logprobs=asked.logprobs,
            tell_waits=self.tell_waits,
            counted_with=self.request_id if index else "",
            **shaped.to_fields(asked.shaping),
        )
