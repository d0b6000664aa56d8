"""The cost model of the window: fitted on its odd buckets' step samples, tested on the even ones.

Owns which samples count and which buckets ran at a pace of their own. Pure; the fit itself is
`engine.costs.fit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from engine.costs import CostModel, StepFeatures, fit
from engine.simulation.fit import MeasuredStep, errors
from postmortem.whatif.model import FitError, NoConclusion
from telemetry.records import StepSample
from telemetry.window import Bucket

FEWEST = 5  # samples on either side: the model has five coefficients
ROUNDS = 4  # of fitting the model, then the buckets' paces
OWN_PACE = 0.10  # a bucket further off the model than this is replayed at its own pace


@dataclass(frozen=True, slots=True)
class Fitted:
    """`paces`: (bucket's start in unix seconds, its length, factor) where steps took that many
    times what the model says, because the machine was slower then, or faster."""

    costs: CostModel
    error: FitError
    paces: tuple[tuple[float, float, float], ...]


def fit_costs(samples: Iterable[StepSample], buckets: Iterable[Bucket], bucket_s: float) -> Fitted:
    """`buckets` know the time and the prediction of all steps, samples those of some. Raises
    NoConclusion where there are too few samples to fit and to test."""
    rows: dict[int, list[StepSample]] = {}
    for s in samples:
        if s.duration_s > 0:
            rows.setdefault(int(s.at // bucket_s), []).append(s)
    whole = {int(b.start // bucket_s): b for b in buckets}
    fitted_to, tested = _half(rows, odd=True), _half(rows, odd=False)
    for half, what in ((fitted_to, "fit it to"), (tested, "test it on")):
        if len(half) < FEWEST:
            raise NoConclusion(
                f"the cost model has {len(half)} step samples to {what}, {FEWEST} are needed: ask "
                "for a longer window"
            )
    costs, paces = _fitted(rows, whole)
    seen = errors(costs, tested)
    own = tuple((b * bucket_s, bucket_s, p) for b, p in sorted(paces.items()) if p != 1.0)
    error = FitError(len(fitted_to), seen.tested, seen.median, seen.p95, len(own), len(rows))
    return Fitted(costs, error, own)


def _fitted(
    rows: dict[int, list[StepSample]], whole: dict[int, Bucket]
) -> tuple[CostModel, dict[int, float]]:
    """The model of the odd buckets' steps, each at its bucket's pace, and the pace of every bucket
    (1 within OWN_PACE). Without that a machine that was slow for a while would bend the model of
    what a step costs."""
    paces = dict.fromkeys(rows, 1.0)
    for _ in range(ROUNDS):
        costs = fit(
            [
                (_features(s), s.duration_s / paces[b])
                for b in sorted(rows)
                if b % 2
                for s in rows[b]
            ]
        )
        found = {b: _pace(costs, mine, whole.get(b)) for b, mine in rows.items()}
        paces = {b: p if abs(p - 1) > OWN_PACE else 1.0 for b, p in found.items()}
        middle = median(found.values())
        if abs(middle - 1) > OWN_PACE:  # the model is that of the middle bucket, not of none
            paces = {b: p / middle for b, p in found.items()}
    return costs, {b: p if abs(p - 1) > OWN_PACE else 1.0 for b, p in found.items()}


def _half(rows: dict[int, list[StepSample]], *, odd: bool) -> list[MeasuredStep]:
    return [
        MeasuredStep(_features(s), s.duration_s)
        for b in sorted(rows)
        if (b % 2 == 1) is odd
        for s in rows[b]
    ]


def _features(s: StepSample) -> StepFeatures:
    return StepFeatures(s.prefill_tokens, s.decode_rows, s.context_tokens, s.adapters)


def _pace(costs: CostModel, samples: list[StepSample], bucket: Bucket | None) -> float:
    """The bucket's busy time over what the model says of its steps. The engine's own row knows
    all of them, by the model it had; the samples say how that one compares with this."""
    here = sum(costs.predict(_features(s)) for s in samples)
    if here <= 0:
        return 1.0
    there = sum(s.predicted_s for s in samples)
    row = None if bucket is None else bucket.engine
    if row is None or not row.busy_s or not row.predicted_s or there <= 0:
        return sum(s.duration_s for s in samples) / here
    return row.busy_s / row.predicted_s * there / here
