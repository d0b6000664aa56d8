"""Figures of fairness, as functions of numbers: Jain's index, differences in service, the paper's.

Sources: Jain, Chiu, Hawe, A Quantitative Measure of Fairness, DEC TR-301, 1984; Sheng et al.,
Fairness in Serving Large Language Models, OSDI 2024 (accumulated difference; the table's metric).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
MOST_PAIRED = 256  # tenants compared pair by pair: the first to be backlogged


def jain(shares: ArrayLike) -> float | None:
    """(sum x)^2 / (n * sum x^2): 1 = all equal, 1/n = one has everything. None for nobody."""
    x = np.asarray(shares, dtype=np.float64)
    squares = float(np.square(x).sum())
    if not len(x) or squares == 0:
        return None
    return float(x.sum()) ** 2 / (len(x) * squares)


class Differences:
    """|W_i - W_j| of every two tenants, over the time in which both are backlogged.

    Two tenants are compared from the instant at which both have something waiting; when one has
    nothing any more, the comparison ends. Tenants that are backlogged throughout are compared from
    the start, which is the paper's accumulated difference. Seen at samples.
    """

    def __init__(self) -> None:
        self._place: dict[int, int] = {}  # tenant's number -> row
        self._since = np.zeros((0, 0))  # W_i - W_j when the two began to be compared
        self._paired = np.zeros((0, 0), dtype=bool)
        self.most = 0.0
        self.last = 0.0  # the largest of the latest sample at which two were backlogged

    @property
    def tenants(self) -> int:
        """How many are compared."""
        return len(self._place)

    def sample(self, service: Floats, backlogged: Collection[int]) -> None:
        """`service[i]` in tokens (weighted: divided by weight) of tenant i, up to now."""
        for number in sorted(backlogged):
            if number not in self._place and len(self._place) < MOST_PAIRED:
                self._place[number] = len(self._place)
        n = len(self._place)
        if n > len(self._since):
            self._grow(n)
        if not n:
            return
        numbers = np.fromiter(self._place, dtype=np.int64, count=n)
        w = service[numbers]
        here = np.fromiter((i in backlogged for i in self._place), dtype=bool, count=n)
        both = here[:, None] & here[None, :]
        gaps = w[:, None] - w[None, :]
        begun = both & ~self._paired
        self._since[begun] = gaps[begun]
        self._paired = both
        if int(here.sum()) > 1:
            self.last = float(np.abs((gaps - self._since)[both]).max())
            self.most = max(self.most, self.last)

    def _grow(self, n: int) -> None:
        was = len(self._since)
        since, paired = np.zeros((n, n)), np.zeros((n, n), dtype=bool)
        since[:was, :was], paired[:was, :was] = self._since, self._paired
        self._since, self._paired = since, paired


@dataclass(frozen=True, slots=True)
class TableMetric:
    """diff(t) of the paper's table, service a second: over the ticks its most, mean, variance."""

    most: float
    mean: float
    variance: float


def paper_table(
    tenant: Sequence[int],
    arrived_s: ArrayLike,
    first_token_s: ArrayLike,
    ended_s: ArrayLike,
    prompt_tokens: ArrayLike,
    output_tokens: ArrayLike,
    *,
    horizon_s: float = 600.0,
    window_s: float = 60.0,
    ticks: int = 19,
) -> TableMetric:
    """The metric of the paper's fairness table, one entry a request in every sequence.

    Windows of `window_s` are centred on `ticks` instants from half a window to `horizon_s` less
    half a window. A request's service, prompt + 2 x output, is spread evenly from its first token
    to its end; its demand is the same amount at its arrival.
    diff(t) = sum_i min(max_j s_j - s_i, |demand_i - s_i|). Requests without a first token have
    demand and no service. Raises ValueError without requests.
    """
    who = np.asarray(tenant, dtype=np.int64)
    if not len(who):
        raise ValueError("no requests: there is no difference to measure")
    arrived, first, ended = (
        np.asarray(v, dtype=np.float64) for v in (arrived_s, first_token_s, ended_s)
    )
    amount = np.asarray(prompt_tokens, dtype=np.float64) + 2 * np.asarray(
        output_tokens, dtype=np.float64
    )
    n = int(who.max()) + 1
    served = ~np.isnan(first)
    span = np.where(served, np.maximum(ended - first, 1e-9), 1.0)
    half = window_s / 2
    diffs = []
    for t in np.linspace(half, horizon_s - half, ticks):
        low, high = t - half, t + half
        inside = np.clip(np.minimum(ended, high) - np.maximum(first, low), 0.0, None)
        # An answer of one token has no span: it counts where its first token is.
        point = (ended <= first) & (first >= low) & (first < high)
        part = np.where(served, np.where(point, 1.0, inside / span), 0.0)
        asked = np.where((arrived >= low) & (arrived < high), amount, 0.0)
        s = np.bincount(who, weights=amount * part, minlength=n) / window_s
        demand = np.bincount(who, weights=asked, minlength=n) / window_s
        diffs.append(float(np.minimum(s.max() - s, np.abs(demand - s)).sum()))
    return TableMetric(max(diffs), float(np.mean(diffs)), float(np.var(diffs)))
