"""What is usual: the calm buckets outside the incident, and how much the whole pool has grown.

Pure functions of a window. With fewer than three calm buckets there is no baseline: it is
empty, so that nothing can be compared with it, and the reason is a sentence in `Baseline.problem`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from telemetry.window import (
    Bucket,
    Cell,
    Window,
    engine_total,
    observed_s,
    tenants_of,
    total,
    value_in,
    wait_s,
)

MIN_BUCKETS = 3
MAX_BUCKETS = 60
MIN_PEERS = 8  # tenants whose median growth speaks for the pool
MOST_GROWTH = 20.0
USUAL_MISSES = 0.1  # of the eligible: more is no calm beginning


@dataclass(frozen=True, slots=True)
class Baseline:
    """The buckets that are usual, and rates over them (per observed second).

    `inside`: cut from the calm beginning of the window itself, because too little came before it.
    `left_out`: buckets not used because somebody was hurt in them or right beside them.
    `worst_wait` is a tenant's highest wait rate in any one of the buckets.
    """

    buckets: tuple[Bucket, ...]
    observed_s: float
    inside: bool
    left_out: int
    problem: str | None
    matrix: Mapping[Cell, float]
    waits: Mapping[str, float]
    worst_wait: Mapping[str, float]
    miss_share: Mapping[str, float]

    @property
    def usable(self) -> bool:
        return self.problem is None

    @property
    def start(self) -> float | None:
        return self.buckets[0].start if self.buckets else None

    @property
    def end(self) -> float | None:
        return self.buckets[-1].end if self.buckets else None

    def rate(self, tenant: str, column: str) -> float | None:
        """A tenant's usual amount of a summed column, per second."""
        value = total(self.buckets, tenant, column)
        return value / self.observed_s if value is not None and self.observed_s else None


def choose_baseline(window: Window) -> Baseline:
    """The last 60 calm closed buckets before the window; where those are fewer than three, with
    the window's own beginning for as long as it stays calm."""
    before = [b for b in window.before if _closed(b)]
    calm, inner = _calm(before, [b for b in window.asked if _closed(b)])
    chosen = inner if len(inner) >= MIN_BUCKETS else calm
    left_out = len(before) - len(chosen)
    if len(chosen) >= MIN_BUCKETS:
        return _measure(chosen[-MAX_BUCKETS:], False, left_out)
    asked = [b for b in window.asked if b.known]
    if asked and asked[-1].short:
        asked = asked[:-1]
    calm = _calm_beginning([*calm[-MAX_BUCKETS:], *(b for b in asked if _closed(b))])
    if len(calm) >= MIN_BUCKETS:
        return _measure(calm[-MAX_BUCKETS:], True, left_out)
    noun = "bucket" if len(calm) == 1 else "buckets"
    problem = f"only {len(calm)} calm closed {noun} to compare with, {MIN_BUCKETS} are needed"
    return _measure((), True, left_out, problem)


def _closed(bucket: Bucket) -> bool:
    """Observed for at least half of its length: a rate can be taken from it."""
    return bucket.known and bucket.observed_s >= 0.5 * bucket.length_s


def _pool_wait_rate(bucket: Bucket) -> float:
    waits = sum(wait_s(bucket, t) or 0.0 for t in bucket.tenants)
    return waits / bucket.observed_s if bucket.observed_s else 0.0


def _misses(bucket: Bucket) -> float:
    return sum(value_in(bucket, t, "slo_missed") or 0.0 for t in bucket.tenants)


def _eligible(bucket: Bucket) -> float:
    return sum(value_in(bucket, t, "slo_eligible") or 0.0 for t in bucket.tenants)


def _calm(before: Sequence[Bucket], asked: Sequence[Bucket]) -> tuple[list[Bucket], list[Bucket]]:
    """Of the buckets before, those in which nobody is hurt; and of these, those that lie beside no
    hurt one, asked ones included: the edge of an incident falls inside a bucket.

    Left out is what looks like another incident: misses, or waits for two buckets together, far
    above the pool's calmer quarter. A lone burst of waiting is part of what is usual."""
    if not before:
        return [], []
    quarter = (len(before) - 1) // 4
    usual_misses = sorted(_misses(b) for b in before)[quarter]
    usual_wait = sorted(_pool_wait_rate(b) for b in before)[quarter]
    line = [*before, *asked]
    waits = [False, *(_pool_wait_rate(b) > 4 * usual_wait + 1.0 for b in line), False]
    hurt = [
        _misses(b) > 3 * usual_misses + 1 or (waits[i] and (waits[i - 1] or waits[i + 1]))
        for i, b in enumerate(line, start=1)
    ]
    calm = [i for i in range(len(before)) if not hurt[i]]
    inner = [i for i in calm if not any(hurt[max(0, i - 1) : i + 2])]
    return [before[i] for i in calm], [before[i] for i in inner]


