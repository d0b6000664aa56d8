"""A cost model from a table of measured steps, and how wrong it is on steps it has not seen.

Pure. The fit itself is `engine.costs.fit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.costs import CostModel, StepFeatures, fit


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What a step did and how long it took."""

    features: StepFeatures
    seconds: float


@dataclass(frozen=True, slots=True)
class FitReport:
    """Relative errors |predicted - measured| / measured, of `tested` steps: median, 95th
    percentile (of those `tested`, the value that 95% do not exceed) and the worst. `prefill` and
    `decode` are the medians of steps with and without prefill; None where there are none."""

    trained: int
    tested: int
    median: float
    p95: float
    worst: float
    prefill: float | None
    decode: float | None


def errors(model: CostModel, rows: Sequence[MeasuredStep], *, trained: int = 0) -> FitReport:
    """How far the model is from these steps. Raises ValueError without any."""
    return _report([(r, _error(model, r)) for r in rows], trained or len(rows))


def fit_steps(rows: Sequence[MeasuredStep], *, version: int = 1) -> tuple[CostModel, FitReport]:
    """The model fitted to all of them, and the error of two fitted to half of them each.

    The halves are of *kinds* of step (distinct features, in order of duration, every second one):
    repetitions of one step never stand on both sides. Each half is predicted by the model that
    was fitted to the other. The largest kinds are in both trainings and are not tested: without
    them a half would be asked to extrapolate, which no linear model should be used for. Raises
    ValueError when too few are left for a half.
    """
    times: dict[StepFeatures, list[float]] = {}
    for r in rows:
        times.setdefault(r.features, []).append(r.seconds)
    largest = _largest(times)
    rest = (f for f in times if f not in largest)
    ordered = sorted(rest, key=lambda f: (float(np.median(times[f])), repr(f)))
    if len(ordered) < 2:
        raise ValueError(f"{len(times)} kinds of steps are too few: half of them are for testing")
    seen: list[tuple[MeasuredStep, float]] = []
    trained = 0
    for half in (set(ordered[::2]), set(ordered[1::2])):
        train = [r for r in rows if r.features not in half]
        model = fit([(r.features, r.seconds) for r in train])
        trained = max(trained, len(train))
        seen += [(r, _error(model, r)) for r in rows if r.features in half]
    whole = fit([(r.features, r.seconds) for r in rows], version=version)
    return whole, _report(seen, trained)


def _largest(kinds: Iterable[StepFeatures]) -> set[StepFeatures]:
    """The kinds that reach furthest in some feature, of steps with and without prefill."""
    with_prefill = [f for f in kinds if f.prefill_tokens]
    without = [f for f in kinds if not f.prefill_tokens]
    return {
        max(group, key=lambda f: (getattr(f, name), repr(f)))
        for group in (with_prefill, without)
        for name in StepFeatures.__slots__
        if any(getattr(f, name) for f in group)
    }


def _error(model: CostModel, row: MeasuredStep) -> float:
    return abs(model.predict(row.features) - row.seconds) / row.seconds


def _report(seen: Sequence[tuple[MeasuredStep, float]], trained: int) -> FitReport:
    if not seen:
        raise ValueError("no steps to compare a cost model with")
    found = np.array([e for _, e in seen])
    prefill = [e for r, e in seen if r.features.prefill_tokens]
    decode = [e for r, e in seen if not r.features.prefill_tokens]
    return FitReport(
        trained=trained,
        tested=len(seen),
        median=float(np.median(found)),
        p95=float(np.quantile(found, 0.95)),
        worst=float(found.max()),
        prefill=float(np.median(prefill)) if prefill else None,
        decode=float(np.median(decode)) if decode else None,
    )
