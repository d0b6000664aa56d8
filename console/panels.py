"""The values one screen shows, and nothing that computes or draws them.

Durations are seconds, instants unix seconds, shares fractions of 1. None is "not known" and is
drawn as a dash, never as 0.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.account import Account

LIVE = "LIVE"  # the mode of a screen that shows what is happening now
FEW = 20  # below this many samples a percentile says nothing: the maximum and n are shown instead


class Level(enum.Enum):
    """How the verdict feels, from nothing wrong to somebody hurt."""

    QUIET = "quiet"
    UNKNOWN = "unknown"
    WARN = "warn"
    HURT = "hurt"


WORST_FIRST = (Level.HURT, Level.WARN, Level.UNKNOWN, Level.QUIET)


class Mark(enum.IntEnum):
    """What a tenant's row says at its left edge; the order is the order of the rows."""

    NAMED = 0  # the verdict speaks of it as the holder
    HURT = 1  # the verdict counts it among the victims
    MISSING = 2  # misses targets, not (yet) a victim
    NONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLines:
    """The verdict in words for 80 columns, and whom it speaks of."""

    level: Level
    lines: tuple[str, ...]
    excluded: int = 0  # so many of the lines, the last ones, are causes that do not hold
    victims: frozenset[str] = frozenset()
    named: str | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """TTFT of the requests whose first token fell in the window. n = 0: there was none."""

    n: int
    p50_s: float | None
    p99_s: float | None
    max_s: float | None

    @property
    def few(self) -> bool:
        return self.n < FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whom waiting was charged to: a tenant, or `kind` self, capacity, policy, others."""

    kind: str
    name: str
    charged_s: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """One line of the tenant table. Levels are of the newest bucket, flows of the window."""

    name: str
    folded: int = 0  # >0: this line stands for so many tenants
    mark: Mark = Mark.NONE
    running: float | None = None
    waiting: float | None = None
    oldest_wait_s: float | None = None
    kv_share: float | None = None  # of the pool's bytes
    service: float | None = None
    service_share: float | None = None
    fair_share: float | None = None  # None: it was not backlogged, so nothing was due to it
    output_tokens_per_s: float | None = None
    offered: int | None = None
    rejected: int | None = None
    slo_eligible: int | None = None
    slo_missed: int | None = None

    @property
    def missed_share(self) -> float | None:
        """Misses of those eligible; None where nothing was eligible."""
        if not self.slo_eligible or self.slo_missed is None:
            return None
        return self.slo_missed / self.slo_eligible


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStrip:
    """The pool's bytes (shares of all of them), slots and steps."""

    kv_share: float | None = None
    adapter_share: float | None = None
    cached_share: float | None = None
    free_share: float | None = None
    pool_bytes: float | None = None
    running: float | None = None
    slots: float | None = None
    step_s: float | None = None
    expected_step_s: float | None = None
    output_tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    last_token_age_s: float | None = None
    preemptions: int | None = None
    evictions: int | None = None
    loads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStrip:
    """Who waits now, and for what the window's waiting was. `by_reason` sums to `total_s`."""

    waiting: float | None = None
    oldest_s: float | None = None
    total_s: float | None = None
    by_reason: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Bucket by bucket, oldest first; None = nothing was recorded then."""

    bucket_s: float
    tenant: str | None
    share: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """One line of the ticker."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lamps:
    """Engines, store, collector: who is heard, who answers, what is missing.

    `heard` of `known` engines sent the newest figures. `store_down_s`: for so long the store has
    not answered and engines' memory is shown, None while it answers. `lost` batches were given up
    on the way in the last hour, None = nobody can say. `notes` say what an answer lacks.
    """

    heard: int = 0
    known: int = 0
    store_down_s: float | None = None
    lost: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolVerdict:
    """What is to be said of a pool that is not in front: the first sentence of its verdict.

    `age_s`: how old its figures are; `stale`: too old to speak of now.
    """

    pool: str
    level: Level
    line: str
    named: str | None = None
    victims: int = 0
    age_s: float = 0.0
    stale: bool = False

    @property
    def is_hurt(self) -> bool:
        """Whether somebody is hurt there now, by figures that are of now."""
        return self.level is Level.HURT and not self.stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything one screen shows, at one instant, of one pool."""

    now: float
    mode: str  # "LIVE", or what a replay says of itself
    pool: str | None
    engines: int
    phase: str | None
    policy: str | None
    policy_version: int | None
    covered_s: float  # length of the window that had data
    data_at: float | None  # up to when the figures reach
    stale: bool
    provisional: bool  # the newest bucket is still open
    strip: PoolStrip
    wait: WaitStrip
    trend: Trend | None
    verdict: VerdictLines
    tenants: tuple[TenantRow, ...]
    ticker: tuple[Tick, ...]  # newest last
    account: Account | None = None  # of the last minutes; None: not asked for, or nothing heard
    lamps: Lamps = Lamps()
    pools: tuple[str, ...] = ()  # all that were heard, this one among them
    edge: float | None = None  # the newest instant there is; None: this picture is of it
    others: tuple[PoolVerdict, ...] = ()  # the pools that are not in front, the worst first
    every_column: bool = True  # the last minute's rows have all columns, not only a picture's
    filling: bool = False  # a first look: the last minute alone, nobody has been judged yet

    @property
    def data_age_s(self) -> float | None:
        return None if self.data_at is None else max(0.0, self.now - self.data_at)


ReadTime = Callable[[str, Snapshot], float]  # an instant as it is typed; raises ValueError


def fold(rows: Sequence[TenantRow], lines: int) -> tuple[TenantRow, ...]:
    """Keep the first rows and close with one that holds the rest, so that columns still sum."""
    if lines < 1:
        return ()
    if len(rows) <= lines:
        return tuple(rows)
    kept, rest = rows[: lines - 1], rows[lines - 1 :]
    return (*kept, _others(rest))


def total(values: Sequence[float | None]) -> float | None:
    """Sum of what is known; None where nothing is."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def over(part: float | None, whole: float | None) -> float | None:
    """A quotient where both are known and the whole is not 0."""
    return part / whole if part is not None and whole else None


def known_or(value: float | None, absent: float | None) -> float | None:
    return absent if value is None else value


def most(values: Sequence[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def count(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _others(rows: Sequence[TenantRow]) -> TenantRow:
    return TenantRow(
        name=f"others ({len(rows)})",
        folded=len(rows),
        mark=min((r.mark for r in rows), default=Mark.NONE),
        running=total([r.running for r in rows]),
        waiting=total([r.waiting for r in rows]),
        oldest_wait_s=most([r.oldest_wait_s for r in rows]),
        kv_share=total([r.kv_share for r in rows]),
        service=total([r.service for r in rows]),
        service_share=total([r.service_share for r in rows]),
        fair_share=total([r.fair_share for r in rows]),
        output_tokens_per_s=total([r.output_tokens_per_s for r in rows]),
        offered=count([r.offered for r in rows]),
        rejected=count([r.rejected for r in rows]),
        slo_eligible=count([r.slo_eligible for r in rows]),
        slo_missed=count([r.slo_missed for r in rows]),
    )
