"""A request as the scheduler sees it: what was asked, how far it is, since when it waits and why.

Knows no queues, no pages' contents and no tensors.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.scheduling.shaping import PLAIN, Shaping
from engine.scheduling.waits import Waits
from telemetry.outbound.trace_context import TraceContext


class Ask(NamedTuple):
    """A request as it arrives at the pool, already admitted by the front.

    `adapter` is the content hash, None for the base model. `arrived_s` is the arrival at the
    front, `admitted_s` when the front let it through, both engine time. `queue_timeout_s` and
    `deadline_s` are spans counted from the arrival. A tuple: one is made a request.
    """

    request_id: str
    tenant: str
    prompt: Sequence[int]
    max_tokens: int
    arrived_s: float
    admitted_s: float
    adapter: str | None = None
    adapter_name: str | None = None
    temperature: float = 0.0
    seed: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    is_retry: bool = False
    key_id: str | None = None  # which of the tenant's keys, when its share is split by key
    queue_timeout_s: float | None = None
    deadline_s: float | None = None
    trace: TraceContext | None = None  # the client's, when it sent one
    top_p: float = 1.0
    logprobs: int | None = None  # alternatives wanted beside each token's own, None = neither
    tell_waits: bool = False  # its waits are told with its first token
    counted_with: str | None = None  # the request, of one answer, that its prompt is counted with
    shaping: Shaping = PLAIN


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

    `computed` counts tokens whose KV is in pages now, `produced` the tokens generated; the next
    one can be sampled when `computed` reaches prompt + produced. While a row decodes in the cohort
    its numbers stand still and the cohort's step count moves for it (`Cohort.leave`).
    `output` holds the generated ids where somebody needs to know them.
    """

    ask: Ask
    sequence: int  # order of arrival at the pool
    joined_s: float  # reached the pool; its waits are counted from here
    index: int = 0  # the tenant's place in dense arrays
    group: str = ""  # inside the tenant: the adapter or key that its share is split by
    tenant: str = ""
    prompt_tokens: int = 0
    state: State = State.WAITING
    output: list[int] = field(default_factory=list)
    produced: int = 0
    pages: list[int] = field(default_factory=list)
    shared: int = 0  # leading pages that belong to the prefix cache
    keys: tuple[bytes, ...] | None = None  # of the prompt's whole pages
    cached: int = 0  # prompt tokens found in the cache at the first admission
    computed: int = 0
    high_water: int = 0  # most tokens ever computed: beyond it work is new, below it recomputed
    charged_prompt: bool = False
    counted_from: int = 0  # the prompt's tokens before it are counted with another request
    bypassed: int = 0
    preemptions: int = 0
    last_step: int = 0
    in_step: bool = False  # takes part in steps, as the ledger was told
    decoding_since: int = -1  # the cohort's step count when it joined; -1 = not in it
    synced: int = 0  # the cohort's step count up to which its numbers are true
    waits: Waits = field(default_factory=Waits)
    stall_s: float = 0.0
    stall_mark_s: float = 0.0
    recomputed: int = 0
    adapter_state: str | None = None
    policy_version: int = 1
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    max_gap_s: float | None = None

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.produced

    def tokens(self, start: int, stop: int) -> Sequence[int]:
        """Token ids at positions start..stop of prompt + output."""
        prompt, end = self.ask.prompt, self.prompt_tokens
        if stop <= end:
            return prompt[start:stop]
        if start >= end:
            return self.output[start - end : stop - end]
        return [*prompt[start:], *self.output[: stop - end]]
