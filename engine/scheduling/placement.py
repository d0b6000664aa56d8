"""Which replica of a pool a request goes to: the least loaded, unless its adapter is at home.

A pure function of what a front knows: how much it has handed to each replica that has not ended,
and where it sent the adapter last. Knows no queues, no pages, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# How much busier than the least loaded the adapter's home may be before loading the adapter
# somewhere else is the lesser evil: a part of the mean load, and at least so many tokens, so that
# an idle pool keeps to it as well.
AFFINITY_SLACK = 0.25
AFFINITY_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Load:
    """One replica: the tokens (prompt + max_tokens) under way there; `up`: it answers."""

    tokens: int
    up: bool = True


def place(loads: Sequence[Load], home: int | None = None) -> int | None:
    """The number of the replica to take; None when no replica answers.

    `home`: where the request's adapter went last, if it names one that went anywhere. Ties go to
    the smaller number, so that the same loads give the same answer.
    """
    best: int | None = None
    total = count = 0
    for number, load in enumerate(loads):
        if not load.up:
            continue
        total += load.tokens
        count += 1
        if best is None or load.tokens < loads[best].tokens:
            best = number
    if best is None or home is None or home >= len(loads) or not loads[home].up:
        return best
    slack = max(float(AFFINITY_TOKENS), AFFINITY_SLACK * total / count)
    return home if loads[home].tokens <= loads[best].tokens + slack else best
