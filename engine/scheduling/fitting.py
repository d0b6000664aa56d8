"""Whether this pool can ever serve a request. Pure; every answer has both numbers in it."""

from __future__ import annotations

from engine.config import Limits
from engine.memory.pool import PagePool
from engine.memory.residency import Residency
from engine.scheduling.request import Ask


def why_impossible(
    ask: Ask, limits: Limits, pool: PagePool, residency: Residency, now: float
) -> str | None:
    """Why this request could never be served, or not with its adapter as it is; None: it can."""
    if not ask.prompt or ask.max_tokens < 1:
        return (
            f"a prompt of {len(ask.prompt)} tokens and max_tokens {ask.max_tokens}: "
            "both must be at least 1"
        )
    tokens = len(ask.prompt) + ask.max_tokens
    if tokens > limits.max_context:
        return f"prompt and max_tokens are {tokens} tokens; a request may hold {limits.max_context}"
    needed = -(-(tokens - 1) // limits.page_tokens)  # the last token is never attended
    beside = pool.adapter_floor_pages
    if ask.adapter is not None:
        if not residency.knows(ask.adapter):
            return f"adapter {ask.adapter_name or ask.adapter} is not known to this pool"
        size = residency.pages_needed(ask.adapter)
        if size > pool.most_adapter_pages:
            return (
                f"its adapter needs {size} pages; "
                f"the pool lets adapters take {pool.most_adapter_pages}"
            )
        beside = max(beside, size)
    if needed + beside > pool.pages:
        return (
            f"the request and its adapter need {needed + beside} pages; the pool has {pool.pages}"
        )
    if ask.adapter is not None:
        why = residency.broken(ask.adapter, now)
        return None if why is None else f"its adapter could not be loaded: {why}"
    return None
