"""The step under way, as the ledger books it: since when, how long expected, what it is made of.

Owns the splitting of time into a step's own and lost capacity, and the samples of steps; charges
nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from telemetry.ledger.books import EngineBook
from telemetry.ledger.sampling import StepFacts, StepSampler
from telemetry.ledger.views import StepView


class StepBook:
    """`predicted_s` None = no step is under way. Writes its sums into the engine's bucket."""

    __slots__ = (
        "_adapters",
        "_context_tokens",
        "_cost_version",
        "_decode_rows",
        "_engine",
        "_failed",
        "_prefill_tokens",
        "_sampler",
        "_since",
        "_step",
        "predicted_s",
    )

    def __init__(self, engine: EngineBook, bucket_s: float, now: float) -> None:
        self._engine = engine
        self._sampler = StepSampler(bucket_s)
        self.predicted_s: float | None = None
        self._since = now
        self._step = self._prefill_tokens = self._decode_rows = 0
        self._context_tokens = self._adapters = self._cost_version = 0
        self._failed = False

    def begin(self, view: StepView, now: float) -> None:
        """The step before, if any, is over; the view's is under way from now on."""
        if self.predicted_s is not None:
            self._close(now)
        self._since = now
        self.predicted_s = view.predicted_s
        if view.predicted_s is not None:
            self._engine.predicted_s += view.predicted_s
        self._step = view.step
        self._prefill_tokens = view.prefill_tokens
        self._decode_rows = view.decode_rows
        self._context_tokens = view.context_tokens
        self._adapters = view.adapters
        self._cost_version = view.cost_version
        self._failed = False

    def split(self, start: float, passed: float) -> tuple[float, float]:
        """(seconds of the step itself, seconds lost) of what passed since `start`.

        The first predicted seconds of a step are its holders'; what comes after is lost capacity.
        Taken in order of time, so that a step that is still frozen accrues.
        """
        engine, predicted = self._engine, self.predicted_s
        if predicted is None:
            engine.idle_s += passed
            return passed, 0.0
        engine.busy_s += passed
        left = self._since + predicted - start
        if left >= passed:
            return passed, 0.0
        own = left if left > 0.0 else 0.0
        engine.capacity_s += passed - own
        return own, passed - own

    def settled(self, failed_prefill_tokens: int, failed_decode_rows: int) -> float | None:
        """The step's tokens are there, but for those of rows that failed. Returns how long it was
        expected to last."""
        engine = self._engine
        engine.prefill_tokens += self._prefill_tokens - failed_prefill_tokens
        engine.decode_tokens += self._decode_rows - failed_decode_rows
        # It may have broken off anywhere: how long it took says nothing of what steps cost.
        self._failed = failed_prefill_tokens > 0 or failed_decode_rows > 0
        return self.predicted_s

    def repeat(
        self,
        first_step: int,
        start: float,
        ends: Sequence[float],
        predicted_s: Sequence[float],
        decode_rows: int,
        context_tokens: Sequence[int],
        adapters: int,
        cost_version: int,
        billed_s: float,
    ) -> tuple[float, float]:
        """Steps of decode rows one after another, each settled at its end, the last one still
        open; as `split` for all of them together."""
        engine = self._engine
        own = lost = 0.0
        began = start
        for i, end in enumerate(ends):
            if self.predicted_s is not None:
                self._close(began)
            predicted = self.predicted_s = predicted_s[i]
            self._since = began
            self._step = first_step + i
            self._context_tokens = context_tokens[i]
            if not i:
                self._prefill_tokens, self._decode_rows = 0, decode_rows
                self._failed = False
                self._adapters, self._cost_version = adapters, cost_version
            passed = end - began
            if passed > predicted:
                lost += passed - predicted
                own += predicted
            else:
                own += passed
            began = end
        expected = sum(predicted_s)
        engine.predicted_s += expected
        engine.busy_s += ends[-1] - start
        engine.capacity_s += lost
        engine.base_cost_s += max(0.0, expected - billed_s)
        engine.decode_tokens += decode_rows * len(ends)
        return own, lost

    def take_samples(self) -> list[StepFacts]:
        """The bucket's samples; a new bucket begins."""
        return self._sampler.take()

    def _close(self, end: float) -> None:
        duration = end - self._since
        self._engine.step(duration)
        predicted = self.predicted_s
        if predicted is None or self._failed:
            return
        if not self._sampler.wants(self._prefill_tokens, self._decode_rows):
            return
        self._sampler.keep(
            StepFacts(
                self._step,
                self._since,
                duration,
                predicted,
                self._prefill_tokens,
                self._decode_rows,
                self._context_tokens,
                self._adapters,
                self._cost_version,
            )
        )
