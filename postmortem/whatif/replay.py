"""One replay: arrivals through a setup in virtual time, and what became of the window's requests.

The scheduler, the pool, the quotas and the ledger are the engine's own (engine/simulation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.simulation.setup import Setup
from engine.simulation.simulate import Progress, simulate
from postmortem.whatif.arrivals import Offered, jolted, shaken, to_arrivals, without_retries
from postmortem.whatif.measure import of_columns
from postmortem.whatif.model import Outcome

KEPT, DROPPED = "kept", "dropped"
MOMENT_S = 0.25  # some steps: no load changes by it, only who meets whom
_SAMPLES = 200  # looks at progress and curves a replay, at most


@dataclass(frozen=True, slots=True)
class Stretch:
    """Arrivals and the part of their time that is judged, on the replay's clock."""

    offered: tuple[Offered, ...]
    begins_s: float
    window_s: float

    @property
    def last_s(self) -> float:
        return self.offered[-1].at_s if self.offered else 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """One replay to do. `name` is for people; `stretch` says which arrivals; `of`: the tenants
    whose numbers are wanted, `hurt`: those counted together. `jolt_s`: every arrival comes by up to
    so much sooner or later."""

    name: str
    stretch: str
    setup: Setup
    of: frozenset[str]
    hurt: frozenset[str]
    seed: int = 0
    retries: str = KEPT
    jolt_s: float = 0.0


def replay(
    job: Job, stretch: Stretch, told: Callable[[float], None] = lambda part: None
) -> Outcome:
    """`told` hears now and then which part of the arrivals' time has passed; what it raises ends
    the replay. Deterministic: the same job gives the same outcome. Raises WorkloadError for a
    setup that cannot be."""
    offered = stretch.offered
    if job.retries == DROPPED:
        offered = without_retries(offered)
    offered = jolted(shaken(offered, job.seed), job.jolt_s)
    last_s = max(stretch.last_s, 1e-9)

    def hear(progress: Progress) -> None:
        told(min(1.0, progress.now_s / last_s))

    result = simulate(
        to_arrivals(offered), job.setup, progress=hear, sample_s=max(1.0, last_s / _SAMPLES)
    )
    return of_columns(
        result.columns,
        offered,
        stretch.begins_s,
        stretch.window_s,
        {t.name: t.slo for t in job.setup.tenants},
        job.of,
        job.hurt,
    )
