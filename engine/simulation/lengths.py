"""How long prompts and answers are. Owns distributions of token counts; knows no instants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_P95 = 1.6448536269514722  # of the standard normal
LONGEST = 1 << 40  # more than any context; keeps a wild distribution inside int64


class Lengths(Protocol):
    """Token counts, each at least 1."""

    def draw(self, rng: np.random.Generator, n: int, first: int) -> Ints:
        """Lengths of the stream's requests number first .. first+n-1."""
        ...


@dataclass(frozen=True, slots=True)
class Even:
    """Each whole number from `low` to `high` is as likely; the same one twice = fixed."""

    low: int
    high: int

    def draw(self, rng: np.random.Generator, n: int, first: int) -> Ints:
        if self.low == self.high:
            return np.full(n, self.low, dtype=np.int64)
        return rng.integers(self.low, self.high, n, dtype=np.int64, endpoint=True)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp of a normal (`mu`, `sigma`), rounded; what falls outside [least, most] is moved to it."""

    mu: float
    sigma: float
    least: int = 1
    most: int = LONGEST

    @classmethod
    def of_mean(cls, mean: float, cv: float, least: int = 1, most: int = LONGEST) -> Lognormal:
        """`mean` and coefficient of variation before rounding and bounds."""
        variance = math.log1p(cv**2)
        return cls(math.log(mean) - variance / 2, math.sqrt(variance), least, most)

    @classmethod
    def of_median(cls, median: float, p95: float, least: int = 1, most: int = LONGEST) -> Lognormal:
        return cls(math.log(median), math.log(p95 / median) / _P95, least, most)

    def draw(self, rng: np.random.Generator, n: int, first: int) -> Ints:
        drawn = np.rint(np.exp(np.minimum(rng.normal(self.mu, self.sigma, n), 60.0)))
        return np.clip(drawn, self.least, self.most).astype(np.int64)


@dataclass(frozen=True, slots=True)
class RecordedLengths:
    """Lengths as they were, in their order; after the last comes the first again."""

    tokens: tuple[int, ...]

    def draw(self, rng: np.random.Generator, n: int, first: int) -> Ints:
        return np.array(self.tokens, dtype=np.int64)[np.arange(first, first + n) % len(self.tokens)]
