"""What one step may still take: tokens, distinct adapters, seconds. Lives for one plan.

The seconds bound what a step is expected to take while somebody decodes, so that nobody's gap
between two tokens grows with the number or the depth of the prompts prefilled beside it.
"""

from __future__ import annotations

import math
from collections.abc import Container

from engine.costs import CostModel


class StepBudget:
    """`there`: adapters that are in the step already. `seconds` None: no bound; else what is left
    for prefill. The first chunk of a step gets at least `least` tokens, so that prefill goes on
    beside a batch that has no time to spare."""

    def __init__(
        self,
        tokens: int,
        adapters: int,
        there: Container[str],
        seconds: float | None,
        costs: CostModel,
        least: int,
    ) -> None:
        self.tokens = tokens
        self._adapters_left = adapters
        self._there = there
        self.beside: dict[str, int] = {}  # prefill segments by adapter
        self._seconds = seconds
        self._costs = costs
        self._least = least

    def allows(self, adapter: str | None) -> bool:
        """Whether a row with this adapter may join at all."""
        if self.tokens < 1:
            return False
        if self._seconds is not None and not self._least and not self._tokens_within(0, False):
            return False
        return self.has_place(adapter)

    def has_place(self, adapter: str | None) -> bool:
        """Whether the step may hold this adapter, beside those that are in it."""
        return (
            adapter is None
            or adapter in self._there
            or adapter in self.beside
            or self._adapters_left > 0
        )

    def chunk(self, left: int, start: int, adapter: str | None) -> int:
        """Take up to `left` prefill tokens of a sequence whose first `start` are computed."""
        count = min(left, self.tokens)
        is_new = adapter is not None and not (adapter in self._there or adapter in self.beside)
        if self._seconds is not None:
            count = min(count, max(self._least, self._tokens_within(start, is_new)))
            if count < 1:
                return 0
            costs = self._costs
            self._seconds -= (
                costs.prefill_token_s * count
                + costs.context_token_s * (count * start + count * (count + 1) / 2)
                + costs.adapter_s * is_new
            )
            self._least = 0
        self.tokens -= count
        if adapter is not None:
            self._adapters_left -= is_new
            self.beside[adapter] = self.beside.get(adapter, 0) + 1
        return count

    def _tokens_within(self, start: int, is_new: bool) -> int:
        """The most tokens n with  alpha*n + gamma*(n*start + n*(n+1)/2)  within the seconds."""
        costs = self._costs
        seconds = (self._seconds or 0.0) - costs.adapter_s * is_new
        if seconds <= 0:
            return 0
        half = costs.context_token_s / 2
        slope = costs.prefill_token_s + costs.context_token_s * start + half
        if half <= 0:
            return self.tokens if slope <= 0 else int(seconds / slope)
        return int((math.sqrt(slope * slope + 4 * half * seconds) - slope) / (2 * half))
