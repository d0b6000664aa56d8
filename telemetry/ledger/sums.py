"""Cumulative vectors over holders, worked out from a stretch's notes. Pure functions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from telemetry.ledger.cumulative import (
    CAPACITY_AT,
    CROWDED_HOLDERS,
    EXACT_HOLDERS,
    FIRST_TENANT,
    POLICY_AT,
    Chunk,
    Cumulatives,
    Indices,
    Slots,
)
from telemetry.ledger.vectors import Vector

Dense = tuple[int, float, Vector]  # a row, seconds charged a unit held, who holds how much


def work_out(chunk: Chunk) -> Cumulatives:
    """Seconds; row 0 is zero. Exact up to EXACT_HOLDERS holders, else of the heaviest."""
    width = len(chunk.standing)
    if chunk.vectors is not None:
        return chunk.vectors
    if chunk.stalls:
        return _of_stalls(chunk.stalls, chunk.rows, width)
    fixed = np.zeros((chunk.rows, FIRST_TENANT))
    clocks = np.zeros(chunk.rows)
    parts = np.zeros(chunk.rows)  # of the running sequences, in the interval that begins there
    dense = _shared_out(chunk, fixed, clocks, parts)
    masses = _slot_masses(chunk.slots, parts, width)
    for held, part in _distinct(dense):
        n = min(len(held), width)
        masses[:n] += part * held[:n]
    holders, crowded = _chosen(masses)
    sums = np.zeros((chunk.rows, FIRST_TENANT + len(holders)))
    sums[:, :FIRST_TENANT] = fixed
    if parts.any():
        sequences = _sequences(chunk.slots, chunk.rows, holders, width)
        sums[1:, FIRST_TENANT:] += parts[:-1, None] * sequences[:-1]
    for row, part, held in dense:
        there = holders < len(held)
        sums[row + 1, FIRST_TENANT:][there] += part * held[holders[there]]
    np.cumsum(sums, axis=0, out=sums)
    clocks = np.cumsum(clocks)
    rest = np.maximum(clocks - sums.sum(axis=1), 0.0) if crowded else None
    columns = np.concatenate([np.arange(FIRST_TENANT), holders + FIRST_TENANT])
    return Cumulatives(columns, sums, rest, clocks)


def _shared_out(
    chunk: Chunk, fixed: npt.NDArray[np.float64], clocks: Vector, parts: Vector
) -> list[Dense]:
    """Write down row by row what was nobody's (`fixed`), how much time passed, and what a running
    sequence was charged; returns what holders of something else were."""
    by_bytes, by_cost = chunk.reason in ("kv", "adapter"), chunk.reason != "slot"
    dense: list[Dense] = []
    held_sums: dict[int, float] = {}
    lost_at, policy_at = fixed[:, CAPACITY_AT], fixed[:, POLICY_AT]
    for row in chunk.passed:
        table_s, lost_s, costs, running, held, capacity, policy = chunk.notes[row]
        clocks[row + 1] = table_s + lost_s
        lost_at[row + 1] = lost_s
        if by_bytes:
            whole = capacity + policy
            if held is not None:
                if id(held) not in held_sums:
                    held_sums[id(held)] = float(held.sum())
                whole += held_sums[id(held)]
            if held is not None and whole > 0:
                part = table_s / whole
                lost_at[row + 1] += part * capacity
                policy_at[row + 1] = part * policy
                dense.append((row, part, held))
                continue
        elif by_cost and costs.total() > 0:
            dense.append((row, table_s / costs.total(), costs.whole()))
            continue
        elif running > 0:
            parts[row] = table_s / running
            continue
        lost_at[row + 1] += table_s  # nobody there to be charged
    return dense


def _of_stalls(stalls: list[tuple[int, int, float]], rows: int, width: int) -> Cumulatives:
    at = np.array([s[0] for s in stalls], dtype=np.intp)
    who = np.array([s[1] for s in stalls], dtype=np.intp)
    seconds = np.array([s[2] for s in stalls], dtype=np.float64)
    masses = np.bincount(who, weights=seconds, minlength=width).astype(np.float64)
    holders, crowded = _chosen(masses)
    clocks: Vector = np.cumsum(np.bincount(at, weights=seconds, minlength=rows), dtype=np.float64)
    place = np.full(width, -1)
    place[holders] = np.arange(len(holders))
    kept = place[who] >= 0
    sums = np.zeros((rows, len(holders)))
    np.add.at(sums, (at[kept], place[who[kept]]), seconds[kept])
    np.cumsum(sums, axis=0, out=sums)
    rest = np.maximum(clocks - sums.sum(axis=1), 0.0) if crowded else None
    return Cumulatives(holders + FIRST_TENANT, sums, rest, clocks)


def _chosen(masses: Vector) -> tuple[Indices, bool]:
    """(indices of the holders that get a column, whether others go without)."""
    holders = np.flatnonzero(masses > 0)
    if len(holders) <= EXACT_HOLDERS:
        return holders, False
    heaviest = np.argpartition(masses, -CROWDED_HOLDERS)[-CROWDED_HOLDERS:]
    return np.sort(heaviest), True


def _slot_masses(slots: Slots, parts: Vector, width: int) -> Vector:
    """What each holder's sequences are charged over the stretch, parts being by row."""
    after = np.concatenate([np.cumsum(parts[::-1])[::-1], [0.0]])  # from a row to the end
    masses: Vector = slots.at_start * after[0]
    if slots.rows:
        late = after[np.array(slots.rows, dtype=np.intp)] * np.array(slots.changes)
        masses += np.bincount(slots.holders, weights=late, minlength=width)
    # A holder that came and went leaves rounding behind when it was never charged.
    masses[masses < 1e-13 * after[0]] = 0.0
    return masses


def _sequences(slots: Slots, rows: int, holders: Indices, width: int) -> npt.NDArray[np.float64]:
    """(rows, holders): running sequences in the interval that begins at a row."""
    out = np.zeros((rows, len(holders)))
    out[0] = slots.at_start[holders]
    if slots.rows:
        place = np.full(width, -1)
        place[holders] = np.arange(len(holders))
        who = place[np.array(slots.holders, dtype=np.intp)]
        kept = who >= 0
        at = np.array(slots.rows, dtype=np.intp)[kept]
        np.add.at(out, (at, who[kept]), np.array(slots.changes)[kept])
    np.cumsum(out, axis=0, out=out)
    return out


def _distinct(intervals: list[Dense]) -> list[tuple[Vector, float]]:
    """Each vector once, with all of its parts: a step's costs last several intervals."""
    vectors: dict[int, tuple[Vector, float]] = {}
    for _, part, held in intervals:
        before = vectors[id(held)][1] if id(held) in vectors else 0.0
        vectors[id(held)] = (held, before + part)
    return list(vectors.values())


def compact(chunk: Chunk) -> Chunk:
    """The same chunk without the dense vectors it refers to, when it has fewer columns."""
    if chunk.vectors is not None or chunk.stalls or len(chunk.standing) <= EXACT_HOLDERS:
        return chunk
    if chunk.reason == "slot":  # its rows refer to none
        return chunk
    vectors = work_out(chunk)
    size = vectors.sums.nbytes + chunk.standing.nbytes + 24 * len(chunk.victims)
    return chunk._replace(notes=[], passed=[], vectors=vectors, size_bytes=size)
