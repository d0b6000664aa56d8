"""What a prefilling sequence does in one step, and the segments a runner computes from it.

Owns the making of segments from requests; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.scheduling.cohort import Cohort
from engine.scheduling.plan import Segment
from engine.scheduling.request import Request


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
    out = []
    for request in rows:
        length = cohort.length(request)
        out.append(_segment(request, length - 1, 1, True, False, length - request.prompt_tokens))
    for part in parts:
        request = part.request
        out.append(_segment(request, part.start, part.count, part.samples, True, request.produced))
    return tuple(out)


def _segment(
    request: Request, start: int, count: int, samples: bool, is_prefill: bool, sampled: int
) -> Segment:
    ask = request.ask
    return Segment(
        ask.request_id,
        ask.tenant,
        ask.adapter,
        tuple(request.tokens(start, start + count)),
        start,
        tuple(request.pages),
        samples=samples,
        is_prefill=is_prefill,
        temperature=ask.temperature,
        seed=ask.seed,
        sampled=sampled,
        top_p=ask.top_p,
        logprobs=ask.logprobs,
    )
