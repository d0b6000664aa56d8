"""What a simulation found: per tenant, per pool, over time. Values, and how they are made.

Percentiles interpolate between ranks, as numpy's do. Owns no loop over requests: everything is
counted by numpy from the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.config import Tenant
from engine.simulation.columns import OUTCOMES, Columns
from engine.simulation.curves import Curves
from engine.simulation.fairness import jain
from engine.simulation.setup import Setup

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FINISHED, ABORTED, FAILED, TIMED_OUT = (
    OUTCOMES.index(o) for o in ("finished", "aborted", "failed", "timed_out")
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of `n` requests; None for none."""

    n: int = 0
    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None


@dataclass(frozen=True, slots=True)
class TenantResult:
    """`service` = wp x prompt computed + wq x output (what is under way at a cut counts as
    charged), `share` its part of all service. Requests that wait unfinished at a cut are not
    judged against the SLO."""

    tenant: str
    pool: str
    weight: float
    service: float
    share: float
    backlogged: bool  # something of it waited at some sample
    offered: int
    offered_tokens: int
    admitted: int
    rejected: dict[str, int]
    finished: int
    aborted: int
    failed: int
    timed_out: int
    unfinished: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    recomputed_tokens: int
    ttft: Spread
    tpot: Spread
    max_gap: Spread
    waits_s: dict[str, float]
    preemptions: int
    adapter_lookups: int
    adapter_hits: int
    slo_met: int
    slo_missed: int
    goodput_tokens: int

    @property
    def hit_rate(self) -> float | None:
        return self.adapter_hits / self.adapter_lookups if self.adapter_lookups else None


@dataclass(frozen=True, slots=True)
class PoolResult:
    """One pool. `span_s` is from its first arrival to its last ending; rates are over that."""

    pool: str
    steps: int
    finished: int
    span_s: float
    tokens_per_s: float  # prompt tokens computed and output
    output_tokens_per_s: float
    preemptions: int
    hit_rate: float | None
    jain: float | None  # of service / weight, over the tenants that were backlogged


@dataclass(frozen=True, slots=True)
class Wall:
    """What the simulation took of this machine: no part of what it found."""

    wall_s: float
    simulated_s_per_s: float
    requests_per_s: float

    @classmethod
    def of(cls, wall_s: float, result: Result) -> Wall:
        return cls(wall_s, result.simulated_s / wall_s, result.offered / wall_s)


@dataclass(frozen=True, slots=True)
class Result:
    """`accumulated_difference`: the most |W_i - W_j| / weight of two tenants over a time in which
    both were backlogged; `..._at_end` as it stood when two were backlogged last; `compared`: how
    many tenants were. `series[i]` is the service up to `series_at_s[i]`, in the tenants' order."""

    name: str
    policy: str
    seed: int
    machine: str
    simulated_s: float
    offered: int
    tenants: tuple[TenantResult, ...]
    pools: tuple[PoolResult, ...]
    accumulated_difference: float
    accumulated_difference_at_end: float
    compared: int
    series_at_s: tuple[float, ...]
    series: tuple[tuple[float, ...], ...]
    columns: Columns
    wall: Wall | None = None

    def timed(self, wall: Wall) -> Result:
        return replace(self, wall=wall)


def summarise(
    setup: Setup,
    columns: Columns,
    curves: Curves,
    *,
    simulated_s: float,
    steps: dict[str, int],
    under_way: Sequence[int],
) -> Result:
    """`under_way`: the tenants' numbers of the requests that had not ended."""
    by_tenant = _ByTenant(columns)
    known = {t.name: t for t in setup.tenants}
    n = len(columns.tenants)
    service = _padded(curves.service[-1], n) if curves.service else np.zeros(n)
    unfinished = np.bincount(np.asarray(under_way, dtype=np.int64), minlength=n)
    met, missed = by_tenant.judged([known[t] for t in columns.tenants])
    spreads = {
        name: by_tenant.spreads(_floats(values))
        for name, values in (
            ("ttft", columns.ttft_s),
            ("tpot", columns.tpot_s),
            ("max_gap", columns.max_gap_s),
        )
    }
    outcome = np.frombuffer(columns.outcome, dtype=np.int8) if len(columns) else _NONE
    outcomes = {code: by_tenant.count(outcome == code) for code in range(len(OUTCOMES))}
    hit = np.frombuffer(columns.hit, dtype=np.int8) if len(columns) else _NONE
    lookups, hits = by_tenant.count(hit >= 0), by_tenant.count(hit == 1)
    sums = {
        name: by_tenant.total(values)
        for name, values in (
            ("computed", columns.computed),
            ("cached", columns.cached),
            ("output", columns.output),
            ("recomputed", columns.recomputed),
            ("preemptions", columns.preemptions),
            ("slot", columns.slot_s),
            ("budget", columns.budget_s),
            ("kv", columns.kv_s),
            ("adapter", columns.adapter_s),
        )
    }
    good = by_tenant.total(np.where(met, _floats(columns.output), 0.0))
    met_by, missed_by = by_tenant.count(met), by_tenant.count(missed)
    whole = float(service.sum())
    tenants = tuple(
        TenantResult(
            tenant=name,
            pool=setup.pool_of(known[name]).name,
            weight=known[name].weight,
            service=float(service[i]),
            share=float(service[i]) / whole if whole else 0.0,
            backlogged=i in curves.ever_backlogged,
            offered=columns.counts[i].offered,
            offered_tokens=columns.counts[i].offered_tokens,
            admitted=columns.counts[i].admitted,
            rejected=dict(sorted(columns.counts[i].rejected.items())),
            finished=int(outcomes[FINISHED][i]),
            aborted=int(outcomes[ABORTED][i]),
            failed=int(outcomes[FAILED][i]),
            timed_out=int(outcomes[TIMED_OUT][i]),
            unfinished=int(unfinished[i]),
            prompt_tokens=int(sums["computed"][i]),
            cached_tokens=int(sums["cached"][i]),
            output_tokens=int(sums["output"][i]),
            recomputed_tokens=int(sums["recomputed"][i]),
            ttft=spreads["ttft"][i],
            tpot=spreads["tpot"][i],
            max_gap=spreads["max_gap"][i],
            waits_s={r: float(sums[r][i]) for r in ("slot", "budget", "kv", "adapter")},
            preemptions=int(sums["preemptions"][i]),
            adapter_lookups=int(lookups[i]),
            adapter_hits=int(hits[i]),
            slo_met=int(met_by[i]),
            slo_missed=int(missed_by[i]),
            goodput_tokens=int(good[i]),
        )
        for i, name in enumerate(columns.tenants)
    )
    return Result(
        name=setup.name,
        policy=setup.policy,
        seed=setup.seed,
        machine=setup.machine.name,
        simulated_s=simulated_s,
        offered=sum(t.offered for t in tenants),
        tenants=tenants,
        pools=tuple(
            _pool(name, count, columns, [(i, t) for i, t in enumerate(tenants) if t.pool == name])
            for name, count in steps.items()
        ),
        accumulated_difference=curves.differences.most,
        accumulated_difference_at_end=curves.differences.last,
        compared=curves.differences.tenants,
        series_at_s=tuple(curves.at_s),
        series=tuple(tuple(_padded(s, n).tolist()) for s in curves.service),
        columns=columns,
    )


