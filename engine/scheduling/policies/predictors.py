"""How long an answer will be, guessed at admission. Knows requests; keeps no queues or counters."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from engine.scheduling.request import Request


class Predictor(Protocol):
    def predict(self, request: Request) -> int:
        """Output tokens expected; the same for one request however often it is asked, as long as
        nothing is learnt in between."""
        ...

    def learn(self, request: Request) -> None:
        """The request came to its own end with `request.produced` output tokens."""
        ...


class MovingAverage:
    """(4·old + new)/5 over the finished requests of the tenant; at most what is allowed."""

    def __init__(self, first_tokens: int) -> None:
        self._first = float(first_tokens)
        self._averages: dict[str, float] = {}

    def predict(self, request: Request) -> int:
        average = self._averages.get(request.ask.tenant, self._first)
        return min(round(average), request.ask.max_tokens)

    def learn(self, request: Request) -> None:
        tenant = request.ask.tenant
        old = self._averages.get(tenant, self._first)
        self._averages[tenant] = (4.0 * old + request.produced) / 5.0


class NoisyOracle:
    """For experiments: the true length, off by up to `noise` of it either way (0.5: ±50%)."""

    def __init__(
        self, true_tokens: Callable[[Request], int], noise: float = 0.0, seed: int = 0
    ) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ValueError(f"noise {noise}: expected a part of the length, 0 to 1")
        self._true = true_tokens
        self._noise = noise
        self._seed = seed

    def predict(self, request: Request) -> int:
        draw = Random(f"{self._seed}:{request.ask.request_id}").uniform(-self._noise, self._noise)
        return max(0, round(self._true(request) * (1.0 + draw)))

    def learn(self, request: Request) -> None:
        """An oracle knows already."""
