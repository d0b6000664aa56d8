"""What the scheduler hands to a runner, and what it gets back. Values; no tensors, no queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens of one sequence to compute in a step.

    `tokens` sit at positions start .. start+len-1; the KV of positions < start is in `pages`
    already (position p lives in pages[p // page_tokens] at p % page_tokens), and `pages` has room
    for the new ones. `samples`: the logits of the last token are wanted, a next token comes back.
    `adapter` is a content hash, None = base row. `sampled` counts the tokens this sequence drew
    before (the draw's index: with `seed` it makes a draw repeatable).
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

    @property
    def context_tokens(self) -> int:
        """Keys attended, summed over the segment's query tokens."""
        n = len(self.tokens)
        return n * self.start + n * (n + 1) // 2


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: decode rows and prefill chunks, mixed."""

    step: int
    segments: tuple[Segment, ...]

    @property
    def prefill_tokens(self) -> int:
        return sum(len(s.tokens) for s in self.segments if s.is_prefill)

    @property
    def decode_rows(self) -> int:
        return sum(1 for s in self.segments if not s.is_prefill)

    @property
    def context_tokens(self) -> int:
        return sum(s.context_tokens for s in self.segments)

    @property
    def adapters(self) -> frozenset[str]:
        return frozenset(s.adapter for s in self.segments if s.adapter is not None)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step produced: one token for each segment that samples; `failed` names the requests
    whose rows could not be computed, with the reason, so that they hurt nobody else."""

    tokens: Mapping[str, int]
    failed: Mapping[str, str]


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
