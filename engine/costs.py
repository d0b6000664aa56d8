"""The cost model: what a step should take, and whose rows it is due to.

    predicted = c0 + sum_j c_j
    c_j = alpha*prefill_j + beta*decode_j + gamma*context_j + delta*adapters_j

over tenants j; prefill and recompute tokens, decode rows, keys attended, distinct adapters (one
used by several segments is split over them). Fitted at warm-up, its scale once more in service
(`Trim`), versioned. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from engine.scheduling.plan import StepPlan


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """What a step's duration depends on."""

    prefill_tokens: int
    decode_rows: int
    context_tokens: int
    adapters: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds: `predicted_s` = `base_s` + all the tenants' parts. `own_prefill_s` holds the
    prefill part of each request that prefills, so that no request is stalled by itself."""

    predicted_s: float
    base_s: float
    prefill_s: dict[str, float]
    decode_s: dict[str, float]
    own_prefill_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class CostModel:
    """Coefficients in seconds a unit. None may be negative: nobody's bill is a credit."""

    base_s: float
    prefill_token_s: float
    decode_row_s: float
    context_token_s: float
    adapter_s: float
    version: int = 1

    def predict(self, f: StepFeatures) -> float:
        return self.totals(f.prefill_tokens, f.decode_rows, f.context_tokens, f.adapters)

    def totals(
        self, prefill_tokens: int, decode_rows: int, context_tokens: int, adapters: int
    ) -> float:
        """Seconds of a step of these totals."""
        return (
            self.base_s
            + self.prefill_token_s * prefill_tokens
            + self.decode_row_s * decode_rows
            + self.context_token_s * context_tokens
            + self.adapter_s * adapters
        )

    def of(self, plan: StepPlan) -> StepCost:
        """Each segment's cost, summed by tenant; an adapter's is split over its segments."""
        users: dict[str, int] = {}
        for s in plan.segments:
            if s.adapter is not None:
                users[s.adapter] = users.get(s.adapter, 0) + 1
        prefill: dict[str, float] = {}
        decode: dict[str, float] = {}
        own: dict[str, float] = {}
        for s in plan.segments:
            cost = self.context_token_s * s.context_tokens
            if s.adapter is not None:
                cost += self.adapter_s / users[s.adapter]
            if s.is_prefill:
                cost += self.prefill_token_s * len(s.tokens)
                prefill[s.tenant] = prefill.get(s.tenant, 0.0) + cost
                own[s.request_id] = cost
            else:
                decode[s.tenant] = decode.get(s.tenant, 0.0) + self.decode_row_s + cost
        predicted = self.base_s + sum(prefill.values()) + sum(decode.values())
        return StepCost(predicted, self.base_s, prefill, decode, own)

    def scaled(self, factor: float) -> CostModel:
        """The next version: every coefficient times `factor`."""
        return CostModel(
            self.base_s * factor,
            self.prefill_token_s * factor,
            self.decode_row_s * factor,
            self.context_token_s * factor,
            self.adapter_s * factor,
            self.version + 1,
        )

    def dump(self) -> str:
        return json.dumps(asdict(self))


def fit(samples: Sequence[tuple[StepFeatures, float]], *, version: int = 1) -> CostModel:
    """Weighted least squares, coefficients held at or above zero.

    Negative coefficients are dropped one by one, the most negative first, and the rest refitted.
    Raises ValueError without at least five samples.
    """
    if len(samples) < 5:
        raise ValueError(f"a cost model has five coefficients; {len(samples)} samples are too few")
    rows = np.array(
        [[1.0, f.prefill_tokens, f.decode_rows, f.context_tokens, f.adapters] for f, _ in samples]
    )
    seconds = np.array([s for _, s in samples])
    # Between absolute error, where short steps would not count, and relative error, where the long
    # ones, behind which people wait, would not.
    weight = 1 / np.sqrt(seconds)
    weighted, target = rows * weight[:, None], seconds * weight
    free = [i for i in range(5) if np.any(rows[:, i] != 0)]
    solution = np.zeros(5)
    while free:
        part, *_ = np.linalg.lstsq(weighted[:, free], target, rcond=None)
        if np.all(part >= 0):
            solution[free] = part
            break
        free.pop(int(np.argmin(part)))
    base, prefill, decode, context, adapter = (float(c) for c in solution)
    return CostModel(base, prefill, decode, context, adapter, version)


class Trim:
    """Fits the model's scale again, to the first steps that are really served.

    At warm-up the worker is alone; in service it shares the machine with the front, the store and
    the clients, and every step takes longer by about the same factor. Left in, that factor would
    be booked as lost capacity for ever. How busy the pool is does not matter (the features hold
    that), so the first steps are as good as any; a second round has seen more kinds of them.
    """

    ROUNDS = (64, 192)  # steps served when the scale is fitted
    LEAST, MOST = 0.5, 4.0

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []  # (duration, predicted by the warm-up's model)
        self._factor = 1.0  # applied so far

    def offer(self, duration_s: float, predicted_s: float) -> float | None:
        """The factor to apply now, when a round is complete. The median, weighted by predicted
        time: one hung step must not set the scale."""
        if len(self._seen) >= self.ROUNDS[-1]:
            return None
        self._seen.append((duration_s, predicted_s / self._factor))
        if len(self._seen) not in self.ROUNDS:
            return None
        ordered = sorted(self._seen, key=lambda s: s[0] / s[1])
        half = sum(p for _, p in ordered) / 2
        passed, whole = 0.0, 1.0
        for duration, predicted in ordered:
            passed += predicted
            if passed >= half:
                whole = min(self.MOST, max(self.LEAST, duration / predicted))
                break
        factor, self._factor = whole / self._factor, whole
        return factor
