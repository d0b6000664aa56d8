"""When somebody was hurt: marks a bucket, joins the marks into episodes, finds the onset.

A bucket leaves the baseline by a count (three misses, or half a request more waiting all the
time), or by less in two buckets one after the other. The drain is part of the episode: it ends
when the waits are back where they were. A bucket without marks in which the engine is slow, or a
worker missing, is not calm: however short buckets are, one fault is one episode.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from telemetry.baseline import Baseline, impaired
from telemetry.grid import Floats, Grid
from telemetry.window import Bucket, Window

MISSES_ALONE = 3  # misses that mark a bucket by themselves
WAITING_ALONE = 0.5  # requests more waiting, on average over the bucket, that do so
WAITING_FLOOR = 0.05  # below this many more waiting nothing is marked
JOIN_BUCKETS = 2  # calm buckets inside one episode
FORERUNNER = 0.02  # of the worst bucket's harm: before it, such a bucket is not the beginning


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


class _Usual:
    """The baseline's rates in the order of a grid's tenants."""

    def __init__(self, grid: Grid, baseline: Baseline) -> None:
        def of(rates: Mapping[str, float]) -> Floats:
            return np.array([rates.get(t, 0.0) for t in grid.names], dtype=np.float64)

        self.grid = grid
        self.miss_share = of(baseline.miss_share)
        self.waits = of(baseline.waits)
        self.worst_wait = of(baseline.worst_wait)
        self.missed = np.nan_to_num(grid.column("slo_missed"))
        self.eligible = np.maximum(np.nan_to_num(grid.column("slo_eligible")), self.missed)
        self.waited = np.nan_to_num(grid.waits())

    def marks(self, i: int, without: Collection[str]) -> dict[str, Mark]:
        """Tenants outside their baseline in the grid's bucket `i`, and how far."""
        seen = self.grid.observed_s[i]
        missed, eligible, waited = self.missed[i], self.eligible[i], self.waited[i]
        expected = self.miss_share * eligible
        over = missed - expected
        misses = np.where((missed > 0) & (over > 0.5) & (missed > 2 * expected), over, 0.0)
        above = waited - self.waits * seen
        left = (above > WAITING_FLOOR * seen) & (
            waited > np.maximum(2 * self.waits * seen, 1.5 * self.worst_wait * seen)
        )
        left &= seen > 0
        strong = (misses >= MISSES_ALONE) | (left & (above >= WAITING_ALONE * seen))
        return {
            t: Mark(t, bool(strong[j]), float(misses[j]), float(above[j]) if left[j] else 0.0)
            for j in np.flatnonzero((misses > 0) | left).tolist()
            if (t := self.grid.names[j]) not in without
        }


def episodes(
    window: Window, baseline: Baseline, without: Collection[str] = ()
) -> tuple[Episode, ...]:
    """All episodes that touch the window, oldest first; one may have begun before it."""
    usual = {b.start for b in baseline.buckets}
    line = [b for b in window.buckets if b.known]
    part = window.part(line)
    rates = _Usual(part.grid, baseline)
    marked: list[dict[str, Mark]] = [
        {} if b.start in usual else rates.marks(i, without)
        for b, i in zip(line, part.at.tolist(), strict=True)
    ]
    hurt = [
        {
            t: m
            for t, m in marks.items()
            if m.strong or t in _beside(marked, i - 1) or t in _beside(marked, i + 1)
        }
        for i, marks in enumerate(marked)
    ]
    ill = impaired(line, baseline)
    runs: list[tuple[int, int]] = []
    for i, marks in enumerate(hurt):
        if not marks:
            continue
        if runs and ill[runs[-1][1] + 1 : i].count(False) <= JOIN_BUCKETS:
            runs[-1] = (runs[-1][0], i)
        else:
            runs.append((i, i))
    runs = [part for run in runs for part in _apart(hurt, ill, *run)]
    found_episodes = [_episode(line[a : z + 1], hurt[a : z + 1]) for a, z in runs]
    return tuple(e for e in found_episodes if e.end > window.start and e.onset < window.end)


def _apart(
    hurt: Sequence[dict[str, Mark]], ill: Sequence[bool], first: int, last: int
) -> list[tuple[int, int]]:
    """Cut what came before off where it is no part of the worst: more than two buckets together
    with next to none of its harm, on a sound engine. After the worst bucket nothing is cut: that is
    the drain."""
    harm = [_harm(hurt[i]) for i in range(first, last + 1)]
    peak = max(range(len(harm)), key=lambda i: harm[i])
    floor = FORERUNNER * harm[peak]
    begin, calm = peak, 0
    for i in range(peak - 1, -1, -1):
        if harm[i] >= floor or (ill[first + i] and hurt[first + i]):
            begin, calm = i, 0
        elif not ill[first + i]:
            calm += 1
        if calm > JOIN_BUCKETS:
            break
    parts = [(first + begin, last)]
    before = [i for i in range(first, first + begin) if hurt[i]]
    return _apart(hurt, ill, before[0], before[-1]) + parts if before else parts


def _harm(marks: dict[str, Mark]) -> float:
    """Seconds waited beyond usual; a miss weighs as five."""
    return sum(m.waited_s + 5.0 * m.missed for m in marks.values())


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
        sum(_harm(ms) for ms in hurt),
    )
