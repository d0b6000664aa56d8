"""Why the door lets a request not in: which dimension, what of it is used, when to come back.

Pure over one tenant's counts; takes and gives back nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from typing import NamedTuple, Protocol

from engine.config import Limits
from engine.scheduling.windows import Window


class Refused(NamedTuple):
    """Why not: the dimension, its limit, what of it is used, when to come back (None = never).

    With several dimensions over, the one with the longest wait is named. `is_estimate`: one of
    them ends with somebody's running request, and nobody knows when that is.
    """

    reason: str
    limit: float
    used: float
    retry_after_s: int | None
    sentence: str
    is_estimate: bool = False


class PoolCounts(Protocol):
    """What the tenants of one pool share."""

    limits: Limits
    queue: int
    under_way: int


class Counts(Protocol):
    """One tenant's windows and places, and its pool."""

    rpm: Window | None
    tpm: Window | None
    concurrency: int | None
    queue: int

    @property
    def open(self) -> Sized: ...
    @property
    def pool(self) -> PoolCounts: ...


def refusal(state: Counts, tokens: int, now_s: float, least: str = "") -> Refused | None:
    """Why a request of so many tokens is not let in; None when it is. `least`: words before the
    tokens, where there may be more of them."""
    impossible = _impossible(state, tokens, least)
    if impossible is not None:
        return impossible
    over = [
        refused
        for refused in (
            _short("rpm", "request", state.rpm, 1, now_s),
            _short("tpm", "token", state.tpm, tokens, now_s, least),
            *_full(state),
        )
        if refused is not None
    ]
    return _longest(over) if over else None


def foreseen(
    state: Counts, least_tokens: int, likely_tokens: int, max_tokens: int, count: int, now_s: float
) -> Refused | None:
    """What is sure of a prompt that has not been counted: that it has `least_tokens`. When to come
    back is told for what it likely has."""

    def why(prompt: int) -> Refused | None:
        if count == 1:
            return refusal(state, prompt + max_tokens, now_s, "at least ")
        return refusal_of_several(state, prompt, max_tokens, count, now_s, "at least ")

    sure = why(least_tokens)
    if sure is None or sure.reason != "tpm" or sure.retry_after_s is None:
        return sure
    likely = why(likely_tokens)
    if likely is None or likely.retry_after_s is None:
        return sure._replace(is_estimate=True)
    return sure._replace(retry_after_s=likely.retry_after_s, is_estimate=True)


def _impossible(state: Counts, tokens: int, least: str = "") -> Refused | None:
    """Larger than a window can ever hold, or than a context: no wait would help."""
    together = f"prompt and max_tokens are {least}{tokens} tokens together"
    context = state.pool.limits.max_context
    if tokens > context:
        sentence = f"{together}; a request may hold {context}"
        return Refused("impossible", context, tokens, None, sentence)
    tpm = state.tpm
    if tpm is None or not 0 < tpm.largest < tokens:
        return None
    held = f"limit is {tpm.limit:g} tokens per minute"
    if tpm.largest != tpm.limit:
        held = f"bucket holds {tpm.largest:g}"
    sentence = f"{together}; the tenant's {held}, so it could never be admitted"
    return Refused("impossible", tpm.largest, tokens, None, sentence)


def _short(
    reason: str, unit: str, window: Window | None, amount: int, now_s: float, least: str = ""
) -> Refused | None:
    if window is None or window.fits(amount, now_s):
        return None
    if window.limit == 0:
        return Refused(reason, 0, 0, None, f"the tenant's {unit}s per minute are set to 0: blocked")
    left = window.left(now_s)
    held = f"{window.limit:g} a minute"
    if window.largest != window.limit:
        held = f"{window.largest:g}, refilled with {held},"
    needs = f"needs {least}{amount} {unit}{'' if amount == 1 else 's'}"
    return Refused(
        reason,
        window.largest,
        round(window.largest - left, 3),
        window.wait_s(amount, now_s),
        f"{needs}; {max(0.0, left):.0f} of {held} are left",
    )


def _full(state: Counts, count: int = 1) -> list[Refused]:
    """The bounds that end with somebody's running request."""
    retry_s = state.pool.limits.concurrency_retry_s
    mine, all_ = len(state.open), state.pool.under_way
    full = []
    limit = state.concurrency
    if limit is not None and mine + count > limit:
        sentence = f"{mine} requests are under way; the limit is {limit}"
        full.append(_until_one_ends("concurrency", limit, mine, retry_s, sentence))
    for used, queue, whose in (
        (mine, state.queue, "the tenant"),
        (all_, state.pool.queue, "the pool"),
    ):
        if used + count > queue:
            sentence = f"{whose} has {used} requests waiting or running; the queue holds {queue}"
            full.append(_until_one_ends("queue", queue, used, retry_s, sentence))
    return full


def refusal_of_several(
    state: Counts,
    prompt_tokens: int,
    max_tokens: int,
    count: int,
    now_s: float,
    least: str = "",
) -> Refused | None:
    """As `refusal`, for `count` answers to one prompt that are let in together or not at all."""
    tokens = prompt_tokens + count * max_tokens
    limits = state.pool.limits
    if prompt_tokens + max_tokens > limits.max_context:
        return _impossible(state, prompt_tokens + max_tokens, least)
    at_once = f"{count} requests at once"
    never = [
        (largest, asked, f"n = {count} asks for {asked_for}; the tenant may have {largest:g}")
        for largest, asked, asked_for in (
            (None if state.tpm is None else state.tpm.largest, tokens, f"{least}{tokens} tokens"),
            (None if state.rpm is None else state.rpm.largest, count, at_once),
            (state.concurrency, count, at_once),
            (state.queue, count, at_once),
            (state.pool.queue, count, at_once),
        )
        if largest is not None and 0 < largest < asked
    ]
    if never:
        largest, asked, sentence = never[0]
        return Refused("impossible", largest, asked, None, f"{sentence}: it never could be let in")
    over = [
        refused
        for refused in (
            _short("rpm", "request", state.rpm, count, now_s),
            _short("tpm", "token", state.tpm, tokens, now_s, least),
            *_full(state, count),
        )
        if refused is not None
    ]
    return _longest(over) if over else None


def _longest(over: Sequence[Refused]) -> Refused:
    """The client must wait for every dimension, so the longest wait is the honest one."""
    longest = max(over, key=_wait_of)
    if longest.retry_after_s is None:
        return longest
    return longest._replace(is_estimate=any(r.is_estimate for r in over))


def _until_one_ends(reason: str, limit: int, used: int, retry_s: int, sentence: str) -> Refused:
    if limit == 0:
        return Refused(reason, 0, used, None, f"{sentence}: blocked")
    return Refused(reason, limit, used, retry_s, sentence, is_estimate=True)


def _wait_of(refusal: Refused) -> float:
    return math.inf if refusal.retry_after_s is None else refusal.retry_after_s
