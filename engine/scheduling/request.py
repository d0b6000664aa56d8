"""A request as the scheduler sees it: what was asked, how far it is, since when it waits and why.

Knows no queues, no pages' contents and no tensors.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduling.waits import Waits


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as it arrives at the pool, already admitted by the front.

    `adapter` is the content hash, None for the base model. `arrived_s` is the arrival at the
    front, `admitted_s` when the front let it through, both engine time.
    """

    request_id: str
    tenant: str
    prompt: tuple[int, ...]
    max_tokens: int
    arrived_s: float
    admitted_s: float
    adapter: str | None = None
    adapter_name: str | None = None
    temperature: float = 0.0
    seed: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    is_retry: bool = False


class State(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    ENDED = "ended"


class Outcome(enum.Enum):
    FINISHED = "finished"
    ABORTED = "aborted"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@dataclass(slots=True, eq=False)
class Request:
    """The scheduler's own record of one request; no other room writes to it.

    `computed` counts tokens whose KV is in pages now; `tokens` is prompt + generated. The next
    token can be sampled when `computed` reaches len(tokens).
    """

    ask: Ask
    sequence: int  # order of arrival at the pool
    joined_s: float  # reached the pool; its waits are counted from here
    state: State = State.WAITING
    output: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    high_water: int = 0  # most tokens ever computed: beyond it work is new, below it recomputed
    charged_prompt: bool = False
    bypassed: int = 0
    preemptions: int = 0
    last_step: int = 0
    waits: Waits = field(default_factory=Waits)
    stall_s: float = 0.0
    recomputed: int = 0
    adapter_state: str | None = None
    policy_version: int = 1
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    max_gap_s: float | None = None

    @property
    def tenant(self) -> str:
        return self.ask.tenant

    @property
    def length(self) -> int:
        return len(self.ask.prompt) + len(self.output)

    def tokens(self, start: int, stop: int) -> Sequence[int]:
        """Token ids at positions start..stop of prompt + output."""
        prompt = self.ask.prompt
        if stop <= len(prompt):
            return prompt[start:stop]
        if start >= len(prompt):
            return self.output[start - len(prompt) : stop - len(prompt)]
        return [*prompt[start:], *self.output[: stop - len(prompt)]]
