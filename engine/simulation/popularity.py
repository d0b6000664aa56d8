"""Who of many a request belongs to: Zipf shares, and draws of them that can be repeated. Pure.

Shares: p(k) = (k+1)^-s / sum over all of (j+1)^-s, k = 0 the most popular. s = 0 is even.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def generator(*parts: object) -> np.random.Generator:
    """A random generator that depends on `parts` alone: what one draws, no other one sees."""
    text = "/".join(str(p) for p in parts)
    return np.random.Generator(np.random.PCG64(int(fingerprint(text))))


def fingerprint(text: str) -> int:
    """64 bits of the text, the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class Zipf:
    """Draws indices 0 .. count-1 with Zipf shares of exponent `exponent` (>= 0)."""

    __slots__ = ("_upto", "count", "exponent")

    def __init__(self, count: int, exponent: float) -> None:
        if count < 1 or exponent < 0:
            raise ValueError(f"{count} to choose from, exponent {exponent:g}: expected >= 1, >= 0")
        self.count = count
        self.exponent = exponent
        weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
        self._upto = np.cumsum(weights / weights.sum())
        self._upto[-1] = 1.0  # the sum may end a rounding short of it

    @property
    def shares(self) -> Floats:
        """Expected share of each index, most popular first; sums to 1."""
        return np.diff(self._upto, prepend=0.0)

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        """`n` indices. One to choose from costs no randomness."""
        if self.count == 1:
            return np.zeros(n, dtype=np.int64)
        return np.searchsorted(self._upto, rng.random(n), side="right").astype(np.int64)

    def at(self, point: float) -> int:
        """The index that holds `point` of [0, 1): for choices that hang on a name, not a draw."""
        return int(np.searchsorted(self._upto, point, side="right"))
