"""What a what-if says, as frozen values. Knows no rows, no simulator and no format.

Seconds and tokens; instants are unix seconds. None = not known, or too few to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FEW = 20  # requests: under so many a percentile is not said
TOLERANCE = 0.25  # of TTFT p50 and p99: further off, the replay proves nothing
MANY = 20  # victims: of so many some are further off by chance, and a second replay says how many
FACTOR = 2.0  # a victim's p50 so far off is no chance, unless chance alone moves one as far
MOST_OFF = 0.5  # of the victims, whatever chance is said to do: most must be as they were
MOST_IMPUTED = 0.10  # of the requests served: more made-up lengths prove nothing either
RESTORED_MISSES = 0.05  # of the eligible; or the tenant's usual part, where that is more

# What a remedy costs those who run the pool, least first.
REVERT, SETTING, TIER, POOL, CAPACITY = range(5)
RANKS = ("revert a change", "limit or weight", "tier", "dedicated pool", "capacity")

CONCLUDED, NONE_RESTORES, NO_CONCLUSION = "remedy", "none restores", "no conclusion"


class NoConclusion(Exception):
    """Why nothing can be concluded: one sentence with the numbers."""


@dataclass(frozen=True, slots=True)
class TenantNumbers:
    """One tenant's requests that arrived in the window, as recorded or in one replay.

    TTFT percentiles are nearest rank over `n` requests let in; one that never had a first token
    counts with the time until it ended. `goodput` is output tokens a second of the window, of
    requests that kept every target; `eligible` were judged against one."""

    tenant: str
    offered: int
    refused: int
    n: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_max_s: float | None
    eligible: int
    missed: int
    goodput: float

    @property
    def miss_share(self) -> float | None:
        return self.missed / self.eligible if self.eligible else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run over the window. `hurt` are the victims' requests together, `everyone` all the
    pool's; `tokens_per_s` are prompt and output tokens of the window's requests from its start
    until the last of them ended. `imputed_share`: of the requests served, those whose length is
    made up."""

    tenants: tuple[TenantNumbers, ...]
    hurt: TenantNumbers
    everyone: TenantNumbers
    tokens_per_s: float
    imputed_share: float

    def of(self, tenant: str) -> TenantNumbers | None:
        return next((t for t in self.tenants if t.tenant == tenant), None)


@dataclass(frozen=True, slots=True)
class FitError:
    """The cost model against steps it was not fitted to: relative errors, median and 95th."""

    fitted_steps: int
    tested_steps: int
    median: float
    p95: float
    own_pace: int  # of the buckets fitted to: those that were slower or faster than the model
    buckets: int


@dataclass(frozen=True, slots=True)
class TtftError:
    """Recorded TTFT beside the replay's, and the error relative to the recorded one. `tenant`
    empty: the victims together."""

    tenant: str
    n: int
    recorded_p50_s: float
    replayed_p50_s: float
    recorded_p99_s: float
    replayed_p99_s: float

    @property
    def p50_error(self) -> float:
        return _error(self.replayed_p50_s, self.recorded_p50_s)

    @property
    def p99_error(self) -> float:
        return _error(self.replayed_p99_s, self.recorded_p99_s)

    @property
    def holds(self) -> bool:
        return self.p50_error <= TOLERANCE and self.p99_error <= TOLERANCE

    @property
    def factor(self) -> float:
        """How many times one p50 is the other, the larger over the smaller; infinite beside 0."""
        low, high = sorted((self.recorded_p50_s, self.replayed_p50_s))
        return high / low if low > 0 else 1.0 if high <= 0 else math.inf


def _error(replayed: float, recorded: float) -> float:
    if recorded <= 0:
        return 0.0 if replayed <= 0 else 1.0
    return abs(replayed - recorded) / recorded


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Whether the replay of what happened looks like what happened. `problem` None = it does.

    `errors`: those hurt together first (`tenant` empty), then each victim that has enough requests.
    `off`: the victims of whom nothing is claimed, though it holds: no more than chance makes.
    `by_chance`: how many were off between two replays of the same, where that was asked."""

    errors: tuple[TtftError, ...]
    imputed_share: float
    problem: str | None
    off: tuple[str, ...] = ()
    by_chance: int | None = None

    @property
    def holds(self) -> bool:
        return self.problem is None


@dataclass(frozen=True, slots=True)
class Change:
    """One value of the settings; None takes a limit away. `table`: settings, limits, tenant, pool
    or costs; `who` is the tenant's or pool's name; `costs.speed` is no setting but a faster
    machine."""

    table: str
    key: str
    value: float | int | str | None
    who: str = ""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A candidate: what it is called, what it costs (`rank`), what it changes, and where its
    sizes come from. `applies_to` are the tenants it is aimed at."""

    name: str
    rank: int
    what: str
    changes: tuple[Change, ...]
    applies_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Calm:
    """What the remedy refuses of the tenants' requests in normal hours, on top of what was
    refused anyhow; over `span_s` seconds of the calm time before the incident."""

    span_s: float
    offered: int
    refused: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Over the seeds that were run: least and most of the victims' worst TTFT p99 (the maximum
    where they have few requests) and of their misses."""

    seeds: int
    least_p99_s: float | None
    most_p99_s: float | None
    least_missed: int
    most_missed: int


@dataclass(frozen=True, slots=True)
class Tried:
    """A remedy, replayed. `outcome` is seed 0's: the recorded arrivals as they were. `restored`:
    the victims' SLOs are kept in every seed. `problem`: why it proves nothing, though it ran."""

    remedy: Remedy
    retries: str
    outcome: Outcome
    spread: Spread
    restored: bool
    calm: Calm | None
    problem: str | None
    settings: str  # TOML
    command: str | None  # applies it to a running engine; None = needs a restart


@dataclass(frozen=True, slots=True)
class Baseline:
    """What happened, replayed under the settings in force, with its seeds' spread."""

    retries: str
    outcome: Outcome
    spread: Spread


@dataclass(frozen=True, slots=True)
class WhatIf:
    """All of it. `conclusion` is one of remedy, none restores, no conclusion; `sentence` words it.
    `start`, `end` are what was replayed, `asked_*` what was asked for; `notes` are what the reader
    has to know of how it was made; `not_run` names what the time was too short for."""

    pool: str
    asked_start: float
    asked_end: float
    start: float
    end: float
    victims: tuple[str, ...]
    culprits: tuple[str, ...]
    conclusion: str
    sentence: str
    remedy: str | None
    recorded: Outcome | None
    baselines: tuple[Baseline, ...]
    fit: FitError | None
    fidelity: Fidelity | None
    tried: tuple[Tried, ...]
    not_run: tuple[str, ...]
    notes: tuple[str, ...]
    wall_s: float

    @property
    def best(self) -> Tried | None:
        """The run the remedy was chosen from: with the retries kept, where it was run so."""
        return next((t for t in self.tried if t.remedy.name == self.remedy), None)


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The window without a tenant's excess: its arrivals above its own usual rate left out.

    `holds`: the replay of what happened was true enough for the claim to be called
    counterfactual; `sentence` says it, or why not. `left_out` of `of` requests were the excess.
    """

    tenant: str
    holds: bool
    sentence: str
    usual_requests_per_s: float | None
    left_out: int
    of: int
    recorded: Outcome | None
    baseline: Outcome | None
    without: Outcome | None
    fidelity: Fidelity | None
