"""How a what-if is run: which remedies, how often, how long. A value; runs nothing."""

from __future__ import annotations

from dataclasses import dataclass

from postmortem.whatif.policies import MAKERS

BOTH = "both"
FILLED = 0.8  # of the budget: what replays are planned for


@dataclass(frozen=True, slots=True)
class Options:
    """`policies` by name, None = all that apply. `seeds`: 0 is the arrivals as they were, each
    further one moves them a little. `requests_per_s`: what one process is expected to replay; the
    window is cut to what fits `budget_s` by it, so that the cut does not hang on the machine's
    mood."""

    policies: tuple[str, ...] | None = None
    seeds: int = 3
    budget_s: float = 120.0
    retries: str = BOTH
    processes: int = 2
    requests_per_s: float = 3000.0

    def most_requests(self) -> int:
        """In one replay, so that every remedy has its turn."""
        runs = 1 + len(MAKERS if self.policies is None else self.policies)
        return max(1, int(self.budget_s * FILLED * self.processes * self.requests_per_s / runs))
