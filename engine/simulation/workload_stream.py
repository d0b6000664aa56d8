"""Draws a workload's streams and merges them in order of time, block by block. Owns no file.

Every stream has a generator of its own for each thing it draws, so that neither another stream nor
the size of a block changes what it gives. Merging takes, of all streams, everything before the
instant to which each of them is known: a few blocks in memory, numpy's sort, no heap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.simulation.popularity import Ints, Zipf, generator
from engine.simulation.workload import Arrival, Traffic

Column = NDArray[Any]


class _Drawn:
    """One stream's requests that are drawn and not yet handed out, in columns as `Arrival` has."""

    __slots__ = (
        "_adapter_of", "_adapters", "_blocks", "_columns", "_count", "_rngs", "_tenant_of",
        "_tenants", "_traffic", "at", "more",
    )  # fmt: skip

    def __init__(self, traffic: Traffic, seed: int, pace: float) -> None:
        self._traffic = traffic
        rngs = {
            what: generator(seed, traffic.name, what)
            for what in ("at", "tenant", "adapter", "prompt", "output", "seed")
        }
        self._rngs = rngs
        self._blocks = traffic.arrivals.draw(rngs["at"], traffic.start_s, traffic.end_s, pace)
        self._tenants: Column = np.array(traffic.tenants, dtype=object)
        self._adapters: Column = np.array(traffic.adapters or (None,), dtype=object)
        self._tenant_of = Zipf(len(self._tenants), traffic.tenant_zipf)
        self._adapter_of = Zipf(len(self._adapters), traffic.adapter_zipf)
        self._count = 0
        self._columns: list[Column] = []
        self.at: Column = np.empty(0)
        self.more = True
        self.extend()

    @property
    def known_s(self) -> float:
        """Nothing that is not drawn yet comes before this instant."""
        return float(self.at[-1]) if self.more else float("inf")

    def extend(self) -> None:
        """Draw one more block."""
        at = next(self._blocks, None)
        if at is None:
            self.more = False
            return
        n, rngs, t = len(at), self._rngs, self._traffic
        who = self._tenant_of.draw(rngs["tenant"], n)
        if t.adapters_by == "tenant":
            which: Ints = who % len(self._adapters)
        else:
            which = self._adapter_of.draw(rngs["adapter"], n)
        block: list[Column] = [
            at,
            self._tenants[who],
            self._adapters[which],
            t.prompt_tokens.draw(rngs["prompt"], n, self._count),
            t.output_tokens.draw(rngs["output"], n, self._count),
            rngs["seed"].integers(0, 2**31, n, dtype=np.int64),
        ]
        self._count += n
        left = self._columns if len(self.at) else [c[:0] for c in block]
        self._columns = [np.concatenate(pair) for pair in zip(left, block, strict=True)]
        self.at = self._columns[0]

    def take(self, before_s: float) -> list[Column]:
        """Everything before the instant, as columns; it is gone from here then."""
        n = int(np.searchsorted(self.at, before_s, side="left"))
        taken = [c[:n] for c in self._columns]
        self._columns = [c[n:] for c in self._columns]
        self.at = self._columns[0]
        if self.more and self.at[-1] <= before_s:
            self.extend()
        return taken


def stream(
    traffic: Sequence[Traffic], seed: int, start_s: float, end_s: float, pace: float
) -> Iterator[Arrival]:
    """See `Workload.stream`. Raises ValueError for a pace that is not above 0."""
    if not pace > 0:
        raise ValueError(f"a pace of {pace!r}: expected a number > 0")
    return _merged(traffic, seed, start_s, end_s, pace)


def _merged(
    traffic: Sequence[Traffic], seed: int, start_s: float, end_s: float, pace: float
) -> Iterator[Arrival]:
    drawn = [_Drawn(t, seed, pace) for t in traffic if t.start_s < end_s and t.end_s > start_s]
    live = [d for d in drawn if len(d.at)]
    while live:
        known_s = min(d.known_s for d in live)
        parts = [d.take(known_s) for d in live]
        columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
        live = [d for d in live if d.more or len(d.at)]
        at = columns[0]
        order = np.argsort(at, kind="stable")
        first = int(np.searchsorted(at, start_s, sorter=order, side="left"))
        stop = int(np.searchsorted(at, end_s, sorter=order, side="left"))
        chosen = order[first:stop]
        yield from map(Arrival, *(c[chosen].tolist() for c in columns))
        if stop < len(order):
            return
