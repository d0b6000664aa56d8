"""What is usual: the calm buckets outside the incident, those of the same hour of past days with
them, and the pool's own pace.

Pure functions of a window. With fewer than three calm buckets there is no baseline: it is
empty, so that nothing can be compared with it, and the reason is a sentence in `Baseline.problem`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from telemetry.charged import Cell, Charges, catalogue_of
from telemetry.grid import Part
from telemetry.window import Bucket, Window, engine_total, observed_s

MIN_BUCKETS = 3
MAX_BUCKETS = 60
SLOW = 1.2  # step time at equal batch, now over usual
MISSING_LEAST = 0.05  # of the usual workers: less is an edge of a bucket
USUAL_MISSES = 0.1  # of the eligible: more is no calm beginning


@dataclass(frozen=True, slots=True)
class Baseline:
    """The buckets that are usual, and rates over them (per observed second).

    `inside`: cut from the calm beginning of the window itself, because too little came before it.
    `left_out`: buckets not used because somebody was hurt in them or right beside them.
    `worst_wait` is a tenant's highest wait rate in any one of the buckets. `past` of the buckets
    are the same hour of days before. `present_s` is the observed time from a tenant's first offer
    on: what is usual of who came in the midst of it is counted from there.
    """

    buckets: tuple[Bucket, ...]
    observed_s: float
    inside: bool
    left_out: int
    problem: str | None
    matrix: Mapping[Cell, float]
    waits: Mapping[str, float]
    stalls: Mapping[str, float]
    worst_wait: Mapping[str, float]
    miss_share: Mapping[str, float]
    part: Part
    present_s: Mapping[str, float]
    past: int = 0

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
        value = self.part.total(tenant, column) if self.buckets else None
        return value / self.observed_s if value is not None and self.observed_s else None


def choose_baseline(window: Window) -> Baseline:
    """The last 60 calm closed buckets before the window, and the calm ones of the same hour of past
    days where the record has them; where all are fewer than three, with the window's own beginning
    for as long as it stays calm."""
    harm = _Harm(window)
    past = [b for b in window.past if _closed(b)]
    past = [b for b, hurt in zip(past, harm.hurt(past), strict=True) if not hurt]
    before = [b for b in window.before if _closed(b)]
    calm, inner = _calm(harm, before, [b for b in window.asked if _closed(b)])
    chosen = inner if len(inner) >= MIN_BUCKETS else calm
    left_out = len(before) - len(chosen)
    if len(chosen) + len(past) >= MIN_BUCKETS:
        return _measure(window, [*past, *chosen[-MAX_BUCKETS:]], False, left_out)
    asked = [b for b in window.asked if b.known]
    if asked and asked[-1].short:
        asked = asked[:-1]
    calm = _calm_beginning(harm, [*past, *calm[-MAX_BUCKETS:], *(b for b in asked if _closed(b))])
    if len(calm) >= MIN_BUCKETS:
        return _measure(window, calm[-MAX_BUCKETS:], True, left_out)
    noun = "bucket" if len(calm) == 1 else "buckets"
    problem = f"only {len(calm)} calm closed {noun} to compare with, {MIN_BUCKETS} are needed"
    return _measure(window, (), True, left_out, problem)


def _closed(bucket: Bucket) -> bool:
    """Observed for at least half of its length: a rate can be taken from it."""
    return bucket.known and bucket.observed_s >= 0.5 * bucket.length_s


class _Harm:
    """What the pool as a whole suffered in each bucket: waits a second, misses, eligible."""

    def __init__(self, window: Window) -> None:
        line = [*window.past, *window.buckets]
        grid = window.part(line).grid
        seen = grid.observed_s
        waits = np.nansum(grid.waits(), axis=1)
        rates = np.where(seen > 0, waits / np.where(seen > 0, seen, 1.0), 0.0)
        misses = np.nansum(grid.column("slo_missed"), axis=1)
        eligible = np.nansum(grid.column("slo_eligible"), axis=1)
        self._of = {
            b.start: (float(w), float(m), float(e))
            for b, w, m, e in zip(grid.buckets, rates, misses, eligible, strict=True)
        }

    def wait_rate(self, bucket: Bucket) -> float:
        return self._of[bucket.start][0]

    def misses(self, bucket: Bucket) -> float:
        return self._of[bucket.start][1]

    def eligible(self, bucket: Bucket) -> float:
        return self._of[bucket.start][2]

    def hurt(self, line: Sequence[Bucket], usual: Sequence[Bucket] = ()) -> list[bool]:
        """Which look like an incident: misses, or waits for two buckets together, far above the
        calmer quarter of what is usual. A lone burst of waiting is part of what is usual."""
        measure = usual or line
        if not measure:
            return []
        quarter = (len(measure) - 1) // 4
        usual_misses = sorted(self.misses(b) for b in measure)[quarter]
        usual_wait = sorted(self.wait_rate(b) for b in measure)[quarter]
        waits = [False, *(self.wait_rate(b) > 4 * usual_wait + 1.0 for b in line), False]
        return [
            self.misses(b) > 3 * usual_misses + 1 or (waits[i] and (waits[i - 1] or waits[i + 1]))
            for i, b in enumerate(line, start=1)
        ]


def _calm(
    harm: _Harm, before: Sequence[Bucket], asked: Sequence[Bucket]
) -> tuple[list[Bucket], list[Bucket]]:
    """Of the buckets before, those in which nobody is hurt; and of these, those in which the engine
    is no slower than in the quicker quarter and that lie beside no hurt one, asked ones included:
    the edge of an incident falls inside a bucket."""
    if not before:
        return [], []
    hurt = harm.hurt([*before, *asked], before)
    paces = [pace_of((b,)) for b in before]
    known = sorted(p for p in paces if p is not None)
    most = SLOW * known[(len(known) - 1) // 4] if known else 0.0
    calm = [i for i in range(len(before)) if not hurt[i]]
    inner = [i for i in calm if not any(hurt[max(0, i - 1) : i + 2]) and (paces[i] or 0.0) <= most]
    return [before[i] for i in calm], [before[i] for i in inner]


def _calm_beginning(harm: _Harm, buckets: Sequence[Bucket]) -> list[Bucket]:
    """The first buckets until waits or misses leave the level of the first three."""
    seed = buckets[:MIN_BUCKETS]
    level = median(harm.wait_rate(b) for b in seed) if seed else 0.0
    bound = 4 * level + 0.5
    calm: list[Bucket] = []
    for b in buckets:
        if harm.wait_rate(b) > bound or harm.misses(b) > max(1.0, USUAL_MISSES * harm.eligible(b)):
            break
        calm.append(b)
    return calm


def _measure(
    window: Window,
    buckets: Sequence[Bucket],
    inside: bool,
    left_out: int,
    problem: str | None = None,
) -> Baseline:
    part = window.part(buckets)
    seen = observed_s(buckets)
    names, active = part.grid.names, part.active()
    at = [part.grid.place[t] for t in active]
    waits = np.nan_to_num(part.totals("waits"))
    stalls = np.nan_to_num(part.totals("stall_s"))
    lengths = part.grid.observed_s[part.at]
    rates = (
        np.nan_to_num(part.grid.waits()[part.at]) / np.where(lengths > 0, lengths, np.inf)[:, None]
    )
    worst = rates.max(axis=0) if len(buckets) else np.zeros(len(names))
    offered = np.nan_to_num(part.grid.column("offered_requests")[part.at])
    present = (lengths[:, None] * (np.cumsum(offered, axis=0) > 0)).sum(axis=0)
    eligible = np.nan_to_num(part.totals("slo_eligible"))
    missed = np.nan_to_num(part.totals("slo_missed"))
    return Baseline(
        tuple(buckets),
        seen,
        inside,
        left_out,
        problem,
        _rates(buckets, seen),
        {names[i]: float(waits[i]) / seen if seen else 0.0 for i in at},
        {names[i]: float(stalls[i]) / seen if seen else 0.0 for i in at},
        {names[i]: float(worst[i]) for i in at},
        {names[i]: float(missed[i] / eligible[i]) if eligible[i] else 0.0 for i in at},
        part,
        {names[i]: float(present[i]) for i in at if present[i] > 0},
        sum(b.start < window.buckets[0].start for b in buckets) if window.buckets else len(buckets),
    )


def _rates(buckets: Sequence[Bucket], seen_s: float) -> Mapping[Cell, float]:
    """Seconds charged a second, by cell."""
    if not seen_s:
        return {}
    catalogue = catalogue_of(b.matrix for b in buckets)
    encoded = [catalogue.encode(b.matrix) for b in buckets]
    whole = np.zeros(len(catalogue.cells))
    for e in encoded:
        whole += e.summed()
    there = np.flatnonzero(whole)
    return Charges(catalogue, there, whole[there] / seen_s)


# ---------------------------------------------------------------- the pool's own pace


@dataclass(frozen=True, slots=True)
class Pace:
    """Busy time over what the cost model expected of it: 1 = as modelled. None = not known."""

    now: float | None
    usual: float | None

    @property
    def slowdown(self) -> float | None:
        """Step time at equal batch, now over usual."""
        return self.now / self.usual if self.now and self.usual else None


def pace_of(buckets: Sequence[Bucket]) -> float | None:
    busy, predicted = engine_total(buckets, "busy_s"), engine_total(buckets, "predicted_s")
    return busy / predicted if busy and predicted else None


def usual_pace_of(baseline: Baseline) -> float:
    """How much longer than modelled steps take on calm buckets; 1 where that is not known."""
    pace = pace_of(baseline.buckets) if baseline.usable else None
    return max(1.0, pace or 1.0)


def usual_workers(baseline: Baseline) -> float | None:
    """How many workers are heard at once, usually; None where that is not known. Other days had
    as many as they needed: today's count where there is one."""
    today = baseline.buckets[baseline.past :] or baseline.buckets
    counts = [b.workers for b in today if b.workers is not None and not b.short]
    return median(counts) if counts else None


