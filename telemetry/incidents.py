"""When somebody was hurt: marks a bucket, joins the marks into episodes, finds the onset.

A bucket leaves the baseline by a count (three misses, or half a request more waiting all the
time), or by less in two buckets one after the other. The drain is part of the episode: it ends
when the waits are back where they were.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from telemetry.baseline import Baseline
from telemetry.window import Bucket, Window, tenants_of, value_in, wait_s

MISSES_ALONE = 3  # misses that mark a bucket by themselves
WAITING_ALONE = 0.5  # requests more waiting, on average over the bucket, that do so
WAITING_FLOOR = 0.05  # below this many more waiting nothing is marked
JOIN_BUCKETS = 2  # calm buckets inside one episode


@dataclass(frozen=True, slots=True)
class Mark:
    """A tenant in one bucket outside its baseline. `strong` marks stand alone."""

    tenant: str
    strong: bool
    missed: float  # misses more than usual
    waited_s: float  # wait more than usual


@dataclass(frozen=True, slots=True)
class Episode:
    """Buckets from the first to the last in which somebody was hurt. `onset` has the precision of
    `bucket_s`; `severity` compares episodes of one window."""

    onset: float
    end: float
    bucket_s: float
    buckets: tuple[Bucket, ...]
    tenants: frozenset[str]
    severity: float


def mark(bucket: Bucket, tenant: str, baseline: Baseline) -> Mark | None:
    """How far a tenant is outside its baseline in this bucket; None = it is not, or unknown."""
    missed = value_in(bucket, tenant, "slo_missed") or 0.0
    eligible = max(value_in(bucket, tenant, "slo_eligible") or 0.0, missed)
    usual_share = baseline.miss_share.get(tenant, 0.0)
    over = missed - usual_share * eligible
    misses = over if missed and over > 0.5 and missed > 2 * usual_share * eligible else 0.0

    waited = wait_s(bucket, tenant) or 0.0
    usual_wait = baseline.waits.get(tenant, 0.0) * bucket.observed_s
    worst = baseline.worst_wait.get(tenant, 0.0) * bucket.observed_s
    above = waited - usual_wait
    left = above > WAITING_FLOOR * bucket.observed_s and waited > max(2 * usual_wait, 1.5 * worst)
    if not misses and not (bucket.observed_s and left):
        return None
    strong = misses >= MISSES_ALONE or (left and above >= WAITING_ALONE * bucket.observed_s)
    return Mark(tenant, strong, misses, above if left else 0.0)


def episodes(
    window: Window, baseline: Baseline, without: Collection[str] = ()
) -> tuple[Episode, ...]:
    """All episodes that touch the window, oldest first; one may have begun before it."""
    usual = {b.start for b in baseline.buckets}
    line = [b for b in window.buckets if b.known]
    names = [t for t in tenants_of(line) if t not in without]
    marked: list[dict[str, Mark]] = []
    for b in line:
        found = {} if b.start in usual else _marks(b, names, baseline)
        marked.append(found)
    hurt = [
        {
            t: m
            for t, m in marks.items()
            if m.strong or t in _beside(marked, i - 1) or t in _beside(marked, i + 1)
        }
        for i, marks in enumerate(marked)
    ]
    runs: list[tuple[int, int]] = []
    for i, marks in enumerate(hurt):
        if not marks:
            continue
        if runs and i - runs[-1][1] <= JOIN_BUCKETS + 1:
            runs[-1] = (runs[-1][0], i)
        else:
            runs.append((i, i))
    found_episodes = [_episode(line[a : z + 1], hurt[a : z + 1]) for a, z in runs]
    return tuple(e for e in found_episodes if e.end > window.start and e.onset < window.end)


def _marks(bucket: Bucket, names: Sequence[str], baseline: Baseline) -> dict[str, Mark]:
    return {t: m for t in names if (m := mark(bucket, t, baseline)) is not None}


def _beside(marked: Sequence[dict[str, Mark]], i: int) -> dict[str, Mark]:
    return marked[i] if 0 <= i < len(marked) else {}


def _episode(buckets: Sequence[Bucket], hurt: Sequence[dict[str, Mark]]) -> Episode:
    marks = [m for ms in hurt for m in ms.values()]
    return Episode(
        buckets[0].start,
        buckets[-1].end,
        buckets[0].length_s,
        tuple(buckets),
        frozenset(m.tenant for m in marks),
        sum(m.waited_s + 5.0 * m.missed for m in marks),
    )