def _calm_beginning(buckets: Sequence[Bucket]) -> list[Bucket]:
    """The first buckets until waits or misses leave the level of the first three."""
    seed = buckets[:MIN_BUCKETS]
    level = median(_pool_wait_rate(b) for b in seed) if seed else 0.0
    bound = 4 * level + 0.5
    calm: list[Bucket] = []
    for b in buckets:
        if _pool_wait_rate(b) > bound or _misses(b) > max(1.0, USUAL_MISSES * _eligible(b)):
            break
        calm.append(b)
    return calm


def _measure(
    buckets: Sequence[Bucket], inside: bool, left_out: int, problem: str | None = None
) -> Baseline:
    seen = observed_s(buckets)
    matrix: dict[Cell, float] = {}
    for b in buckets:
        for cell, charged in b.matrix.items():
            matrix[cell] = matrix.get(cell, 0.0) + charged
    waits: dict[str, float] = {}
    worst: dict[str, float] = {}
    misses: dict[str, float] = {}
    for tenant in tenants_of(buckets):
        per_bucket = [(wait_s(b, tenant) or 0.0, b.observed_s) for b in buckets]
        waits[tenant] = sum(w for w, _ in per_bucket) / seen if seen else 0.0
        worst[tenant] = max((w / s for w, s in per_bucket if s), default=0.0)
        eligible = total(buckets, tenant, "slo_eligible") or 0.0
        missed = total(buckets, tenant, "slo_missed") or 0.0
        misses[tenant] = missed / eligible if eligible else 0.0
    return Baseline(
        tuple(buckets),
        seen,
        inside,
        left_out,
        problem,
        {c: v / seen for c, v in matrix.items()} if seen else {},
        waits,
        worst,
        misses,
    )


# ---------------------------------------------------------------- the pool's own pace and growth


@dataclass(frozen=True, slots=True)
class Pace:
    """Busy time over what the cost model expected of it: 1 = as modelled. None = not known."""

    now: float | None
    usual: float | None

    @property
    def slowdown(self) -> float | None:
        """Step time at equal batch, now over usual."""
        return self.now / self.usual if self.now and self.usual else None


@dataclass(frozen=True, slots=True)
class Growth:
    """The part of a rise that all share. `basis`: `tenants` (median of `peers` tenants that are
    no candidates), `steps` (step time at equal batch), or `none` (neither is known)."""

    factor: float
    basis: str
    peers: int


def pace_of(buckets: Sequence[Bucket]) -> float | None:
    busy, predicted = engine_total(buckets, "busy_s"), engine_total(buckets, "predicted_s")
    return busy / predicted if busy and predicted else None


def step_growth(buckets: Sequence[Bucket], baseline: Baseline) -> float:
    """Mean duration of a step, now over usual, batches included; 1 where it is not known."""
    now, usual = _step_s(buckets), _step_s(baseline.buckets)
    return max(1.0, now / usual) if now and usual else 1.0


def _step_s(buckets: Sequence[Bucket]) -> float | None:
    busy, steps = engine_total(buckets, "busy_s"), engine_total(buckets, "steps")
    return busy / steps if busy and steps else None


def demand_growths(
    buckets: Sequence[Bucket], baseline: Baseline, without: Collection[str] = ()
) -> dict[str, float]:
    """Tokens offered per second, now over usual, of every tenant active in both spans; service
    where the front's counts are missing."""
    seen = observed_s(buckets)
    out: dict[str, float] = {}
    for tenant in tenants_of(baseline.buckets):
        if tenant in without or not seen:
            continue
        for column in ("offered_tokens", "service"):
            usual, now = baseline.rate(tenant, column), total(buckets, tenant, column)
            if usual and now:
                out[tenant] = now / seen / usual
                break
    return out


def growth_of(buckets: Sequence[Bucket], baseline: Baseline, candidates: Collection[str]) -> Growth:
    """Never below 1: that others have become calmer accuses nobody."""
    peers = demand_growths(buckets, baseline, candidates)
    if len(peers) >= MIN_PEERS:
        factor = median(peers.values())
        return Growth(min(MOST_GROWTH, max(1.0, factor)), "tenants", len(peers))
    slowdown = Pace(pace_of(buckets), pace_of(baseline.buckets)).slowdown
    if slowdown is None:
        return Growth(1.0, "none", len(peers))
    return Growth(min(MOST_GROWTH, max(1.0, slowdown)), "steps", len(peers))