def fewer_workers(buckets: Sequence[Bucket], baseline: Baseline) -> float:
    """Workers usually heard over those heard now; 1 where that is not known, or there are more."""
    usual = usual_workers(baseline)
    now = [(b.workers, b.observed_s) for b in buckets if b.workers is not None]
    seen = sum(s for _, s in now)
    heard = sum(w * s for w, s in now) / seen if seen else 0.0
    return max(1.0, usual / heard) if usual and heard else 1.0


def impaired(buckets: Sequence[Bucket], baseline: Baseline) -> list[bool]:
    """In which of these buckets the engine itself is not as usual: steps a fifth slower at equal
    batch, or workers missing. False where that is not known."""
    usual, least = pace_of(baseline.buckets), usual_workers(baseline)
    least = (1.0 - MISSING_LEAST) * least if least is not None else 0.0
    out: list[bool] = []
    for b in buckets:
        slowdown = Pace(pace_of((b,)), usual).slowdown
        slow = slowdown is not None and slowdown >= SLOW
        out.append(slow or (b.workers is not None and not b.short and b.workers < least))
    return out


def step_growth(buckets: Sequence[Bucket], baseline: Baseline) -> float:
    """Mean duration of a step, now over usual, batches included; 1 where it is not known."""
    now, usual = _step_s(buckets), _step_s(baseline.buckets)
    return max(1.0, now / usual) if now and usual else 1.0


def _step_s(buckets: Sequence[Bucket]) -> float | None:
    busy, steps = engine_total(buckets, "busy_s"), engine_total(buckets, "steps")
    return busy / steps if busy and steps else None
