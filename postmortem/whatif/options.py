"""How a what-if is run: which remedies, how often, how long. Values; runs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from postmortem.whatif.model import NoConclusion
from postmortem.whatif.policies import LIMITS, MAKERS
from postmortem.whatif.run import cores

BOTH = "both"
FILLED = 0.8  # of the budget: what reading and replays are planned for
PLANNED = 2  # processes the cut counts on
READ_PER_S = 60_000  # rows of requests and of the matrix that are read and judged in a second


@dataclass(frozen=True, slots=True)
class Options:
    """`policies` by name, None = all that apply. `seeds`: 0 is the arrivals as they were, each
    further one moves them a little. `requests_per_s`: what one process is expected to replay; the
    window is cut to what fits `budget_s` by it and by PLANNED processes, so that the cut hangs
    neither on the machine's mood nor on how many cores it has beyond two."""

    policies: tuple[str, ...] | None = None
    seeds: int = 3
    budget_s: float = 120.0
    retries: str = BOTH
    processes: int = field(default_factory=cores)
    requests_per_s: float = 7000.0

    def most_requests(self, rows: int = 0, runs: int | None = None) -> int:
        """In one replay, so that every remedy has its turn. `rows` have been read before; `runs`
        None: what happened and every remedy, limits in normal hours too."""
        if runs is None:
            names = tuple(MAKERS) if self.policies is None else self.policies
            limits = sum(n in LIMITS for n in names)
            runs = 1 + len(names) + (1 + limits if limits else 0)
            runs = -(-runs // min(PLANNED, self.processes))  # one after the other
        left_s = max(0.1 * self.budget_s, self.budget_s * FILLED - rows / READ_PER_S)
        return max(1, int(left_s * self.requests_per_s / runs))


class Budget:
    """Wall time that may be spent, from when this is made."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget_s = budget_s
        self.clock = clock
        self._began_s = clock()

    @property
    def deadline_s(self) -> float:
        """Of `clock`."""
        return self._began_s + self.budget_s

    @property
    def spent_s(self) -> float:
        return self.clock() - self._began_s

    def hurry(self) -> None:
        """To be called before every part of the preparation. Raises NoConclusion when the time is
        over: then there is none left for a replay."""
        if self.clock() >= self.deadline_s:
            raise NoConclusion(
                f"{self.budget_s:g} s were over before the window was read and prepared: give it "
                "more time (--budget-s) or a shorter window"
            )
