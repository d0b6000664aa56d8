"""The parts of a report beside its verdict and impact, as values. Knows no rows and no format.

Instants are unix seconds; shares are of 1; None = not known.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """Where the report was asked: what its commands name. `store` None = not to be told."""

    store: str | None = None
    live: bool = False
    pool_given: bool = False


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One bucket, or a few together: each tenant's share of the service, in the order of
    `Curve.tenants`, then that of all others; None throughout where no engine was heard."""

    start: float
    length_s: float
    shares: tuple[float | None, ...]
    missed: int | None
    in_incident: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """Shares of the service over time. `others` is how many tenants the last share is of."""

    tenants: tuple[str, ...]
    others: int
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class HeatCell:
    """Excess seconds of one victim behind one holder; `holder` is empty unless a tenant."""

    victim: str
    kind: str
    holder: str
    excess_s: float
    charged_s: float


@dataclass(frozen=True, slots=True)
class Heat:
    """Victims by holders over the judged buckets; `victims_left`, `holders_left` are not shown,
    with `left_s` of excess. Cells and that add up to `whole_s`."""

    cells: tuple[HeatCell, ...]
    victims_left: int
    holders_left: int
    left_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class ReasonWait:
    """What one hurt tenant waited in the judged buckets, by reason in the order of WAIT_REASONS;
    `usual` likewise, for as much observed time."""

    tenant: str
    now: tuple[float, ...]
    usual: tuple[float, ...]
    stall_s: float


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One line of the profile over the window. `excess_s` is what it held of others' excess, over
    the judged buckets. `vmr`: variance-to-mean of its arrivals a bucket (1 = as random as a
    Poisson stream, more = bursts). `rank` 0 = a line that is no single tenant."""

    rank: int
    name: str
    tenants: int
    offered: int | None
    service: float
    service_share: float | None
    excess_s: float
    excess_share: float | None
    vmr: float | None
    missed: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Tenants first, then `rest` (MISC: all other tenants), then who is no tenant; they add up to
    `total`."""

    rows: tuple[ProfileRow, ...]
    rest: ProfileRow | None
    not_tenants: tuple[ProfileRow, ...]
    total: ProfileRow


@dataclass(frozen=True, slots=True)
class Sample:
    """One of the worst requests. `waited_s`: to its first token, or to its end without one;
    `waits` by part of that time. `command` shows its life again."""

    tenant: str
    request_id: str
    engine: str
    run_id: str
    arrived: float
    outcome: str
    ttft_s: float | None
    waited_s: float
    waits: tuple[tuple[str, float | None], ...]
    prompt_tokens: int | None
    output_tokens: int | None
    command: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """A step of the detection. `at` None: it did not happen, or nothing tells of it (`what` says
    which). `lag_s` is since the onset."""

    step: str
    at: float | None
    lag_s: float | None
    what: str
    source: str


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do, from a fact of the report. Owner and date are left to people."""

    kind: str  # prevent, detect, mitigate, data
    what: str
    fact: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What was read to write this, and the command that shows the same rows."""

    what: str
    command: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay's numbers: those hurt together, those aimed at, the pool."""

    name: str
    rank: str
    missed: int
    eligible: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    goodput: float
    refused: int
    tokens_per_s: float
    restored: bool | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Prevented:
    """What the what-if says. `trusted`: the replay of what happened looks like what was recorded.
    `claim` is the counterfactual, where one is made. Without names: see `conclusion`."""

    conclusion: str
    sentence: str
    trusted: bool
    trust: str
    rows: tuple[Replayed, ...]
    remedy: str | None
    settings: str | None
    command: str | None
    claim: str | None
    notes: tuple[str, ...]
