"""Which steps of a bucket are kept as samples: up to 120 a minute, stratified. Pure.

Owns reservoirs of plain tuples; builds no rows. Which step is kept next is drawn ahead (Vitter's
skips, Li 1994, algorithm L), so that a step that is not kept costs a comparison.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

SAMPLES_PER_MINUTE = 120


class StepFacts(NamedTuple):
    """A step as it is kept: instants on the engine's clock, lengths in seconds."""

    step: int
    at_s: float
    duration_s: float
    predicted_s: float
    prefill_tokens: int
    decode_rows: int
    context_tokens: int
    adapters: int
    cost_version: int


class _Reservoir:
    __slots__ = ("kept", "next", "seen", "weight")

    def __init__(self) -> None:
        self.kept: list[StepFacts] = []
        self.seen = 0
        self.next = 0
        self.weight = 1.0


class StepSampler:
    """Reservoirs by what a step was made of, so that rare mixtures are not crowded out."""

    def __init__(self, bucket_s: float, seed: int = 0) -> None:
        self._each = max(2, round(SAMPLES_PER_MINUTE * bucket_s / 60 / 3))
        self._random = random.Random(seed)
        self._strata = [_Reservoir() for _ in range(4)]

    def wants(self, prefill_tokens: int, decode_rows: int) -> bool:
        """Count a step; True = it is to be kept, and `keep` follows."""
        stratum = self._strata[(1 if prefill_tokens else 0) + (2 if decode_rows else 0)]
        stratum.seen += 1
        return stratum.seen >= stratum.next

    def keep(self, facts: StepFacts) -> None:
        stratum = self._strata[(1 if facts.prefill_tokens else 0) + (2 if facts.decode_rows else 0)]
        if len(stratum.kept) < self._each:
            stratum.kept.append(facts)
            if len(stratum.kept) < self._each:
                return
        else:
            stratum.kept[self._random.randrange(self._each)] = facts
        draw = self._random.random
        stratum.weight *= math.exp(math.log(1.0 - draw()) / self._each)
        skip = math.log(1.0 - draw()) / math.log1p(-stratum.weight) if stratum.weight < 1 else 0.0
        stratum.next = stratum.seen + int(skip) + 1

    def take(self) -> list[StepFacts]:
        """The bucket's samples, in order of steps; a new bucket begins."""
        facts = sorted(f for stratum in self._strata for f in stratum.kept)
        self._strata = [_Reservoir() for _ in range(4)]
        return facts
