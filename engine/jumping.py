"""Jumps over decode steps that are like the one just made, in virtual time. Owns no state.

A real runner makes every step; the simulator's knows how long like ones take, and a run of them is
then one entry in every book. It changes nothing but the time this takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.costs import CostModel
from engine.scheduling.scheduler import Scheduler
from telemetry.ledger.ledger import Ledger

MOST_JUMPED = 4096  # steps at once

# (costs, rows, context tokens, adapters, most steps, until, longest step) -> ends, predictions:
# how a runner in virtual time says when decode steps like the last one would end.
JumpEnds = Callable[
    [CostModel, int, int, int, int, float, float | None], tuple[list[float], list[float]]
]


def jump(
    scheduler: Scheduler, ledger: Ledger, ends_of: JumpEnds, until_s: float
) -> tuple[int, int]:
    """(tokens made, steps jumped), before `until_s` and whatever is due before; (0, 0) where the
    next step would be another one. Nothing must wait to be taken in."""
    most = scheduler.steady_steps(MOST_JUMPED)
    if most < 2:
        return 0, 0
    due = scheduler.next_due_s
    until_s = min(until_s, ledger.next_seal_s, math.inf if due is None else due)
    rows, context, adapters = scheduler.decode_totals
    ends, predicted = ends_of(
        scheduler.costs, rows, context, adapters, most, until_s, ledger.smallest_gap_s
    )
    if not ends:
        return 0, 0
    with ledger.lock:
        return scheduler.jump(ends, predicted), len(ends)