def _pool(
    name: str, steps: int, columns: Columns, own: Sequence[tuple[int, TenantResult]]
) -> PoolResult:
    tenants = [t for _, t in own]
    numbers = np.array([i for i, _ in own], dtype=np.int64)
    span = 0.0
    if len(columns) and len(numbers):
        here = np.isin(np.frombuffer(columns.tenant, dtype=np.int32), numbers)
        if here.any():
            ended = np.frombuffer(columns.ended_s)[here]
            span = float(ended.max() - np.frombuffer(columns.arrived_s)[here].min())
    output = sum(t.output_tokens for t in tenants)
    tokens = output + sum(t.prompt_tokens for t in tenants)
    lookups = sum(t.adapter_lookups for t in tenants)
    return PoolResult(
        pool=name,
        steps=steps,
        finished=sum(t.finished for t in tenants),
        span_s=span,
        tokens_per_s=tokens / span if span else 0.0,
        output_tokens_per_s=output / span if span else 0.0,
        preemptions=sum(t.preemptions for t in tenants),
        hit_rate=sum(t.adapter_hits for t in tenants) / lookups if lookups else None,
        jain=jain([t.service / t.weight for t in tenants if t.backlogged]),
    )


_NONE = np.zeros(0, dtype=np.int8)


def _floats(values: object) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _padded(values: Floats, n: int) -> Floats:
    """A sample taken before the last tenants came: they had had nothing."""
    return np.concatenate([values, np.zeros(n - len(values))])


class _ByTenant:
    """Sums, counts and percentiles of columns, for all tenants at once."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._n = len(columns.tenants)
        self._who: Ints = np.asarray(columns.tenant, dtype=np.int64)

    def total(self, values: object) -> Floats:
        return _floats(np.bincount(self._who, weights=_floats(values), minlength=self._n))

    def count(self, which: NDArray[np.bool_]) -> Ints:
        return np.bincount(self._who[which], minlength=self._n)

    def spreads(self, values: Floats) -> list[Spread]:
        """Of the values that are not NaN."""
        there = ~np.isnan(values)
        who, values = self._who[there], values[there]
        order = np.lexsort((values, who))
        who, values = who[order], values[order]
        counts = np.bincount(who, minlength=self._n)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if self._n else counts
        sums = np.bincount(who, weights=values, minlength=self._n)
        some = counts > 0
        quantiles = []
        for q in (0.50, 0.90, 0.99, 1.0):
            rank = q * np.maximum(counts - 1, 0)
            low = np.floor(rank).astype(np.int64)
            high = np.minimum(low + 1, np.maximum(counts - 1, 0))
            found = np.zeros(self._n)
            below, above = values[(starts + low)[some]], values[(starts + high)[some]]
            found[some] = below + (above - below) * (rank - low)[some]
            quantiles.append(found)
        return [
            Spread(int(c), float(sums[i]) / int(c), *(float(q[i]) for q in quantiles))
            if (c := counts[i])
            else Spread()
            for i in range(self._n)
        ]

    def judged(self, tenants: Sequence[Tenant]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(met, missed) of every request, as the ledger judges those that have ended."""
        c, who = self._columns, self._who
        if not len(who):
            return np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
        outcome = np.frombuffer(c.outcome, dtype=np.int8)

        def target(values: list[float | None]) -> Floats:
            return np.array([math.inf if v is None else v for v in values])[who]

        ttft, tpot, gap = (_floats(v) for v in (c.ttft_s, c.tpot_s, c.max_gap_s))
        waited = np.where(np.isnan(ttft), _floats(c.ended_s) - _floats(c.arrived_s), ttft)
        missed = waited > target([t.slo.ttft_s for t in tenants])
        missed |= tpot > target([t.slo.tpot_s for t in tenants])  # NaN passes no target
        missed |= gap > target([t.slo.max_gap_s for t in tenants])
        missed |= (outcome == FAILED) | (outcome == TIMED_OUT)
        return (outcome == FINISHED) & ~missed, missed
