"""What a round's token times say, and how far two contenders' tokens agree. Pure.

Decode and end-to-end are kept apart, as in `engine.bench_figures`: decode is what the window gives
in which every stream decodes. Who computes streams one after the other has no such window; then it
is all tokens after each stream's first, over the time spent on them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peer_sides.wire import Played
from engine.bench_figures import StepSeen, round_of

LEAST_OF_WINDOW = 0.5  # of the tokens must fall into it, else it stands for nothing


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one round. `window`: the decode rate is of all streams at once."""

    decode_tokens_per_s: float
    end_to_end_tokens_per_s: float
    ttft_s: float  # median over the streams
    window: bool


def rates(played: Played) -> Rates:
    """Raises ValueError for a round that gave fewer than two tokens a stream."""
    seen = [StepSeen(at, tuple(streams)) for at, streams in played.steps if streams]
    whole = round_of(seen)
    inside = (whole.decode_tokens_per_s or 0.0) * (_window_end_s(seen) - whole.prefill_s)
    if whole.decode_tokens_per_s and inside >= LEAST_OF_WINDOW * whole.output_tokens:
        decode, window = whole.decode_tokens_per_s, True
    else:
        decode, window = after_first(seen), False
    return Rates(decode, whole.end_to_end_tokens_per_s, whole.ttft_s, window)


def after_first(seen: Sequence[StepSeen]) -> float:
    """Tokens/s after each stream's first: the time before a first token is its prompt's."""
    begun: set[int] = set()
    tokens, seconds, before = 0, 0.0, 0.0
    for step in seen:
        later = sum(s in begun for s in step.streams)
        if later:
            tokens += later
            seconds += step.at_s - before
        begun.update(step.streams)
        before = step.at_s
    if not tokens or seconds <= 0.0:
        raise ValueError("a round of one token a stream has no decode rate: ask for more")
    return tokens / seconds


def _window_end_s(seen: Sequence[StepSeen]) -> float:
    last: dict[int, float] = {}
    for step in seen:
        for stream in step.streams:
            last[stream] = step.at_s
    return min(last.values())


@dataclass(frozen=True, slots=True)
class Agreement:
    """Over the streams that both played: how many began with the same token, and the mean share of
    an answer before the first difference. Greedy bfloat16 answers part where two tokens are near
    ties, for good; a wrong adapter parts at once."""

    streams: int
    same_first: int
    mean_prefix: float
    same_whole: int


def agreement(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> Agreement:
    both = [(a, b) for a, b in zip(ours, theirs, strict=True) if a and b]
    prefixes = [_common(a, b) for a, b in both]
    return Agreement(
        len(both),
        sum(p > 0 for p in prefixes),
        statistics.fmean(p / len(a) for p, (a, _) in zip(prefixes, both, strict=True))
        if both
        else 0.0,
        sum(p == len(a) for p, (a, _) in zip(prefixes, both, strict=True)),
    )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
