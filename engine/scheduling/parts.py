"""What a prefilling sequence does in one step, and the segments a runner computes from it.

Owns the making of segments from requests; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.scheduling.cohort import Cohort
from engine.scheduling.plan import Segment
from engine.scheduling.request import Request
from engine.scheduling.shaping import PLAIN, History


@dataclass(slots=True)
class Part:
    """`count` tokens of a sequence from position `start`; `samples`: they are its last."""

    request: Request
    start: int
    count: int
    samples: bool
    cost_s: float = 0.0

    @property
    def context_tokens(self) -> int:
        """Keys attended, summed over the part's query tokens."""
        return self.count * self.start + self.count * (self.count + 1) // 2


def segments(cohort: Cohort, rows: Sequence[Request], parts: Sequence[Part]) -> tuple[Segment, ...]:
    """Decode rows, then prefill parts, with their tokens and pages."""
    out = [_row(request, cohort.length(request)) for request in rows]
    for part in parts:
        request = part.request
        tokens = tuple(request.tokens(part.start, part.start + part.count))
        out.append(_segment(request, tokens, part.start, part.samples, True, request.produced))
    return tuple(out)


def _row(request: Request, length: int) -> Segment:
    """A decode row's, `length` tokens long: its newest token is the one to compute."""
    made = length - request.prompt_tokens
    # A slice: where nobody needs to know the tokens there is none to take.
    newest = tuple(request.output[made - 1 : made])
    return _segment(request, newest, length - 1, True, False, made)


def _segment(
    request: Request,
    tokens: tuple[int, ...],
    start: int,
    samples: bool,
    is_prefill: bool,
    sampled: int,
) -> Segment:
    ask = request.ask
    shaping = ask.shaping
    history = None
    if samples and shaping is not PLAIN and shaping.penalises:
        history = History(ask.prompt, tuple(request.output))
    # By position: by name takes half as long again.
    return Segment(
        ask.request_id,
        ask.tenant,
        ask.adapter,
        tokens,
        start,
        tuple(request.pages),
        samples,
        is_prefill,
        ask.temperature,
        ask.seed,
        sampled,
        ask.top_p,
        ask.logprobs,
        shaping,
        history,
    )
