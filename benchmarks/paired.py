"""What pairs of rounds say: the median of their ratios, and an interval that holds it. Pure.

Rounds of a pair stand side by side in time, so that what else a machine does meets both. The
interval is of order statistics: it asks nothing of how ratios are spread (Conover, Practical
Nonparametric Statistics, 3.2).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

WANTED = 0.9  # of intervals hold the median; few pairs give what they can


@dataclass(frozen=True, slots=True)
class Ratios:
    """`low` to `high` holds the true median with probability `sure`."""

    median: float
    low: float
    high: float
    sure: float
    pairs: int

    def verdict(self, tolerance: float) -> str:
        """Whether it has grown: "unchanged" or "more" beyond the tolerance, else "undecided"."""
        if self.high <= 1.0 + tolerance:
            return "unchanged"
        return "more" if self.low > 1.0 + tolerance else "undecided"


def ratios(pairs: Sequence[tuple[float, float]]) -> Ratios:
    """Of each pair the first over the second. Raises ValueError without any."""
    values = sorted(first / second for first, second in pairs)
    n = len(values)
    if not n:
        raise ValueError("no pair of rounds: play at least one")
    cut = 0
    while cut + 1 <= (n - 1) // 2 and _sure(n, cut + 1) >= WANTED:
        cut += 1
    return Ratios(statistics.median(values), values[cut], values[n - 1 - cut], _sure(n, cut), n)


def _sure(n: int, cut: int) -> float:
    """The probability that the median lies within all but `cut` values at either end."""
    return 1.0 - 2.0 * sum(comb(n, i) for i in range(cut + 1)) / 2.0**n
