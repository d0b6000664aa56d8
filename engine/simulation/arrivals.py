"""When a stream's requests come. Owns instants only; knows no lengths and no tenants.

An arrival process is a *spacing* (gaps with mean 1: even, poisson, gamma) under a *rate* that may
change with time (constant, on-off, ramp). Gaps are summed in expected arrivals and carried to
seconds by the inverse of the integrated rate, so any spacing goes with any rate. Recorded instants
are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SPACINGS = ("even", "uniform", "poisson", "gamma", "recorded")
# Blocks begin small, for streams that give few requests, and double up to a bound of the memory.
FIRST_BLOCK, LARGEST_BLOCK = 64, 8192


class Arrivals(Protocol):
    """A stream's instants."""

    def draw(
        self, rng: np.random.Generator, start_s: float, end_s: float, pace: float
    ) -> Iterator[Floats]:
        """Blocks of instants in [start_s, end_s), never decreasing, at `pace` times the rate."""
        ...


@dataclass(frozen=True, slots=True)
class Spacing:
    """Gaps of mean 1. `cv` = standard deviation / mean: 0 is even, 1 is Poisson, else gamma."""

    cv: float

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        if self.cv == 0:
            return np.ones(n)
        if self.cv == 1:
            return rng.standard_exponential(n)
        shape = 1 / self.cv**2
        return rng.standard_gamma(shape, n) / shape


class Rate(Protocol):
    """Requests per second, as time goes by."""

    def instant(self, expected: Floats) -> Floats:
        """Seconds since the stream's start at which so many requests are expected to have come:
        the inverse of the integrated rate. Infinite where the rate never brings so many."""
        ...


@dataclass(frozen=True, slots=True)
class Steady:
    per_s: float

    def instant(self, expected: Floats) -> Floats:
        return expected / self.per_s


@dataclass(frozen=True, slots=True)
class OnOff:
    """`per_s` for `on_s`, nothing for `off_s`, and again; begins with on."""

    per_s: float
    on_s: float
    off_s: float

    def instant(self, expected: Floats) -> Floats:
        on = expected / self.per_s  # seconds spent "on" so far
        # One that falls on the end of an on-time belongs to it, not to the next one's beginning.
        periods: Floats = np.maximum(np.ceil(on / self.on_s) - 1, 0)
        return on + periods * self.off_s


@dataclass(frozen=True, slots=True)
class Ramp:
    """From one rate to another in a straight line over `over_s`, and on at that slope."""

    from_per_s: float
    to_per_s: float
    over_s: float

    def instant(self, expected: Floats) -> Floats:
        # from*t + slope*t^2/2 = expected, in the form that does not cancel for small slopes.
        slope = (self.to_per_s - self.from_per_s) / self.over_s
        square = self.from_per_s**2 + 2 * slope * expected
        below = self.from_per_s + np.sqrt(np.maximum(square, 0.0))
        out: Floats = np.zeros(len(expected))  # nothing expected yet: at once
        np.divide(2 * expected, below, out, where=below > 0)
        out[square < 0] = np.inf  # a falling rate has reached zero before
        return out


@dataclass(frozen=True, slots=True)
class Process:
    """A spacing under a rate."""

    spacing: Spacing
    rate: Rate

    def draw(
        self, rng: np.random.Generator, start_s: float, end_s: float, pace: float
    ) -> Iterator[Floats]:
        size, passed = FIRST_BLOCK, 0.0
        while True:
            marks = passed + np.cumsum(self.spacing.gaps(rng, size))
            at = start_s + self.rate.instant(marks / pace)
            within = int(np.searchsorted(at, end_s, side="left"))
            if within:
                yield at[:within]
            if within < size:
                return
            passed = float(marks[-1])
            size = min(2 * size, LARGEST_BLOCK)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Instants as they were, seconds since the stream's start. At a `pace` of 0.5 every second one
    is left out, at 2 each comes twice."""

    at_s: tuple[float, ...]

    def draw(
        self, rng: np.random.Generator, start_s: float, end_s: float, pace: float
    ) -> Iterator[Floats]:
        for first in range(0, len(self.at_s), LARGEST_BLOCK):
            block = np.array(self.at_s[first : first + LARGEST_BLOCK])
            order = np.arange(first, first + len(block) + 1)
            times = np.diff(np.floor(order * pace)).astype(np.int64)
            at = start_s + np.repeat(block, times)
            within = int(np.searchsorted(at, end_s, side="left"))
            if within:
                yield at[:within]
            if within < len(at):
                return
