"""What a core says of itself and of its steps. Values; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.scheduling.endings import Ending
from engine.scheduling.plan import TokenLogprobs
from engine.scheduling.waits import FirstWaits


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave to the outside: tokens in order, then who ended."""

    tokens: tuple[tuple[str, int], ...] = ()
    ended: tuple[Ending, ...] = ()
    made: int = 0  # tokens, whether anybody wants to know them or not
    steps: int = 0  # executed: more than one when identical ones were jumped over
    logprobs: Mapping[str, TokenLogprobs] | None = None  # of the tokens' requests that asked
    waits: Mapping[str, FirstWaits] | None = None  # of those that had their first token and asked
    charges: Mapping[str, float] | None = None  # for the pool's other replicas; None: not now


@dataclass(frozen=True, slots=True)
class PolicyChange:
    version: int
    policy: str
    previous: str


@dataclass(frozen=True, slots=True)
class CoreStatus:
    policy: str
    policy_version: int
    running: int
    waiting: int
    last_token_age_s: float
    steps: int
    output_tokens: int
    pages: int
    free_pages: int
    now_s: float
    frozen: bool  # a step has run for over ten times what the cost model expects
