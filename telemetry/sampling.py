"""Which steps of a bucket are kept as samples: up to 120 a minute, stratified. Pure."""

from __future__ import annotations

import random

from telemetry.records import StepSample

SAMPLES_PER_MINUTE = 120


class StepSampler:
    """Reservoirs by what a step was made of, so that rare mixtures are not crowded out."""

    def __init__(self, bucket_s: float, seed: int = 0) -> None:
        self._each = max(2, round(SAMPLES_PER_MINUTE * bucket_s / 60 / 3))
        self._random = random.Random(seed)
        self._kept: dict[int, list[StepSample]] = {}
        self._seen: dict[int, int] = {}

    def offer(self, sample: StepSample) -> None:
        stratum = (1 if sample.prefill_tokens else 0) + (2 if sample.decode_rows else 0)
        kept = self._kept.setdefault(stratum, [])
        seen = self._seen[stratum] = self._seen.get(stratum, 0) + 1
        if len(kept) < self._each:
            kept.append(sample)
            return
        place = self._random.randrange(seen)
        if place < self._each:
            kept[place] = sample

    def take(self) -> list[StepSample]:
        samples = sorted((s for kept in self._kept.values() for s in kept), key=lambda s: s.step)
        self._kept.clear()
        self._seen.clear()
        return samples
