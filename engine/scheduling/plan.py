"""What the scheduler hands to a runner, and what it gets back. Values; no tensors, no queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.scheduling.shaping import PLAIN, History, Shaping


class Segment(NamedTuple):
    """The tokens of one sequence to compute in a step. A tuple: one is made for each row of each.

    `tokens` sit at positions start .. start+len-1; the KV of positions < start is in `pages`
    already (position p lives in pages[p // page_tokens] at p % page_tokens), and `pages` has room
    for the new ones. `samples`: the logits of the last token are wanted, a next token comes back.
    `adapter` is a content hash, None = base row. `sampled` counts the tokens this sequence drew
    before (the draw's index: with `seed` it makes a draw repeatable). `logprobs`: the likeliest
    so many are told beside the token, None = nothing is. `history` is given where `shaping` asks
    what came before.
    """

    request_id: str
    tenant: str
    adapter: str | None
    tokens: tuple[int, ...]
    start: int
    pages: tuple[int, ...]
    samples: bool
    is_prefill: bool
    temperature: float = 0.0
    seed: int | None = None
    sampled: int = 0
    top_p: float = 1.0
    logprobs: int | None = None
    shaping: Shaping = PLAIN
    history: History | None = None

    @property
    def context_tokens(self) -> int:
        """Keys attended, summed over the segment's query tokens."""
        n = len(self.tokens)
        return n * self.start + n * (n + 1) // 2


class StepPlan:
    """One step: decode rows and prefill chunks, mixed.

    A plan may be given as its segments, or (by the scheduler) as totals and a way to make the
    segments: whoever computes tensors asks for them, a simulator never does.
    """

    __slots__ = (
        "_make",
        "_segments",
        "adapter_count",
        "context_tokens",
        "decode_rows",
        "prefill_tokens",
        "step",
    )

    def __init__(self, step: int, segments: tuple[Segment, ...]) -> None:
        self.step = step
        self._segments: tuple[Segment, ...] | None = segments
        self._make: Callable[[], tuple[Segment, ...]] | None = None
        self.prefill_tokens = sum(len(s.tokens) for s in segments if s.is_prefill)
        self.decode_rows = sum(1 for s in segments if not s.is_prefill)
        self.context_tokens = sum(s.context_tokens for s in segments)
        self.adapter_count = len(self.adapters)

    @classmethod
    def of_totals(
        cls,
        step: int,
        prefill_tokens: int,
        decode_rows: int,
        context_tokens: int,
        adapter_count: int,
        make: Callable[[], tuple[Segment, ...]],
    ) -> StepPlan:
        """`make` is called at most once, before the step's outcome is settled."""
        plan = cls.__new__(cls)
        plan.step = step
        plan._segments, plan._make = None, make
        plan.prefill_tokens, plan.decode_rows = prefill_tokens, decode_rows
        plan.context_tokens, plan.adapter_count = context_tokens, adapter_count
        return plan

    @property
    def segments(self) -> tuple[Segment, ...]:
        if self._segments is None:
            self._segments = self._make() if self._make is not None else ()
        return self._segments

    @property
    def empty(self) -> bool:
        """Nothing to execute."""
        return not (self.prefill_tokens or self.decode_rows)

    @property
    def adapters(self) -> frozenset[str]:
        return frozenset(s.adapter for s in self.segments if s.adapter is not None)


class TokenLogprobs(NamedTuple):
    """ln p of the token that was chosen, and (token, ln p) of the likeliest ones, best first:
    under the model's own softmax, whatever temperature and top_p made of it."""

    own: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step produced: one token for each segment that samples; `failed` names the requests
    whose rows could not be computed, with the reason, so that they hurt nobody else.

    `tokens` None: every segment that samples produced a token, and nobody needs to know which.
    `logprobs`: of the segments that asked for them."""

    tokens: Mapping[str, int] | None
    failed: Mapping[str, str]
    logprobs: Mapping[str, TokenLogprobs] | None = None


class Runner(Protocol):
    """Executes plans. Knows tensors and pages; knows no queues and no tenants' rights."""

    def execute(self, plan: StepPlan) -> StepOutcome: ...


class HostAdapter(Protocol):
    """An adapter in host memory, packed into blocks: what residency needs to know of it."""

    @property
    def key(self) -> str:
        """Content hash."""
        ...

    @property
    def device_bytes(self) -> int: ...

    @property
    def pages(self) -> int:
        """Pages it needs on the device."""
        ...


class AdapterDevice(Protocol):
    """The runner's side of residency. `copy_in` runs outside the step (a loader thread) on pages
    that nobody else holds; `drop` forgets the views when the pages are taken back."""

    def copy_in(self, adapter: HostAdapter, pages: Sequence[int]) -> None: ...

    def drop(self, key: str) -> None: ...
