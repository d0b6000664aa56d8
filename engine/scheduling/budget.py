"""What one step may still take: tokens and distinct adapters. Lives for one plan."""

from __future__ import annotations


class StepBudget:
    def __init__(self, tokens: int, adapters: int) -> None:
        self.tokens = tokens
        self._adapters_left = adapters
        self._adapters: set[str] = set()

    def allows(self, adapter: str | None) -> bool:
        """Whether a row with this adapter may join at all."""
        if self.tokens < 1:
            return False
        return adapter is None or adapter in self._adapters or self._adapters_left > 0

    def take(self, tokens: int, adapter: str | None) -> None:
        self.tokens -= tokens
        if adapter is not None and adapter not in self._adapters:
            self._adapters.add(adapter)
            self._adapters_left -= 1
