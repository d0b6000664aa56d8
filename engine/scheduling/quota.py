"""Quotas at the door: requests and tokens per minute, concurrency, bounded queues.

Token buckets, taken in one step: all dimensions allow or none is charged. Prompt + max_tokens are
reserved at admission and settled to the real count; a rejection charges nothing. Pure: the clock
(monotonic) is passed in; a limit of None is none, 0 is blocked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.config import Settings, Tenant

MINUTE_S = 60.0
# A float refill must not miss the amount by a rounding error, or a retry made exactly when told
# would be refused.
_ROUNDING = 1e-6
CONCURRENCY_RETRY_S = 2  # an estimate: nobody knows when a running request will end


@dataclass(slots=True)
class _Bucket:
    """Capacity = one minute's worth; refills evenly."""

    limit: float
    level: float
    since_s: float

    def at(self, now: float) -> float:
        passed = max(0.0, now - self.since_s)
        return min(self.limit, self.level + self.limit * passed / MINUTE_S)

    def take(self, amount: float, now: float) -> None:
        self.level = self.at(now) - amount
        self.since_s = max(now, self.since_s)

    def wait_for(self, amount: float, now: float) -> int | None:
        """Whole seconds until `amount` is there; None = never (more than it holds)."""
        if amount > self.limit:
            return None
        missing = amount - self.at(now)
        return max(1, math.ceil(missing * MINUTE_S / self.limit))


@dataclass(frozen=True, slots=True)
class Admitted:
    """A reservation. Give it back with `settle` or `refund`, once."""

    tenant: str
    tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not: the dimension, its limit, what of it is used, when to come back (None = never)."""

    reason: str
    limit: float
    used: float
    retry_after_s: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Levels:
    """What is left in the buckets (None = no limit) and how many requests are under way."""

    rpm: float | None
    tpm: float | None
    concurrency: int


@dataclass(slots=True)
class _State:
    tenant: Tenant
    rpm: _Bucket | None
    tpm: _Bucket | None
    running: int = 0


class QuotaDoor:
    """All tenants' quotas of one front. One thread."""

    def __init__(self, settings: Settings, now_s: float = 0.0) -> None:
        self._limits = settings.limits
        self._running = 0
        self._states = {
            t.name: _State(t, _bucket(t.rpm, now_s), _bucket(t.tpm, now_s))
            for t in settings.tenants
        }

    def admit(
        self, tenant: str, prompt_tokens: int, max_tokens: int, now_s: float
    ) -> Admitted | Refused:
        state = self._states[tenant]
        tokens = prompt_tokens + max_tokens
        refusal = self._impossible(state, tokens) or self._full(state)
        if refusal is None:
            over = [r for r in self._over(state, tokens, now_s) if r is not None]
            # The client must wait for every dimension, so the longest wait is the honest one.
            refusal = max(over, key=_wait_of, default=None)
        if refusal is not None:
            return refusal
        if state.rpm is not None:
            state.rpm.take(1, now_s)
        if state.tpm is not None:
            state.tpm.take(tokens, now_s)
        state.running += 1
        self._running += 1
        return Admitted(tenant, tokens, prompt_tokens)

    def settle(self, ticket: Admitted, output_tokens: int, now_s: float) -> None:
        """The request has ended with this many tokens: what was reserved beyond comes back."""
        state = self._leave(ticket)
        if state.tpm is not None:
            unused = ticket.tokens - ticket.prompt_tokens - output_tokens
            state.tpm.take(-unused, now_s)
            state.tpm.level = min(state.tpm.level, state.tpm.limit)

    def refund(self, ticket: Admitted, now_s: float) -> None:
        """The request never produced anything: all its tokens come back. The request itself
        stays counted: it was made."""
        state = self._leave(ticket)
        if state.tpm is not None:
            state.tpm.take(-ticket.tokens, now_s)
            state.tpm.level = min(state.tpm.level, state.tpm.limit)

    def levels(self, tenant: str, now_s: float) -> Levels:
        state = self._states[tenant]
        return Levels(
            state.rpm.at(now_s) if state.rpm else None,
            state.tpm.at(now_s) if state.tpm else None,
            state.running,
        )

    def _leave(self, ticket: Admitted) -> _State:
        state = self._states[ticket.tenant]
        state.running -= 1
        self._running -= 1
        return state

    def _impossible(self, state: _State, tokens: int) -> Refused | None:
        """Larger than a bucket can ever hold, or than a context: no wait would help."""
        context = self._limits.max_context
        if tokens > context:
            return Refused(
                "impossible",
                context,
                tokens,
                None,
                f"prompt and max_tokens are {tokens} tokens together; a request may hold {context}",
            )
        tpm = state.tenant.tpm
        if tpm is not None and 0 < tpm < tokens:
            return Refused(
                "impossible",
                tpm,
                tokens,
                None,
                f"prompt and max_tokens are {tokens} tokens together; "
                f"the tenant's limit is {tpm} tokens per minute, so it could never be admitted",
            )
        return None

    def _full(self, state: _State) -> Refused | None:
        for used, limit, whose in (
            (state.running, self._limits.queue_per_tenant, "the tenant"),
            (self._running, self._limits.queue, "the pool"),
        ):
            if used >= limit:
                return Refused(
                    "queue",
                    limit,
                    used,
                    CONCURRENCY_RETRY_S,
                    f"{whose} has {used} requests waiting or running; the queue holds {limit}",
                )
        return None

    def _over(self, state: _State, tokens: int, now: float) -> list[Refused | None]:
        limit = state.tenant.concurrency
        concurrency = None
        if limit is not None and state.running >= limit:
            concurrency = Refused(
                "concurrency",
                limit,
                state.running,
                CONCURRENCY_RETRY_S if limit else None,
                f"{state.running} requests are under way; the limit is {limit}"
                + ("" if limit else ": blocked"),
            )
        return [
            _short("rpm", "request", state.rpm, 1, now),
            _short("tpm", "token", state.tpm, tokens, now),
            concurrency,
        ]


def _bucket(limit: int | None, now: float) -> _Bucket | None:
    return None if limit is None else _Bucket(float(limit), float(limit), now)


def _short(
    reason: str, unit: str, bucket: _Bucket | None, amount: float, now: float
) -> Refused | None:
    if bucket is None or bucket.at(now) >= amount - _ROUNDING:
        return None
    used = bucket.limit - bucket.at(now)
    if bucket.limit == 0:
        return Refused(reason, 0, 0, None, f"the tenant's {unit}s per minute are set to 0: blocked")
    return Refused(
        reason,
        bucket.limit,
        round(used, 3),
        bucket.wait_for(amount, now),
        f"needs {amount:g} {unit}{'' if amount == 1 else 's'}; {bucket.at(now):.0f} of "
        f"{bucket.limit:g} a minute are left",
    )


def _wait_of(refusal: Refused) -> float:
    return math.inf if refusal.retry_after_s is None else refusal.retry_after_s
