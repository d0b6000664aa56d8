"""Adds up parts of buckets to one row a tenant. Pure; knows no deliveries and no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.prometheus.totals import State
from telemetry.watch.columns import (
    AT,
    AVERAGES,
    COLUMNS,
    KEPT,
    LEVELS,
    LEVELS_ADD_UP,
    MAXIMA,
    REJECTED,
    SUMS,
)
from telemetry.watch.frame import Matrix, percentiles

_S = slice(0, len(SUMS))
_A = slice(_S.stop, _S.stop + len(AVERAGES))
_M = slice(_A.stop, _A.stop + len(MAXIMA))
_L = slice(_M.stop, _M.stop + len(LEVELS))
_H = slice(len(KEPT), None)
_KEPT_AT = {n: i for i, n in enumerate(KEPT)}
_WEIGHT, _BACKLOGGED = _KEPT_AT["weight"], _KEPT_AT["backlogged_s"]
_LEVEL_ADDS = np.array([n in LEVELS_ADD_UP for n in LEVELS])

Pool = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A bucket as far as it lies in the window: `seconds` of it, the `fraction` of what it saw."""

    pool: Pool
    start: float
    end: float
    seconds: float
    fraction: float
    state: State


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """A row a tenant, in the order of `names`; `tenants` says how many each pool has."""

    names: tuple[str, ...]
    values: Matrix
    ttft: Matrix
    tenants: dict[Pool, int]


class Whole:
    """Remembers where each bucket's tenants stand among all, from one adding-up to the next."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._index: dict[int, tuple[State, npt.NDArray[np.int64]]] = {}

    def places(self, states: Sequence[State]) -> tuple[list[str], list[npt.NDArray[np.int64]]]:
        """All names, and for each state the places of its rows among them."""
        if len(self._at) > 1024 + 2 * max((len(s.names) for s in states), default=0):
            self._at, self._index = {}, {}  # names of tenants long gone
        kept: dict[int, tuple[State, npt.NDArray[np.int64]]] = {}
        found = []
        at = self._at
        for state in states:
            known = self._index.get(id(state))
            if known is None or known[0] is not state or len(known[1]) != len(state.names):
                places = [at.setdefault(n, len(at)) for n in state.names]
                known = (state, np.array(places, np.int64))
            kept[id(state)] = known
            found.append(known[1])
        self._index = kept
        return list(at), found


def add_up(whole: Whole, parts: Sequence[Part], observed_s: Mapping[Pool, float]) -> Sums:
    """Parts in order of pool and time. `observed_s`: how much of its window each pool was seen."""
    names, places = whole.places([p.state for p in parts])
    n = len(names)
    sums, held, most, levels = (
        np.full((n, part.stop - part.start), np.nan) for part in (_S, _A, _M, _L)
    )
    ttft = np.zeros((n, parts[0].state.values.shape[1] - len(KEPT) if parts else 1))
    there = np.zeros(n, bool)
    fair = np.zeros(n)
    fair_s = 0.0
    tenants: dict[Pool, int] = {}
    by_pool: dict[Pool, list[tuple[Part, npt.NDArray[np.int64]]]] = {}
    for part, index in zip(parts, places, strict=True):
        by_pool.setdefault(part.pool, []).append((part, index))
    for pool, own in by_pool.items():
        mine = np.zeros(n, bool)
        newest = np.full((n, len(LEVELS)), np.nan)
        for part, index in own:
            values = part.state.values
            mine[index] = True
            sums[index] = _plus(sums[index], values[:, _S] * part.fraction)
            weight = part.seconds / (observed_s.get(pool) or part.seconds)
            held[index] = _plus(held[index], values[:, _A] * weight)
            most[index] = np.fmax(most[index], values[:, _M])
            ttft[index] += np.nan_to_num(values[:, _H]) * part.fraction
            level = values[:, _L]
            newest[index] = np.where(np.isnan(level), newest[index], level)
            shares = _fair(values)
            if shares is not None:
                fair[index] += shares * part.seconds
                fair_s += part.seconds
        levels = np.where(_LEVEL_ADDS, _plus(levels, newest), np.fmax(levels, newest))
        tenants[pool] = int(mine.sum())
        there |= mine
    kept = np.concatenate([sums, held, most, levels], axis=1)[there]
    values = _columns(kept, ttft[there], fair[there] / fair_s if fair_s else fair[there])
    return Sums(
        tuple(name for name, is_there in zip(names, there.tolist(), strict=True) if is_there),
        values,
        ttft[there],
        tenants,
    )


def _columns(kept: Matrix, ttft: Matrix, fair: Matrix) -> Matrix:
    values = np.full((len(kept), len(COLUMNS)), np.nan)
    for name, i in AT.items():
        if name in _KEPT_AT:
            values[:, i] = kept[:, _KEPT_AT[name]]
    refused = kept[:, [_KEPT_AT[c] for c in REJECTED]]
    values[:, AT["rejected_requests"]] = np.where(
        np.isnan(refused).all(axis=1), np.nan, np.nansum(refused, axis=1)
    )
    service = kept[:, _KEPT_AT["service"]]
    whole = np.nansum(service)
    if whole > 0:
        values[:, AT["share"]] = service / whole
    values[:, AT["fair_share"]] = np.where(fair > 0, fair, np.nan)
    n, p50, p99 = percentiles(ttft)
    values[:, AT["ttft_n"]], values[:, AT["ttft_p50_s"]], values[:, AT["ttft_p99_s"]] = n, p50, p99
    return values


def _fair(values: Matrix) -> Matrix | None:
    """Each one's part of the weights of those backlogged in the bucket; None when nobody was."""
    backlogged = np.nan_to_num(values[:, _BACKLOGGED]) > 0
    weights = np.where(backlogged, np.nan_to_num(values[:, _WEIGHT], nan=1.0), 0.0)
    total = weights.sum()
    return weights / total if total > 0 else None


def _plus(total: Matrix, more: Matrix) -> Matrix:
    """Add, where absent and absent stays absent."""
    return np.where(
        np.isnan(total), more, np.where(np.isnan(more), total, total + np.nan_to_num(more))
    )
